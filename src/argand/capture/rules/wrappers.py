"""capture.rules.wrappers: `__torch_dispatch__` of wrapper subclasses, interpreted.

In: a call of torch with a wrapper among its arguments. Out: what its class makes of it. Torch takes the call apart into
operators and hands each to the fake mode, which hands it on to here: the class's `__torch_dispatch__` is interpreted, and
what it does with the tensors inside becomes nodes. The graph has no wrappers; they are put together after it.
"""

from __future__ import annotations

import types
from typing import Any

import torch

from argand.capture.markers import Args, Kwargs
from argand.capture.objects import attributes
from argand.capture.objects.methods import lookup
from argand.capture.objects.tracer import Tracer
from argand.capture.outside import real
from argand.capture.outside.state import Outside
from argand.capture.outside.wrappers import is_wrapper
from argand.capture.sizes.frame_sizes import tensors_in
from argand.support.errors import Break, CaptureBreak


def call(tracer: Tracer, run: Any, args: Args, kwargs: Kwargs) -> Any:
    """A call of torch with wrappers among its arguments."""
    if torch.is_grad_enabled() and any(
        tensor.requires_grad for tensor in tensors_in((args, kwargs))
    ):
        raise CaptureBreak(Break.B010, None, type="a wrapper subclass, in training")
    if tracer.world.sizes.active or tracer.world.sizes.mode is None:
        raise CaptureBreak(Break.B010, None, type="a wrapper subclass, beside open sizes")
    mode = tracer.world.sizes.mode

    def dispatch(func: Any, kinds: Any, args: Args, kwargs: Kwargs) -> Any:
        mode.wrappers = None  # what is called from here is a call like others
        try:
            with mode, tracer.seal():
                return _operator(tracer, func, tuple(kinds), args, kwargs)
        except CaptureBreak as cause:
            cause.native = True
            raise
        finally:
            mode.wrappers = dispatch

    outer, mode.wrappers = mode.wrappers, dispatch
    try:
        return real.call(run, args, kwargs)
    finally:
        mode.wrappers = outer


def _operator(tracer: Tracer, func: Any, kinds: Args, args: Args, kwargs: Kwargs) -> Any:
    """One operator of the call: that of a class, or one on plain tensors that torch makes in between."""
    kind = next((kind for kind in kinds if is_wrapper(kind)), None)
    if kind is None:
        return tracer.recorder.call_function(func, tuple(args), dict(kwargs))
    method = attributes.load(tracer, kind, "__torch_dispatch__")
    result = tracer.call(method, (func, kinds, tuple(args), dict(kwargs)), {})
    if result is NotImplemented:
        raise CaptureBreak(Break.B010, None, type=f"a {kind.__name__} that answers NotImplemented")
    return result


def make(outside: Outside, args: Args, kwargs: Kwargs) -> Any:
    """`torch.Tensor._make_wrapper_subclass(kind, size, ...)`."""
    if outside.world.sizes.active or kwargs.get("requires_grad"):
        raise CaptureBreak(
            Break.B010, None, type="a wrapper subclass, with open sizes or in training"
        )
    made = real.call(torch.Tensor._make_wrapper_subclass, args, kwargs)
    outside.world.keep_off_disk(f"a tensor of the class {type(made).__name__}")
    outside.world.plain_from_here()
    outside.world.wrappers.add(id(made))
    outside.world.hold(made)
    return made


def is_made(outside: Outside, kind: Any) -> bool:
    """Whether wrappers of a class are made by Python code."""
    found = lookup(outside, kind, "__new__")
    found = found.__func__ if isinstance(found, staticmethod) else found
    return is_wrapper(kind) and type(found) is types.FunctionType
