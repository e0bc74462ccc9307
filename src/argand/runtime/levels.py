"""runtime.levels: the state that torch's transforms (`torch.func`, forward-mode autograd) change while they run.

Out: readers and writers of it, and a context that puts it back. A program of the user's closes what it opens;
one that is traced, or a graph of it that raises, may end in between.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch

_functorch: Final = torch._C._functorch


def depth() -> int:
    """How many transforms of torch.func are open in this thread."""
    return int(_functorch.get_dynamic_layer_stack_depth())


def _close_to(wanted: int) -> None:
    if depth() > wanted:
        _functorch.pop_dynamic_layer_stack_and_undo_to_depth(wanted)


def dual_level() -> int:
    """The open level of forward-mode autograd, -1 if there is none; torch tells it only when one is opened."""
    try:
        level = int(torch._C._enter_dual_level())
    except RuntimeError:  # levels do not nest
        return 0
    torch._C._exit_dual_level(level=level)
    return level - 1


def _close_dual(wanted: int) -> None:
    if dual_level() > wanted:
        torch._C._exit_dual_level(level=0)


def _hooks_message() -> str | None:
    message: str | None = torch._C._autograd._saved_tensors_hooks_get_disabled_error_message()
    return message


def _set_hooks_message(message: str | None) -> None:
    if message is None:
        torch._C._autograd._saved_tensors_hooks_enable()
    else:
        torch._C._autograd._saved_tensors_hooks_disable(message)


# (reader, writer), in the order in which they are put back
ROWS: Final[tuple[tuple[Callable[[], Any], Callable[[Any], Any]], ...]] = (
    (dual_level, _close_dual),
    (depth, _close_to),
    (torch._C._is_fwd_grad_enabled, torch._C._set_fwd_grad_enabled),
    (_functorch.get_inplace_requires_grad_allowed, _functorch.set_inplace_requires_grad_allowed),
    (_hooks_message, _set_hooks_message),
)


def unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    """The plain tensor inside of a tensor of transforms."""
    while _functorch.is_functorch_wrapped_tensor(tensor):
        tensor = _functorch.get_unwrapped(tensor)
    return tensor


@contextlib.contextmanager
def kept_levels() -> Iterator[None]:
    """Whatever opens levels inside, they are closed after it."""
    saved = [read() for read, _ in ROWS]
    try:
        yield
    finally:
        for (read, write), value in zip(ROWS, saved, strict=True):
            if read() != value:
                write(value)


@contextlib.contextmanager
def below_levels() -> Iterator[None]:
    """Outside of all open transforms: what is made here is a plain tensor, of no level."""
    layers = []
    while depth():
        layers.append(_functorch.pop_dynamic_layer_stack())
    try:
        yield
    finally:
        while layers:
            _functorch.push_dynamic_layer_stack(layers.pop())
