"""capture.rules.torch_functions: how calls of torch enter the graph.

In: a torch function and its arguments. Out: its result on fakes, with a node where tensors are made or
changed. Names are rows of tables; what is in no table is decided by what the call does on fakes.
"""

from __future__ import annotations

import functools
import types
from typing import Any, Final

import torch
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils.rnn import PackedSequence

from argand.capture.attempts import ModuleMade
from argand.capture.generated.torch_state import SETTERS
from argand.capture.objects import attributes, polyfills
from argand.capture.objects.parts import Caller, GraphState
from argand.capture.objects.tracer import Tracer
from argand.capture.outside import pure, real
from argand.capture.outside.kinds import is_constant, is_trusted_module
from argand.capture.outside.state import Outside
from argand.capture.outside.world import World
from argand.capture.record import items
from argand.capture.record.recorder import Recorder
from argand.capture.rules import backward, overrides
from argand.runtime.guards import GuardKind
from argand.runtime.sources import DictAttr, Source
from argand.sizes.refusals import Stop
from argand.support.errors import Break, CaptureBreak

# Python functions of these modules are pure functions of tensors: one node each.
_NODE_MODULES: Final = frozenset(
    {"torch.nn.functional", "torch.functional", "torch._jit_internal", "torch._tensor"}
    | {"torch._lowrank", "torch._linalg_utils", "torch.special", "torch.linalg", "torch.fft"}
)
ANSWERS: Final[dict[str, Any]] = {
    "torch.compiler.is_compiling": True,
    "torch.compiler.is_dynamo_compiling": True,
    "torch.compiler.is_exporting": False,
    "torch._dynamo.external_utils.is_compiling": True,
    "torch._dynamo.is_compiling": True,
    "torch._utils_internal.is_compiling": True,
    "torch._jit_internal.is_scripting": False,
    "torch.jit._trace.is_tracing": False,
    "torch.onnx.is_in_onnx_export": False,
    "torch.onnx._internal.torchscript_exporter._globals.is_in_onnx_export": False,
    "torch.overrides.has_torch_function": False,
}
# Questions that Python functions of torch answer: the same for the life of a process, or asked for at each call.
SETTLED: Final = frozenset(
    {"torch.cuda.is_available", "torch.distributed.is_available"}
    | {
        f"torch.cpu.{name}"
        for name in vars(torch.cpu)
        if name.startswith("_is_") and name.endswith("_supported")
    }
)
ASKED: Final = frozenset(
    {"torch.distributed.distributed_c10d.is_initialized", "torch.fx._symbolic_trace.is_fx_tracing"}
    | {"torch.fx._symbolic_trace.is_fx_symbolic_tracing"}
)
_METHOD_BREAKS: Final = frozenset(
    {"register_hook", "numpy", "data_ptr", "storage", "untyped_storage", "__array__"}
    | {"share_memory_", "register_post_accumulate_grad_hook", "__deepcopy__"}
    | {"__reduce_ex__", "__repr__", "__format__", "__str__", "_typed_storage", "set_", "tolist"}
    | {"__int__", "__float__", "__bool__", "__index__", "__complex__", "__dlpack__", "__hash__"}
    | {"const_data_ptr"}
)
# What these say of a tensor from outside is not what they say of its fake.
_OF_THE_USERS: Final = frozenset({"is_inference", "is_set_to", "is_shared", "_is_view"})
# Questions about state that is guarded in any case (`runtime.state`).
_GUARDED: Final = frozenset(
    {
        "is_grad_enabled",
        "is_inference_mode_enabled",
        "_is_any_autocast_enabled",
        "is_autocast_enabled",
    }
    | {
        "is_autocast_cpu_enabled",
        "_get_tracing_state",
        "_is_torch_function_enabled",
        "get_default_dtype",
    }
    | {"_get_deterministic_algorithms", "_len_torch_function_stack", "_len_torch_dispatch_stack"}
)
# Modules of operators; those of `torch` itself are bound to no module.
_OPERATORS: Final = frozenset(
    {
        "torch._C._nn",
        "torch._C._fft",
        "torch._C._linalg",
        "torch._C._special",
        "torch._C._sparse",
        "torch._C._nested",
    }
)
# Functions of torch._C that look at their arguments only, and beginnings of those that ask and change nothing.
_PURE: Final = frozenset({"_group_tensors_by_device_and_dtype", "_infer_size", "_broadcast_shapes"})
_QUESTIONS: Final = (
    "is_",
    "_is_",
    "get_",
    "_get_",
    "_has_",
    "_len_",
    "_dispatch_has_",
    "_dispatch_is_",
)
_RANDOM_STATE: Final = frozenset(
    {"manual_seed", "seed", "get_rng_state", "set_rng_state", "initial_seed", "fork_rng"}
)
_DROPPED: Final = frozenset({"_log_api_usage_once", "_log_api_usage_metadata", "set_printoptions"})
LEFT_TO_PYTHON: Final = (
    "torch._functorch.aot", "torch._functorch.compile", "torch._dynamo", "torch._inductor",
    "torch.distributed", "torch.multiprocessing", "torch.profiler", "torch.autograd.graph",
    "torch.utils.data", "torch.utils.hooks", "torch.serialization", "torch.jit", "torch.random", "torch.fx", "torch.cuda",
    "torch.export",
)  # fmt: skip
# Operators with a factor that eager reads out of a tensor: computed by the graph instead.
_SCALED: Final[dict[str, str]] = {
    **dict.fromkeys(("add", "add_", "sub", "sub_"), "alpha"),
    **dict.fromkeys(("addcmul", "addcmul_", "addcdiv", "addcdiv_"), "value"),
}
_HOOK_TABLES: Final = (
    "_backward_hooks",
    "_backward_pre_hooks",
    "_forward_hooks",
    "_forward_pre_hooks",
)
_GLOBAL_HOOKS: Final = tuple(f"_global{table}" for table in _HOOK_TABLES)


@functools.cache
def _node_functions() -> frozenset[int]:
    """Python functions reachable as torch.f or torch.nn.functional.f that make one node."""
    found = set()
    for namespace in (torch, torch.nn.functional, torch.functional):
        for value in vars(namespace).values():
            if isinstance(value, types.FunctionType) and value.__module__ in _NODE_MODULES:
                found.add(id(value))
    return frozenset(found)


def is_torch(function: Any) -> bool:
    """Whether a native callable belongs to torch."""
    module = getattr(function, "__module__", None)
    if module is None:
        owner = getattr(function, "__self__", None)
        if isinstance(owner, types.ModuleType):
            module = owner.__name__
        else:
            module = getattr(owner if isinstance(owner, type) else type(owner), "__module__", "")
    return str(module).startswith("torch")


def is_node(function: types.FunctionType) -> bool:
    """Whether a Python function of torch becomes one node."""
    return id(function) in _node_functions() or function.__module__ in _NODE_MODULES


def is_intact(state: GraphState, function: types.FunctionType) -> bool:
    """Whether a function of torch finds torch's own functions under its names, which must stay so.

    It becomes a node, which is compiled by its name, so one that calls what somebody has patched is interpreted instead.
    """
    answer = state.torch.intact.get(id(function))
    if answer is None:
        state.torch.intact[id(function)] = True  # it may call itself
        state.world.inlined.setdefault(id(function), function)
        tables = (function.__globals__, vars(torch), vars(torch._C._nn))
        names = [
            (table, name)
            for table in tables
            for name in function.__code__.co_names
            if name in table
        ]
        found = [_is_own(state, *row) for row in names]  # each is noted
        answer = state.torch.intact[id(function)] = all(found)
    return answer


def _is_own(state: GraphState, table: dict[str, Any], name: str) -> bool:
    found = table[name]
    if not callable(found) or isinstance(found, type):
        return True
    state.world.note(table, name, found)
    if not isinstance(found, types.FunctionType):
        return not type(found).__module__.startswith("unittest.")
    return is_trusted_module(found.__module__) and (
        found.__module__ not in _NODE_MODULES or is_intact(state, found)
    )


def call_native(
    tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A C function or class of torch: an operator, a question, a setter of `torch_state`, or left to Python."""
    name = getattr(function, "__name__", "")
    if name in SETTERS and function.__self__ is torch._C:
        result = real.call(function, args, kwargs)
        tracer.recorder.effect(function, args, result)
        return result
    if name in _DROPPED:
        return None
    if isinstance(kwargs.get(_SCALED.get(name, "")), torch.Tensor) and args:
        return _scaled(tracer, name, args, kwargs)
    if name == "_is_torch_function_enabled" and tracer.overrides.off:
        return False
    if name.startswith("_foreach_addc") and any(
        isinstance(item, torch.Tensor) for item in _factors(args)
    ):
        args = (*args[:3], tracer.call(torch.stack, (list(args[3]),), {}), *args[4:])
    if name in _RANDOM_STATE or _breaks(tracer, name, args) or not _is_quiet(function, name):
        raise CaptureBreak(Break.B002, None, function=f"torch.{name}")
    result = tracer.recorder.call_function(function, args, kwargs)
    if (
        name.startswith(_QUESTIONS)
        and name not in _GUARDED
        and not kwargs
        and is_constant((args, result))
    ):
        tracer.world.ask(function, args)
    return result


def _breaks(outside: Outside, name: str, args: tuple[Any, ...]) -> bool:
    """Whether a fake cannot answer for the user's tensor."""
    inputs = outside.world.inputs
    return name in _METHOD_BREAKS or (
        name in _OF_THE_USERS and any(id(value) in inputs for value in args)
    )


def _is_quiet(function: Any, name: str) -> bool:
    """Whether a C function of torch changes nothing but tensors."""
    if isinstance(function, type):
        return pure.is_own(function)
    owner = getattr(function, "__self__", None)
    if owner is None or getattr(function, "__module__", None) in _OPERATORS:
        return True
    # those of pybind11 have another owner
    if owner is torch._C or getattr(function, "__module__", None) == "torch._C":
        return name in _PURE or name.startswith(_QUESTIONS)
    return pure.may_run(function, "")


def enter_region(state: GraphState, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`record_function.__enter__`: a graph has no regions. At a break inside, it is entered for real."""
    state.torch.regions.append(args[0])
    return args[0]


def leave_region(state: GraphState, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`record_function.__exit__`."""
    if not any(manager is args[0] for manager in state.torch.regions):
        raise CaptureBreak(
            Break.B013, None, what="the end of a record_function that began before this graph"
        )
    state.torch.regions = [manager for manager in state.torch.regions if manager is not args[0]]


def call_method(tracer: Tracer, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A method of a tensor."""
    if name == "tolist" and tracer.world.sizes.reads_data:
        return tracer.call(polyfills.tolist, args, kwargs)
    if name == "backward":
        return backward.method(tracer, args, kwargs)
    if name == "retain_grad":
        return backward.retain(tracer, *args)
    if name == "numpy":
        return tracer.arrays.of_tensor(tracer, args[0], args[1:], kwargs)
    if name == "__hash__":
        return real.call(hash, args, kwargs)
    if _breaks(tracer, name, args):
        raise CaptureBreak(Break.B004, None, method=f"Tensor.{name}")
    if id(args[0]) in tracer.world.opaque:
        raise CaptureBreak(Break.B010, None, type=type(args[0]).__name__)
    if isinstance(kwargs.get(_SCALED.get(name, "")), torch.Tensor):
        return _scaled(tracer, name, args, kwargs)
    if name == "as_subclass":
        return overrides.as_subclass(tracer.recorder, args[0], *args[1:], **kwargs)
    if name == "item":
        return items.item(tracer.recorder, args[0])
    if name == "requires_grad_":
        return _require_grad(tracer.recorder, *args, **kwargs)
    return (
        _detach(tracer.recorder, args[0])
        if name == "detach_"
        else tracer.recorder.call_method(name, args, kwargs)
    )


def _factors(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The numbers of a foreach operator with factors, if they are a list."""
    return tuple(args[3]) if len(args) > 3 and isinstance(args[3], list | tuple) else ()


def _scaled(caller: Caller, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`x.add_(y, alpha=factor)` and its kin with a tensor for the factor."""
    rest = {key: value for key, value in kwargs.items() if key != _SCALED[name]}
    filled = getattr(polyfills, "scaled_" + name.rstrip("_"))
    return caller.call(filled, (name, *args), {"factor": kwargs[_SCALED[name]], **rest})


def _detach(recorder: Recorder, tensor: torch.Tensor) -> Any:
    """`detach_`: whoever holds the tensor sees that its history is gone, which no graph can do."""
    if tensor.requires_grad or tensor._is_view():
        raise CaptureBreak(Break.B013, None, what="detach_()")
    return recorder.call_method("detach_", (tensor,), {})


def _require_grad(
    recorder: Recorder, tensor: torch.Tensor, requires_grad: bool = True
) -> torch.Tensor:
    """`requires_grad_`: an argument becomes another leaf for whoever holds it, which no graph can do."""
    if tensor.requires_grad == requires_grad:
        return tensor
    if id(tensor) in recorder.world.inputs:
        raise CaptureBreak(Break.B013, None, what="requires_grad_() of a tensor from outside")
    if tensor._is_view():
        raise CaptureBreak(Break.B013, None, what="requires_grad_() of a view")
    result: torch.Tensor = recorder.call_method("requires_grad_", (tensor, requires_grad), {})
    return result


def call_module(
    tracer: Tracer, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """`module(...)`: straight to `forward` when there are no hooks, as torch does."""
    if isinstance(module, torch.nn.RNNBase) and args and isinstance(args[0], PackedSequence):
        # at each step of it
        raise CaptureBreak(Break.B008, None, op=f"{type(module).__name__} of a packed sequence")
    if "_initialize_hook" in module.__dict__:
        journal = tracer.journal
        changed = journal.attributes or journal.cells or journal.globals or journal.deferred
        if tracer.is_outside(module) and not changed and _initialize(module, args, kwargs):
            raise Stop(ModuleMade(type(module).__name__))
        raise CaptureBreak(
            Break.B013,
            None,
            what=f"the first call of a {type(module).__name__}, which makes its parameters",
        )
    if _is_hook_free(tracer, module):
        return tracer.call(attributes.load(tracer, module, "forward"), args, kwargs)
    return tracer.call(torch.nn.Module._call_impl, (module, *args), kwargs)


def _initialize(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Let a lazy module make its parameters, which it does by the shapes of its inputs, before it is traced."""
    from_torch = type(module).initialize_parameters.__module__.startswith("torch.nn.modules")
    fixed = all(
        isinstance(n, int)
        for x in (*args, *kwargs.values())
        if isinstance(x, torch.Tensor)
        for n in x.shape
    )
    if (
        not from_torch
        or not fixed
        or type(module)._infer_parameters is not LazyModuleMixin._infer_parameters
    ):
        return False
    with torch._C._DisableTorchDispatch():  # real tensors, not fakes
        real.call(module._infer_parameters, (module, args, kwargs), {})
    return True


def _is_hook_free(state: GraphState, module: torch.nn.Module) -> bool:
    world, holder = state.world, torch.nn.modules.module
    if state.torch.global_hooks is None:
        state.torch.global_hooks = not _are_empty(
            state.world, vars(holder), world.const(holder), _GLOBAL_HOOKS
        )
    known = world.known.get(id(module))
    free = _are_empty(
        state.world, module.__dict__, None if known is None else known.source, _HOOK_TABLES
    )
    return (
        free and not state.torch.global_hooks and module.__dict__.get("_compiled_call_impl") is None
    )


def _are_empty(
    world: World, values: dict[str, Any], source: Source | None, names: tuple[str, ...]
) -> bool:
    """Whether tables of hooks are empty, as the trace sees them; the lengths of those outside are guarded."""
    tables = {name: values[name] for name in names if values.get(name) is not None}
    for name, table in tables.items():
        if source is not None:
            world.guard(GuardKind.LENGTH, world.child(DictAttr, source, name), len(table))
    seen = (world.known.get(id(table)) for table in tables.values())
    return not any(
        table if known is None else known.value
        for table, known in zip(tables.values(), seen, strict=True)
    )
