"""capture.rules.transforms: `torch.func` and forward-mode autograd inside of a trace.

In: calls of torch's transforms (`vmap`, `grad`, `jvp`, ...). Out: their results, with nodes in the graph. The Python half of
a transform is interpreted like the user's code; its other half are C functions that open and close a level
of torch's interpreter stack and that wrap tensors for a level. They run for real on the fakes and become
nodes, so whoever runs the graph goes through the same levels, and below them a dispatch mode sees
plain operators (docs/decisions/0020-transforms.md).
"""

from __future__ import annotations

import types
from typing import Any, Final

import torch

from argand.capture.markers import Args, Kwargs
from argand.capture.objects import polyfills
from argand.capture.objects.parts import Caller, GraphState
from argand.capture.objects.tracer import Tracer
from argand.capture.outside import real
from argand.capture.record.recorder import Recorder
from argand.support.errors import Break, CaptureBreak

MODULES: Final = ("torch._functorch.", "torch.func", "torch.autograd.forward_ad")
_NOT_MODULES: Final = ("torch.functional", "torch._functorch.aot", "torch._functorch.compile")
_C: Final = torch._C._functorch
# C functions that open or close a level, or set a switch of the levels: nodes that are never dead.
_LEVELS: Final = frozenset(
    {
        "_vmap_increment_nesting",
        "_vmap_decrement_nesting",
        "_grad_increment_nesting",
        "_grad_decrement_nesting",
    }
    | {"_jvp_increment_nesting", "_jvp_decrement_nesting", "set_inplace_requires_grad_allowed"}
    | {"_enter_dual_level", "_exit_dual_level", "_set_fwd_grad_enabled"}
    | {"_saved_tensors_hooks_disable", "_saved_tensors_hooks_enable"}
)
# Those that make a tensor of another level out of one.
_WRAPPERS: Final = frozenset(
    {
        "_add_batch_dim",
        "_remove_batch_dim",
        "_wrap_for_grad",
        "_unwrap_for_grad",
        "_make_dual",
        "_unpack_dual",
    }
)
# Those that only look.
_QUESTIONS: Final = frozenset(
    {
        "get_inplace_requires_grad_allowed",
        "is_batchedtensor",
        "is_gradtrackingtensor",
        "is_functorch_wrapped_tensor",
    }
    | {
        "maybe_current_level",
        "_is_fwd_grad_enabled",
        "_saved_tensors_hooks_is_enabled",
        "_is_vmap_fallback_enabled",
    }
    | {"_saved_tensors_hooks_get_disabled_error_message", "get_dynamic_layer_stack_depth"}
)
# torch has Python functions of the same names around some of them
_PREDISPATCH: Final = _LEVELS | _WRAPPERS
# Functions that load decompositions of torch once per process.
_RUN: Final = frozenset({"lazy_load_decompositions", "_maybe_load_decompositions"})
# Of modules that are left to Python: contexts that the transforms enter.
INTERPRETED: Final = frozenset({"torch.autograd.graph.disable_saved_tensors_hooks"})
_HOMES: Final = (_C, torch._C, torch._C._autograd, torch._VF)


def _find(name: str) -> Any:
    return next(getattr(home, name) for home in _HOMES if hasattr(home, name))


_BY_FUNCTION: Final[dict[Any, str]] = {
    _find(name): name for name in _LEVELS | _WRAPPERS | _QUESTIONS
}


def is_transform(module: str) -> bool:
    """Whether the functions of a module are the Python half of transforms."""
    return module.startswith(MODULES) and not module.startswith(_NOT_MODULES)


def knows(function: Any) -> bool:
    """Whether a C function belongs to the machinery of transforms."""
    return isinstance(function, types.BuiltinFunctionType) and function in _BY_FUNCTION


def call_native(recorder: Recorder, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """A C function of the machinery."""
    name = _BY_FUNCTION[function]
    if name in _WRAPPERS:
        return recorder.call_function(function, args, kwargs)
    sizes = recorder.world.sizes
    given = sizes.lower((args, kwargs)) if sizes.active else (args, kwargs)
    result = real.call(function, *given)
    if name in _LEVELS:
        recorder = recorder
        node = recorder.effect(function, tuple(map(recorder.argument, args)), result)
        node.kwargs = {key: recorder.argument(value) for key, value in kwargs.items()}
    return result


def call(tracer: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """A Python function of torch's transforms: a rule, or interpreted."""
    module, name = function.__globals__["__name__"], function.__qualname__
    if module == "torch._functorch.predispatch" and name in _PREDISPATCH:
        return _call_level(tracer, name, args, kwargs)
    if name in _RUN:
        return real.call(function, args, kwargs)
    if name == "_autograd_grad":
        return inline(tracer, polyfills.gradients, args, kwargs)
    return inline(tracer, function, args, kwargs)


def _call_level(state: GraphState, name: str, args: Args, kwargs: Kwargs) -> Any:
    """The C function behind a function of torch that only looks for a mode of torch.export."""
    if name == "_add_batch_dim" and args[1] < 0:
        args = (args[0], args[0].ndim + args[1], *args[2:])
    return call_native(state.recorder, _find(name), args, kwargs)


def inline(caller: Caller, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """Interpret a function of torch's transforms; a break inside is a break at the call that got into them.

    Tensors of a level do not outlive a graph, so no frame in which one is open can be left and entered again.
    """
    inside = bool(caller.frames) and is_transform(str(caller.frames[-1].globals.get("__name__")))
    try:
        return caller.inline(function, args, kwargs)
    except CaptureBreak as cause:
        cause.native = cause.native or not inside
        raise


def check_free(tensor: torch.Tensor) -> None:
    """Refuse a tensor of a level, open or closed, where a graph would have to give it back."""
    if (
        _C.is_functorch_wrapped_tensor(tensor)
        or torch._VF._unpack_dual(tensor, level=0)[1] is not None
    ):
        raise CaptureBreak(Break.B012, None, what="a tensor of a transform of torch.func")
