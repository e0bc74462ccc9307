"""capture.torch_state: the state of torch that a trace may change, read and put back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch


def _nesting() -> int:
    """How many autocast contexts are open: torch tells it only when it changes."""
    torch.autocast_increment_nesting()
    return int(torch.autocast_decrement_nesting())


def _set_nesting(depth: int) -> None:
    while _nesting() < depth:
        torch.autocast_increment_nesting()
    while _nesting() > depth:
        torch.autocast_decrement_nesting()


# torch state a trace may change: how to read it, and how to set it
STATE: Final[tuple[tuple[Callable[[], Any], Callable[[Any], Any]], ...]] = (
    (torch.is_grad_enabled, torch._C._set_grad_enabled),
    (lambda: torch.is_autocast_enabled("cpu"), lambda on: torch.set_autocast_enabled("cpu", on)),
    (lambda: torch.get_autocast_dtype("cpu"), lambda dtype: torch.set_autocast_dtype("cpu", dtype)),
    (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    (_nesting, _set_nesting),
    (torch._C._get_flash_sdp_enabled, torch._C._set_sdp_use_flash),
    (torch._C._get_mem_efficient_sdp_enabled, torch._C._set_sdp_use_mem_efficient),
    (torch._C._get_math_sdp_enabled, torch._C._set_sdp_use_math),
    (torch._C._get_cudnn_sdp_enabled, torch._C._set_sdp_use_cudnn),
)


def read_state() -> tuple[Any, ...]:
    """torch's state, as far as code can change it inside of a trace."""
    return tuple(read() for read, _ in STATE)


def restore_state(saved: tuple[Any, ...]) -> None:
    """Put torch's state back."""
    for (read, write), value in zip(STATE, saved, strict=True):
        if read() != value:
            write(value)
