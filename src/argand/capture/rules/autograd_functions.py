"""capture.rules.autograd_functions: `torch.autograd.Function.apply` is one node of the graph.

In: the class and the arguments of the call. Out: the node. Before, `forward` and `backward` are interpreted once
for the guards on what they read: what they compute is dropped. One that changes anything outside, or that
cannot be interpreted, is a graph break.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import torch

from argand.capture.objects import attributes, polyfills
from argand.capture.objects.tracer import Tracer
from argand.support.errors import Break, CaptureBreak

APPLY: Final = torch.autograd.Function.__dict__["apply"].__func__


@functools.lru_cache(maxsize=256)
def _apply_of(kind: Any) -> Any:
    """`kind.apply` under a name that generated graph code can print."""

    def apply(*args: Any) -> Any:
        return kind.apply(*args)

    apply.__name__ = apply.__qualname__ = f"{kind.__name__}_apply"
    apply.__module__ = "autograd_functions"
    return apply


def call(tracer: Tracer, kind: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`kind.apply(*args)`."""
    if not _is_recorded(args) and not kwargs and not all(_fits(tracer, value) for value in args):
        return _without_gradients(tracer, kind, args)
    recorder, before = tracer.recorder, tracer.written()
    kept, nodes = (set(recorder.keep), recorder.calls, recorder.mutated_inputs), dict(recorder.nodes)
    _rehearse(tracer, kind, args)
    # So that the nodes of the rehearsal are dead; a tensor that it changed in place is what it was before.
    recorder.keep, recorder.calls, recorder.mutated_inputs = kept
    recorder.nodes.update(nodes)
    if tracer.written() != before:
        broken = CaptureBreak(Break.B013, None, what=f"{kind.__name__}, which changes things outside")
        broken.native = True
        raise broken
    return recorder.call_function(_apply_of(kind), args, kwargs)


def _is_recorded(args: tuple[Any, ...]) -> bool:
    return torch.is_grad_enabled() and any(isinstance(value, torch.Tensor) and value.requires_grad for value in args)


def _fits(tracer: Tracer, value: Any) -> bool:
    """Whether a value can be an argument of a node."""
    try:
        tracer.recorder.argument(value)
    except CaptureBreak as cause:
        if cause.row is Break.B009:  # a module, a function, another object
            return False
        raise
    return True


def _without_gradients(tracer: Tracer, kind: Any, args: tuple[Any, ...]) -> Any:
    """`apply` of which no gradient is recorded is `forward`, with gradients off; modules among the arguments are read there."""
    context: Any = torch.autograd.function.FunctionCtx()
    context.needs_input_grad, context.to_save = (False,) * len(args), ()
    combined = kind.setup_context is torch.autograd.Function.setup_context
    forward = attributes.load(tracer, kind, "forward")
    result = tracer.sealed(polyfills.without_gradients, (forward, (context, *args) if combined else args), {})
    if not combined:
        tracer.sealed(attributes.load(tracer, kind, "setup_context"), (context, args, result), {})
    results = result if isinstance(result, tuple) else (result,)
    if any(value is given for value in results for given in args if isinstance(given, torch.Tensor)):
        broken = CaptureBreak(Break.B013, None, what=f"{kind.__name__}, which gives back what it was given")
        broken.native = True  # eager gives a view of it
        raise broken
    return result


def _rehearse(tracer: Tracer, kind: Any, args: tuple[Any, ...]) -> None:
    context: Any = torch.autograd.function.FunctionCtx()
    differentiable = [isinstance(value, torch.Tensor) and value.requires_grad for value in args]
    context.needs_input_grad, context.to_save = tuple(differentiable), ()
    recorded, base = torch.is_grad_enabled() and any(differentiable), torch.autograd.Function
    with torch.no_grad():
        if kind.setup_context is base.setup_context:
            result = tracer.sealed(attributes.load(tracer, kind, "forward"), (context, *args), {})
        else:
            result = tracer.sealed(attributes.load(tracer, kind, "forward"), args, {})
            tracer.sealed(attributes.load(tracer, kind, "setup_context"), (context, args, result), {})
    if not recorded:
        return
    context.saved_tensors = context.to_save
    results = result if isinstance(result, tuple) else (result,)
    like = tracer.recorder.call_function
    grads = [like(torch.empty_like, (value,), {}) if isinstance(value, torch.Tensor) else None for value in results]
    backward = "backward" if kind.vjp is base.vjp else "vjp"
    tracer.sealed(attributes.load(tracer, kind, backward), (context, *grads), {})
