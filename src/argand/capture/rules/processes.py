"""capture.rules.processes: questions of a program about the group of processes it runs in.

In: calls of `torch.distributed.get_rank` and `get_world_size`. Out: the number, which is asked for again at the start of
each call. Where there is no group the call raises, and groups that the program made itself have identities that are
not guarded: both are left to Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from argand.capture.markers import Args, Kwargs
from argand.capture.outside import real
from argand.capture.outside.state import Outside
from argand.support.errors import Break, CaptureBreak

_HOME: Final = "torch.distributed.distributed_c10d"


def _rank() -> int | None:
    """The rank of this process in the default group; None where there is no group."""
    return torch.distributed.get_rank() if torch.distributed.is_initialized() else None


def _world_size() -> int | None:
    """The number of processes of the default group; None where there is no group."""
    return torch.distributed.get_world_size() if torch.distributed.is_initialized() else None


def _ask(
    name: str, reader: Callable[[], int | None], outside: Outside, args: Args, kwargs: Kwargs
) -> Any:
    number = real.apply(reader)
    if number is None or any(group is not None for group in (*args, *kwargs.values())):
        raise CaptureBreak(Break.B002, None, function=f"{_HOME}.{name}")
    outside.world.ask(reader)
    return number


def get_rank(outside: Outside, args: Args, kwargs: Kwargs) -> Any:
    """`torch.distributed.get_rank()`."""
    return _ask("get_rank", _rank, outside, args, kwargs)


def get_world_size(outside: Outside, args: Args, kwargs: Kwargs) -> Any:
    """`torch.distributed.get_world_size()`."""
    return _ask("get_world_size", _world_size, outside, args, kwargs)


RULES: Final = {f"{_HOME}.get_rank": get_rank, f"{_HOME}.get_world_size": get_world_size}
