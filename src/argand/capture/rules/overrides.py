"""capture.rules.overrides: `__torch_function__`, of tensor subclasses, of other objects, and of modes.

In: a call of torch with such an object among its arguments, or inside of a mode. Out: what the override
makes of it, interpreted like other code of the user. Which function, types and arguments an override is handed is torch's
business: torch is asked, by making the call under a mode of our own that only listens. Below the
overrides a subclass is a plain tensor: the graph has no subclasses, results get their class after it.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn, final

import torch
from torch.overrides import TorchFunctionMode, get_default_nowrap_functions
from typing_extensions import override

from argand.capture.markers import Args, Kwargs, OfTrace
from argand.capture.objects import attributes
from argand.capture.objects.methods import lookup
from argand.capture.objects.parts import GraphState
from argand.capture.objects.tracer import Tracer
from argand.capture.outside import real
from argand.capture.outside.kinds import is_trusted_module
from argand.capture.outside.state import Outside
from argand.capture.outside.subclasses import Overrides, is_subclass
from argand.capture.record.recorder import Recorder
from argand.capture.sizes.floats import Float
from argand.capture.sizes.values import OpenSize
from argand.support.errors import Break, CaptureBreak

DEFAULT: Final = torch.Tensor.__dict__["__torch_function__"].__func__
_GETTER: Final = types.GetSetDescriptorType


class _Asked(BaseException):
    """What torch hands to an override."""

    def __init__(self, function: Any, kinds: Any, args: Args, kwargs: Kwargs) -> None:
        super().__init__()
        self.function, self.kinds, self.args_, self.kwargs = function, tuple(kinds), args, kwargs


@final
class _Listener(TorchFunctionMode):
    @override
    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> NoReturn:
        raise _Asked(func, types, args, kwargs or {})


def dispatch(
    tracer: Tracer, run: Callable[..., Any], args: Args, kwargs: Kwargs, again: Callable[[], Any]
) -> Any:
    """A call that goes to overrides; `again` makes it below them, for functions that have none."""
    if any(type(value) in (OpenSize, Float) for value in (*args, *kwargs.values())):
        raise CaptureBreak(Break.B010, None, type="a subclass, beside a size that is left open")
    asked = _ask(run, args, kwargs)
    if asked is None:
        with tracer.overrides.disabled():
            return again()
    if type(run) is types.FunctionType and getattr(asked.function, "__name__", "") != run.__name__:
        # it does not ask for itself, but for something that it calls
        raise CaptureBreak(Break.B010, None, type=f"a subclass, in {run.__qualname__}")
    given = (asked.function, asked.kinds, asked.args_, asked.kwargs)
    overrides = tracer.overrides
    if overrides.modes:
        mode = overrides.modes.pop()
        try:
            return _interpret(tracer, attributes.load(tracer, mode, "__torch_function__"), given)
        finally:
            overrides.modes.append(mode)
    for kind in asked.kinds:
        owner = next(value for value in _flat((asked.args_, asked.kwargs)) if type(value) is kind)
        result = _interpret(tracer, attributes.load(tracer, owner, "__torch_function__"), given)
        if result is not NotImplemented:
            return result
    raise CaptureBreak(Break.B010, None, type="one whose __torch_function__ answers NotImplemented")


def _interpret(tracer: Tracer, function: Any, given: Args) -> Any:
    """Interpret an override; a break in it is a break at the call it is for."""
    tracer.overrides.depth += 1
    try:
        return tracer.sealed(function, given, {})
    except CaptureBreak as cause:
        cause.native = True
        raise
    finally:
        tracer.overrides.depth -= 1


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple | list):
        for item in value:
            yield from _flat(item)
    else:
        yield value


def _ask(run: Callable[..., Any], args: Args, kwargs: Kwargs) -> _Asked | None:
    try:
        with torch._C._EnableTorchFunction(), _Listener():
            real.call(run, args, kwargs)
    except _Asked as asked:
        return asked
    return None


def default(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """`torch.Tensor.__torch_function__`: the function on plain tensors, and its results in the class."""

    def bound(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Args:
        return cls, func, types, args, kwargs or {}

    kind, function, kinds, given, named = bound(*args, **kwargs)
    if not all(issubclass(kind, other) for other in kinds):
        return NotImplemented
    with tracer.overrides.disabled():
        result = tracer.sealed(function, tuple(given), dict(named))
    return result if function in get_default_nowrap_functions() else convert(tracer, result, kind)


def convert(state: GraphState, value: Any, kind: Any) -> Any:
    """Tensors in a result as those of a subclass."""
    if isinstance(value, torch.Tensor) and not isinstance(value, kind):
        return as_subclass(state.recorder, value, kind)
    if type(value) in (tuple, list):
        return type(value)(convert(state, item, kind) for item in value)
    return value


def as_subclass(recorder: Recorder, tensor: torch.Tensor, kind: Any) -> Any:
    """`tensor.as_subclass(kind)`: the same node of the graph; it gets its class when it leaves the graph."""
    if not is_subclass(kind):
        raise CaptureBreak(Break.B010, None, type=kind.__name__)
    recorder.world.plain_from_here()
    recorder.world.keep_off_disk(f"a tensor of the class {kind.__name__}")
    made = real.call(torch.Tensor.as_subclass, (tensor, kind), {})
    recorder.alias(made, tensor)
    return made


def getter(function: Any) -> str | None:
    """The attribute of a tensor that a function such as `torch.Tensor.shape.__get__` reads."""
    owner = getattr(function, "__self__", None)
    reads = isinstance(function, types.MethodWrapperType) and function.__name__ == "__get__"
    if not reads or not isinstance(owner, _GETTER | property):
        return None
    found = owner.fget.__name__ if isinstance(owner, property) and owner.fget is not None else owner
    return str(getattr(found, "__name__", found))


@final
class WithoutOverrides(OfTrace):
    """What `torch._C.DisableTorchFunctionSubclass()` is while an override is interpreted."""

    def __init__(self, overrides: Overrides) -> None:
        self.overrides = overrides

    def __enter__(self) -> None:
        """Subclasses are plain from here."""
        self.overrides.off += 1

    def __exit__(self, *_: object) -> None:
        """To here."""
        self.overrides.off -= 1


def disable(state: GraphState, args: Args, kwargs: Kwargs) -> Any:
    """`torch._C.DisableTorchFunctionSubclass()`, which only overrides may enter in a graph."""
    if not state.overrides.depth:
        raise CaptureBreak(Break.B002, None, function="DisableTorchFunctionSubclass")
    return WithoutOverrides(state.overrides)


def make(state: GraphState, args: Args, kwargs: Kwargs) -> Any:
    """`torch.Tensor._make_subclass(kind, data)`: the values without their history."""

    def bound(cls: Any, data: Any, require_grad: bool = False, **rest: Any) -> Args:
        return cls, data, require_grad, rest

    kind, data, requires_grad, rest = bound(*args, **kwargs)
    if requires_grad or rest:
        raise CaptureBreak(Break.B013, None, what=f"making a {kind.__name__} with options")
    with state.overrides.disabled():
        plain = state.recorder.call_method("detach", (data,), {})
    return as_subclass(state.recorder, plain, kind)


def push_mode(state: GraphState, args: Args, kwargs: Kwargs) -> None:
    """`with mode:` of a TorchFunctionMode: entered in name only, its overrides are interpreted."""
    state.overrides.modes.append(args[0])


def pop_mode(state: GraphState, args: Args, kwargs: Kwargs) -> Any:
    """The end of it."""
    if not state.overrides.modes:
        raise CaptureBreak(
            Break.B013, None, what="the end of a TorchFunctionMode that began before this graph"
        )
    return state.overrides.modes.pop()


def is_made(outside: Outside, kind: Any) -> bool:
    """Whether an object of a tensor class is made by Python code that can be interpreted."""
    found = lookup(outside, kind, "__new__")
    found = found.__func__ if isinstance(found, staticmethod) else found
    return (
        is_subclass(kind)
        and type(found) is types.FunctionType
        and not is_trusted_module(found.__module__)
    )
