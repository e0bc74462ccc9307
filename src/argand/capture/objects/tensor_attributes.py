"""capture.objects.tensor_attributes: attributes of tensors, read and written.

In: a fake and a name. Out: what the fake answers (shape, dtype), a node (views such as `.T`), or what the user's
tensor has. Writes go to the journal.
"""

from __future__ import annotations

import functools
import types
from typing import Any, Final

import torch

from argand.capture.markers import MISSING
from argand.capture.objects.found import is_retained, written
from argand.capture.objects.methods import lookup
from argand.capture.objects.parts import GraphState
from argand.capture.objects.tracer import Tracer
from argand.capture.outside import real
from argand.capture.outside.kinds import is_trusted_module
from argand.capture.outside.state import Outside
from argand.capture.outside.world import World
from argand.runtime.guards import GuardKind
from argand.support.errors import Break, CaptureBreak

# Attributes of a tensor that the fake answers rightly.
_METADATA: Final = frozenset(
    {"shape", "dtype", "device", "ndim", "layout", "requires_grad", "itemsize", "nbytes", "names"}
    | {"is_cuda", "is_cpu", "is_meta", "is_sparse", "is_quantized", "is_mkldnn", "is_nested"}
    | {"is_xpu", "is_mps", "is_hpu", "is_xla", "is_ipu", "is_vulkan", "is_sparse_csr", "is_mtia"}
    | {"is_complex", "output_nr", "__class__", "__module__", "__doc__"}
)


_TENSOR_VIEWS: Final = frozenset({"T", "mT", "H", "mH", "real", "imag", "data"})


_STATE: Final = frozenset(
    {"grad", "_grad", "grad_fn", "is_leaf", "_version", "_base", "_backward_hooks"}
    | {"_post_accumulate_grad_hooks", "retains_grad", "grad_dtype"}
)


def _replaced(outside: Outside, owner: torch.Tensor, name: str) -> Any:
    """What a user has put into the class of tensors under a name; MISSING if torch's own is there."""
    found = lookup(outside, type(owner), name)
    function = found.fget if type(found) is property else found
    ours = type(function) is not types.FunctionType or is_trusted_module(function.__module__)
    return MISSING if ours else found


def _is_overridden(state: GraphState, owner: torch.Tensor, name: str) -> bool:
    """Whether an override of torch functions is asked for an attribute: for those that torch computes."""
    if not state.overrides.apply((owner,), {}):
        return False
    home = next((base for base in type(owner).__mro__ if name in base.__dict__), None)
    if home not in (torch.Tensor, torch._C.TensorBase):
        return False
    return isinstance(home.__dict__[name], property | types.GetSetDescriptorType)


def load(tracer: Tracer, owner: torch.Tensor, name: str) -> Any:
    """`owner.name`."""
    if _is_overridden(tracer, owner, name):
        again = functools.partial(load, tracer, owner, name)
        return tracer.recorder.dispatch(getattr, (owner, name), {}, again)
    if name == "__dict__" and id(owner) in tracer.world.inputs:  # its writes are in no journal
        raise CaptureBreak(Break.B013, None, what="Tensor.__dict__")
    return _own_attribute(tracer, owner, name)


def _own_attribute(tracer: Tracer, owner: torch.Tensor, name: str) -> Any:
    value = (
        is_retained(tracer, owner) or MISSING
        if name == "retains_grad"
        else written(tracer.journal, owner, name)
    )
    if value is not MISSING:
        return value
    replaced = _replaced(tracer, owner, name)
    if type(replaced) is property:
        return tracer.call(replaced.fget, (owner,), {})
    if id(owner) in tracer.world.opaque:
        return _of_opaque(tracer.world, owner, name)
    if name in _METADATA:
        value = real.attribute(owner, name)
        if name in {"shape", "nbytes"} and tracer.world.sizes.active:
            return tracer.world.sizes.wrap(value)
        return value
    if name in _TENSOR_VIEWS:
        return tracer.recorder.call_function(getattr, (owner, name), {})
    known = tracer.world.inputs.get(id(owner))
    found = lookup(tracer, type(owner), name)
    own = name in getattr(owner, "__dict__", ()) or (
        known is not None and name in getattr(known.raw, "__dict__", ())
    )
    if name in _STATE or own:
        if known is None:
            if name in {"_base", "_version"} or (name == "grad_fn" and owner.grad_fn is not None):
                raise CaptureBreak(Break.B013, None, what=f"Tensor.{name}")
            return real.attribute(owner, name)
        return tracer.world.attribute(known.source, name, real.attribute(known.raw, name))
    if found is MISSING and known is not None:
        tracer.world.guard(GuardKind.NO_ATTR, known.source, name)
    if type(found) is property and found.fget is not None:
        return tracer.call(found.fget, (owner,), {})
    return real.attribute(owner, name)


def _of_opaque(world: World, owner: torch.Tensor, name: str) -> Any:
    """What is seen of a tensor without a fake (sparse, quantized): no guard pins it, so each fact is one."""
    source = world.source_of(owner)
    if name not in _METADATA or name.startswith("__") or source is None:
        raise CaptureBreak(Break.B010, None, type=type(owner).__name__)
    return world.attribute(source, name, real.attribute(owner, name))


def store(tracer: Tracer, owner: torch.Tensor, name: str, value: Any) -> None:
    """`owner.name = value`."""
    if name == "requires_grad":
        tracer.call(torch.Tensor.requires_grad_, (owner, value), {})
    elif id(owner) in tracer.world.wrappers and id(owner) not in tracer.world.known:
        real.apply(setattr, owner, name, value)
    elif name == "data" or name == "grad_fn" or not tracer.recorder.knows(owner):
        raise CaptureBreak(Break.B013, None, what=f"an assignment to Tensor.{name}")
    else:
        tracer.journal.write_attribute(owner, name, value)
