"""capture.generated.torch_state: the state of torch that a trace may change, read and put back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import torch

from argand.runtime import levels


def _nesting() -> int:
    """How many autocast contexts are open: torch tells it only when it changes."""
    torch.autocast_increment_nesting()
    return int(torch.autocast_decrement_nesting())


def _set_nesting(depth: int) -> None:
    while _nesting() < depth:
        torch.autocast_increment_nesting()
    while _nesting() > depth:
        torch.autocast_decrement_nesting()


def _deterministic() -> tuple[bool, bool]:
    return (
        torch._C._get_deterministic_algorithms(),
        torch._C._get_deterministic_algorithms_warn_only(),
    )


class State(NamedTuple):
    """A piece of torch's state that a trace may change: it is put back, and set again by the graph."""

    read: Callable[[], Any]
    write: Callable[[Any], Any]
    # C functions that change it. A setter that is in no row is left to Python.
    setters: tuple[str, ...]
    of_thread: bool = False  # each thread has its own


def _autocast(
    device: str, setters: tuple[str, ...], dtype_setters: tuple[str, ...]
) -> tuple[State, State]:
    return (
        State(
            lambda: torch.is_autocast_enabled(device),
            lambda on: torch.set_autocast_enabled(device, on),
            ("set_autocast_enabled", *setters),
            of_thread=True,
        ),
        State(
            lambda: torch.get_autocast_dtype(device),
            lambda dtype: torch.set_autocast_dtype(device, dtype),
            ("set_autocast_dtype", *dtype_setters),
            of_thread=True,
        ),
    )


STATE: Final = (
    State(
        torch.is_grad_enabled, torch._C._set_grad_enabled, ("_set_grad_enabled",), of_thread=True
    ),
    *_autocast("cpu", ("set_autocast_cpu_enabled",), ("set_autocast_cpu_dtype",)),
    *_autocast("cuda", (), ("set_autocast_gpu_dtype",)),
    State(
        torch.is_autocast_cache_enabled,
        torch.set_autocast_cache_enabled,
        ("set_autocast_cache_enabled",),
        of_thread=True,
    ),
    State(
        _nesting,
        _set_nesting,
        ("autocast_increment_nesting", "autocast_decrement_nesting", "clear_autocast_cache"),
    ),
    State(torch._C._get_flash_sdp_enabled, torch._C._set_sdp_use_flash, ("_set_sdp_use_flash",)),
    State(
        torch._C._get_mem_efficient_sdp_enabled,
        torch._C._set_sdp_use_mem_efficient,
        ("_set_sdp_use_mem_efficient",),
    ),
    State(torch._C._get_math_sdp_enabled, torch._C._set_sdp_use_math, ("_set_sdp_use_math",)),
    State(torch._C._get_cudnn_sdp_enabled, torch._C._set_sdp_use_cudnn, ("_set_sdp_use_cudnn",)),
    State(
        torch._C._get_overrideable_sdp_enabled,
        torch._C._set_sdp_use_overrideable,
        ("_set_sdp_use_overrideable",),
    ),
    State(
        torch._C._get_sdp_priority_order,
        torch._C._set_sdp_priority_order,
        ("_set_sdp_priority_order",),
    ),
    State(
        _deterministic,
        lambda to: torch._C._set_deterministic_algorithms(to[0], warn_only=to[1]),
        ("_set_deterministic_algorithms",),
    ),
    *(State(read, write, ()) for read, write in levels.ROWS),  # their setters are in `transforms`
)
SETTERS: Final = frozenset(name for row in STATE for name in row.setters)


def read_state() -> tuple[Any, ...]:
    """torch's state, as far as code can change it inside of a trace."""
    return tuple(row.read() for row in STATE)


def restore_state(saved: tuple[Any, ...]) -> None:
    """Put torch's state back."""
    for row, value in zip(STATE, saved, strict=True):
        if row.read() != value:
            row.write(value)
