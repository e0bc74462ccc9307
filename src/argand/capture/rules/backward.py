"""capture.rules.backward: `loss.backward()` and `torch.autograd.grad` inside of a trace.

In: a call that has gradients computed. Out: nodes that compute them, and `.grad` of leaves written as torch's engine
writes it (decision 0033). Fakes have a history that torch keeps, so who is reached is read off it. Hooks are Python that the
engine calls, and a history that began before the trace leads to where the trace does not see: both are graph breaks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import torch

from argand.capture.markers import Args, Kwargs
from argand.capture.objects import attributes, polyfills
from argand.capture.objects.found import is_retained
from argand.capture.objects.parts import GraphState
from argand.capture.objects.tracer import Tracer
from argand.capture.outside.state import Outside
from argand.capture.record.apart import apart_at
from argand.ops.layout import is_dense
from argand.runtime.levels import depth, unwrapped
from argand.support.errors import Break, CaptureBreak

_HOOKS: Final = ("_backward_hooks", "_post_accumulate_grad_hooks")


def method(tracer: Tracer, args: Args, kwargs: Kwargs) -> None:
    """`Tensor.backward`."""

    def bound(
        self: Any,
        gradient: Any = None,
        retain_graph: Any = None,
        create_graph: Any = False,
        inputs: Any = None,
    ) -> Args:
        return self, gradient, retain_graph, create_graph, inputs

    _backward(tracer, *bound(*args, **kwargs))


def function(tracer: Tracer, args: Args, kwargs: Kwargs) -> None:
    """`torch.autograd.backward`."""

    def bound(
        tensors: Any,
        grad_tensors: Any = None,
        retain_graph: Any = None,
        create_graph: Any = False,
        grad_variables: Any = None,
        inputs: Any = None,
    ) -> Args:
        if grad_variables is not None:
            raise CaptureBreak(Break.B013, None, what="backward(grad_variables=...)")
        return tensors, grad_tensors, retain_graph, create_graph, inputs

    _backward(tracer, *bound(*args, **kwargs))


def _backward(
    tracer: Tracer, tensors: Any, grads: Any, retain: Any, create: Any, inputs: Any
) -> None:
    if depth():
        # inside of a transform of torch.func
        raise CaptureBreak(Break.B004, None, method="Tensor.backward")
    _check_alone(tracer)
    outputs = _sequence(tensors)
    reached = list(leaves_of(outputs))
    if inputs is None:
        leaves = reached
    else:
        leaves = list(_sequence(inputs))
        if not leaves or not all(
            isinstance(leaf, torch.Tensor) and leaf.is_leaf for leaf in leaves
        ):
            raise CaptureBreak(
                Break.B013, None, what="backward(inputs=...) of tensors that are no leaves"
            )
    for leaf in reached:
        _check_leaf(tracer, leaf)
    if inputs is None:
        leaves = leaves + tracer.torch.retained
    if not leaves:
        # torch says what is wrong with it
        raise CaptureBreak(Break.B004, None, method="Tensor.backward")
    create, options = (
        bool(create),
        {"retain_graph": retain, "create_graph": bool(create), "allow_unused": True},
    )
    found = gradients(tracer, (outputs, tuple(leaves), grads), options)
    given = [(leaf, new) for leaf, new in zip(leaves, found, strict=True) if new is not None]
    shared = _shared(tracer, [new for _, new in given])
    rows = [
        (leaf, new, _how(tracer, leaf, new, create or _memory(new) in shared))
        for leaf, new in given
    ]
    tracer.sealed(polyfills.accumulate, (rows, create), {})


def retain(tracer: Tracer, tensor: torch.Tensor) -> None:
    """`Tensor.retain_grad`: of a tensor of the trace `backward()` writes the gradient too."""
    if not tensor.requires_grad or (
        id(tensor) in tracer.world.inputs and not attributes.load(tracer, tensor, "is_leaf")
    ):
        raise CaptureBreak(
            Break.B013, None, what="retain_grad() of a tensor from outside, or without gradients"
        )
    if tensor.is_leaf or is_retained(tracer, tensor):
        return
    tracer.torch.retained.append(tensor)
    tracer.torch.retained_at[id(tensor)] = apart_at(tracer.recorder, tensor, tracer.count)
    tracer.journal.write_attribute(tensor, "grad", None)


def _check_alone(outside: Outside) -> None:
    """Parameters of a group of processes have hooks that torch does not tell of."""
    if torch.distributed.is_available():
        outside.world.ask(torch.distributed.is_initialized)
        if torch.distributed.is_initialized():
            raise CaptureBreak(
                Break.B013, None, what="backward() where processes may share gradients"
            )


def gradients(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """`torch.autograd.grad`."""

    def bound(outputs: Any, inputs: Any, *rest: Any, **named: Any) -> Args:
        return _sequence(outputs), _sequence(inputs)

    outputs, inputs = bound(*args, **kwargs)
    if not all(isinstance(value, torch.Tensor) for value in (*outputs, *inputs)):
        raise CaptureBreak(Break.B013, None, what="gradients of what is no tensor")
    for value in inputs:
        _check_hooks(tracer, value)
    begun = [id(leaf) for leaf in leaves_of(outputs) if not _begins_here(tracer, leaf)]
    wanted = [
        [*map(id, leaves_of((value,)))]
        for value in inputs
        if begun and id(value) in tracer.world.inputs
    ]
    if any(leaves != [leaf] for leaf in begun for leaves in wanted):
        raise CaptureBreak(
            Break.B013, None, what="gradients through the history of a tensor from outside"
        )
    result = tracer.recorder.call_function(torch.autograd.grad, args, kwargs)
    tracer.torch.differentiated = True
    return result


def _sequence(value: Any) -> tuple[Any, ...]:
    if isinstance(value, torch.Tensor):
        return (value,)
    if isinstance(value, list | tuple):
        return tuple(value)
    raise CaptureBreak(Break.B013, None, what=f"gradients of a {type(value).__name__}")


def leaves_of(tensors: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
    """The leaves that gradients of tensors flow to, each once."""
    seen: set[Any] = set()
    waiting = [value.grad_fn if value.grad_fn is not None else value for value in reversed(tensors)]
    while waiting:
        found = waiting.pop()
        key = id(found) if isinstance(found, torch.Tensor) else found
        if key in seen:
            continue
        seen.add(key)
        if isinstance(found, torch.Tensor):
            if found.requires_grad:
                yield found
            continue
        leaf = getattr(found, "variable", None)
        waiting += [after for after, _ in reversed(found.next_functions) if after is not None]
        waiting += [leaf] if isinstance(leaf, torch.Tensor) else []


def _begins_here(tracer: Tracer, leaf: torch.Tensor) -> bool:
    """Whether a leaf of the trace is one of the program's too, which must stay so.

    A tensor from outside with a history has one in the trace as well: its leaf is nobody's (`outside.subclasses.like`).
    """
    if id(leaf) in tracer.world.inputs:
        return bool(attributes.load(tracer, leaf, "is_leaf"))
    return tracer.recorder.knows(leaf)


def _check_leaf(tracer: Tracer, leaf: torch.Tensor) -> None:
    """A leaf whose `.grad` the trace can write."""
    if not _begins_here(tracer, leaf):
        raise CaptureBreak(
            Break.B013, None, what="backward() into the history of a tensor from outside"
        )


def _check_hooks(tracer: Tracer, tensor: torch.Tensor) -> None:
    """Hooks are called by torch's engine."""
    if id(tensor) in tracer.world.inputs and any(
        attributes.load(tracer, tensor, name) for name in _HOOKS
    ):
        raise CaptureBreak(Break.B013, None, what="the gradient of a tensor with hooks")


def _shared(state: GraphState, made: Sequence[torch.Tensor]) -> set[int]:
    """Memory that gradients share with each other, or with other tensors of the trace."""
    mine = {id(new) for new in made}
    places = [_memory(new) for new in made]
    others = {_memory(tensor) for tensor in state.recorder.alive() if id(tensor) not in mine}
    others |= {_memory(known.value) for known in state.world.inputs.values()}
    return {place for place in places if place in others or places.count(place) > 1}


def _memory(tensor: torch.Tensor) -> int:
    return int(unwrapped(tensor).untyped_storage()._cdata)


def _how(state: GraphState, leaf: torch.Tensor, new: torch.Tensor, shared: bool) -> str:
    """Whether a first gradient is kept as it is, copied, or brought into the layout of its leaf."""
    if is_retained(state, leaf):
        return "retained"
    if state.world.sizes.active:  # strides are not known
        return "like"
    dense = is_dense(tuple(leaf.shape), leaf.stride())
    fits = _strides(new) == _strides(leaf) if dense else new.is_contiguous()
    if not fits:
        return "like" if dense else "contiguous"
    return "copy" if shared else "keep"


def _strides(tensor: torch.Tensor) -> list[int]:
    return [step for size, step in zip(tensor.shape, tensor.stride(), strict=True) if size != 1]
