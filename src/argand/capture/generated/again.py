"""capture.generated.again: what compiled functions call: when their graph raised (see `reruns`), and to say something (see `messages`).

Restored captures need no more than this.
"""

# No `from __future__ import annotations`: text that a program hands to exec() or compile() is compiled with the flags of
# the code that calls them, and here that is ours.
import functools
import itertools
import logging
import sys
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final, final

import torch

from argand.capture.generated.torch_state import restore_state
from argand.runtime import _native
from argand.runtime.tracebacks import is_ours
from argand.support import events
from argand.support.errors import ArgandError, Break, CaptureBreak, CaptureError, InternalError


@final
class Before:
    """What a graph may change before it raises."""

    def __init__(self, tensors: Sequence[torch.Tensor], random: bool) -> None:
        self.copies = [(tensor, tensor.detach().clone()) for tensor in tensors]
        self.random = torch.get_rng_state() if random else None

    def restore(self) -> None:
        """Put it back."""
        for tensor, copy in self.copies:
            tensor.detach().copy_(copy)
        if self.random is not None:
            torch.set_rng_state(self.random)


def again(
    error: Exception,
    function: Callable[..., Any],
    state: tuple[Any, ...],
    strict: bool,
    before: "Before | None" = None,
) -> Callable[..., Any]:
    """The frame as eager runs it, after its graph raised."""
    if isinstance(error, ArgandError):
        raise error
    # Hooks of saved tensors have seen a part of the graph's and may raise on purpose (a checkpoint that has recomputed
    # all it wants): they must not see the frame a second time.
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        raise error
    if state:
        restore_state(state)
    if before is not None:
        before.restore()

    def run(*args: Any, **kwargs: Any) -> Any:
        result = _native.disabled(function)(*args, **kwargs)
        text = (
            f"a compiled graph raised {type(error).__name__}: {error}, where eager raises nothing"
        )
        if strict:
            raise InternalError("graph", text) from error
        events.count("graph.raised", detail=text)
        warnings.warn(f"argand: {text}; eager's result is used", RuntimeWarning, stacklevel=3)
        return result

    return run


def _template(function: Any, args: Any, kwargs: Any) -> Any: return function(*args, **kwargs)  # fmt: skip  # one line


def must_raise(function: Callable[..., Any], text: str) -> Callable[..., Any]:
    """A frame in which the trace raised, under `fullgraph`: eager raises the same, or there is no graph without a word."""

    def run(*args: Any, **kwargs: Any) -> Any:
        _native.disabled(function)(*args, **kwargs)
        raise CaptureError(CaptureBreak(Break.B023, None, error=text))

    return run


@functools.lru_cache(maxsize=256)
def _placed(file: str, name: str, line: int, module: str, flags: int) -> types.FunctionType:
    """A function that calls another, and looks as if it stood at a place."""
    code = _template.__code__
    code = code.replace(
        co_filename=file, co_name=name, co_qualname=name, co_flags=code.co_flags | flags
    )
    code = code.replace(co_firstlineno=line)
    _native.mark_code(code, False)  # it is nobody's program
    found = sys.modules.get(module)
    return types.FunctionType(code, {"__name__": module} if found is None else found.__dict__, name)


def at(
    places: tuple[tuple[str, str, int, str, int], ...],
    function: Any,
    args: tuple[Any, ...],
    kwargs: Any,
) -> Any:
    """Call a function that may look for the place of its caller: below frames that stand where the user's would."""
    level = kwargs.get("stacklevel", 1)
    if _counts_frames(function) and isinstance(level, int) and level > len(places):
        # a caller of the frame: our own are in between
        kwargs = {**kwargs, "stacklevel": level + _own_frames()}
    for place in places[::-1]:  # no name that the program could have taken away
        function, args, kwargs = _placed(*place), (function, args, kwargs), {}
    try:
        return function(*args, **kwargs)
    except BaseException as error:
        trace = error.__traceback__
        for _ in range(len(places) + 1):  # whoever continues the frame knows the place better
            trace = None if trace is None else trace.tb_next
        error.__traceback__ = trace
        raise


def unpacked(value: Any, count: int) -> tuple[Any, ...]:
    """The items of a value for `count` names, and one more if there is one: then there are too many."""
    if not hasattr(type(value), "__iter__") and not hasattr(type(value), "__getitem__"):
        raise TypeError(f"cannot unpack non-iterable {type(value).__name__} object")
    return tuple(item for item in itertools.islice(iter(value), count + 1))


def _counts_frames(function: Any) -> bool:
    """Whether `stacklevel` means the frames between a function and the place it tells."""
    owner = getattr(function, "__self__", None)
    return function is warnings.warn or isinstance(owner, logging.Logger | logging.LoggerAdapter)


def _own_frames() -> int:
    frame: types.FrameType | None = sys._getframe(1)
    count = 0
    while frame is not None and is_ours(frame.f_code.co_filename):
        frame, count = frame.f_back, count + 1
    return count


NAMES: Final = {
    "again": again,
    "Before": Before,
    "at": at,
    "must_raise": must_raise,
}  # what the text of a compiled function calls by name
