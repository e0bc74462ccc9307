"""capture.interpret.calls: what a call does, by the kind of the callable.

In: a callable and its arguments. Out: the result. Python functions are interpreted, torch functions make
nodes, C functions known to be harmless run for real, and anything else is a graph break.
"""

from __future__ import annotations

import functools
import inspect
import types
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy
import torch

from argand.capture.interpret import caching
from argand.capture.interpret.frame import is_internal
from argand.capture.markers import MISSING, Args, Kwargs, OfTrace
from argand.capture.objects import attention, attributes, optimizer_steps, polyfills
from argand.capture.objects.generators import Callback, Generator
from argand.capture.objects.methods import lookup, unbound
from argand.capture.objects.tracer import Tracer
from argand.capture.outside import pure, real
from argand.capture.outside.arrays import KINDS, ArrayNumber
from argand.capture.outside.kinds import HEAP_TYPE
from argand.capture.outside.state import Outside
from argand.capture.rules import (
    autograd_functions,
    dynamic_layers,
    getters,
    marks,
    messages,
    optimizers,
    overrides,
    signatures,
    torch_functions,
    torch_rules,
    transforms,
    wrappers,
)
from argand.capture.rules.harmless import call_harmless
from argand.capture.rules.making import call_enumeration, call_new
from argand.capture.rules.python_builtins import CLASS_RULES, PASSES_THROUGH, RULES
from argand.capture.sizes.frame_sizes import is_tensors
from argand.customops.operator import Operator
from argand.runtime import skips
from argand.runtime._native import Switch
from argand.runtime.callables import code_of
from argand.runtime.callables import original as compiled_original
from argand.runtime.tracebacks import is_ours
from argand.support.errors import Break, CaptureBreak
from argand.support.later import later

if TYPE_CHECKING:
    from argand.capture.rules import control_flow
else:
    control_flow = later("argand.capture.rules.control_flow")


# Of the modules whose functions are run for real, those whose answers depend on the arguments alone.
_PURE: Final = frozenset(
    {"typing", "re", "enum", "abc", "string", "textwrap", "numbers", "json", "keyword"}
    | {"typing_extensions", "sre_compile"}
)
_INTERPRETED: Final = frozenset(
    {
        *(polyfills.__name__, optimizer_steps.__name__, attention.__name__),
        "argand.capture.objects.dynamic_layers",
        *("argand.capture.rules.arrays.table", "argand.quantization"),
    }
)
_MODULE_CALL: Final = torch.nn.Module.__call__  # before anybody replaced it
_GRAPH_CALL: Final = "GraphModule.recompile.<locals>.call_wrapped"
_LEFT_TO_PYTHON: Final = frozenset({"random", "threading", "multiprocessing", "subprocess"})


def call(tracer: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """`function(*args, **kwargs)`."""
    rule = _BY_TYPE.get(type(function))
    if rule is not None:
        return rule(tracer, function, args, kwargs)
    if isinstance(function, torch.nn.Module):
        found = lookup(tracer, type(function), "__call__")
        if found is _MODULE_CALL or _is_of_graph(tracer, type(function), found):
            return torch_functions.call_module(tracer, function, args, kwargs)
        if not isinstance(function, torch.jit.ScriptModule):
            return call(tracer, found, (function, *args), kwargs)
    if isinstance(function, type):
        return call_class(tracer, function, args, kwargs)
    return call_object(tracer, function, args, kwargs)


def _is_of_graph(outside: Outside, kind: type, found: Any) -> bool:
    """Whether a class's `__call__` is the one that `torch.fx` gives to each graph module: nn.Module's, and words for errors."""
    if getattr(found, "__qualname__", "") != _GRAPH_CALL or not issubclass(
        kind, torch.fx.GraphModule
    ):
        return False
    wrapped = lookup(outside, kind, "_wrapped_call")
    return (
        type(wrapped) is torch.fx.graph_module._WrappedCall
        and wrapped.cls is kind
        and wrapped.cls_call is None
        and lookup(outside, kind.__base__, "__call__") is _MODULE_CALL
    )


def call_object(tracer: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """An instance with `__call__`."""
    if isinstance(function, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        row = dynamic_layers.RULES.get(_name_of_operator(function))
        if row is not None:
            return row(tracer, function, args, kwargs)
        return tracer.recorder.call_function(function, args, kwargs)
    if isinstance(function, torch._ops.HigherOrderOperator):
        return control_flow.call(tracer, function, args, kwargs)
    if isinstance(function, Operator):
        return tracer.recorder.call_function(function.overload, args, kwargs)
    if isinstance(function, torch.jit.ScriptFunction):
        original = getattr(function, "_torchdynamo_inline", None)  # torch keeps it there
        if original is None:
            raise CaptureBreak(Break.B002, None, function=function.name)
        return call(tracer, original, args, kwargs)
    if isinstance(function, Switch):
        if function.region is None:
            raise _disabled(function.__wrapped__, str(function.__wrapped__))
        return call(tracer, compiled_original(function), args, kwargs)  # compiled inside compiled
    found = lookup(tracer, type(function), "__call__")
    if type(found) is types.FunctionType and not isinstance(function, torch.jit.ScriptModule):
        return call_function(tracer, found, (function, *args), kwargs)
    if isinstance(function, functools.partial):
        return call_partial(tracer, function, args, kwargs)
    if found is MISSING:
        return real.call(function, args, kwargs)  # raises TypeError
    return call_harmless(tracer, function, args, kwargs)


def _name_of_operator(function: Any) -> str:
    """``namespace::name``, of an operator and of each of its overloads."""
    if isinstance(function, torch._ops.OpOverload):
        function = function.overloadpacket
    return str(function._qualified_op_name)


def call_function(tracer: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """A Python function: a rule, a node, or interpreted."""
    mark = marks.mark_of(function)
    if mark is not None:
        tracer.world.pin(function)
        return _call_marked(tracer, function, mark, args, kwargs)
    if transforms.is_transform(function.__globals__.get("__name__") or ""):
        return transforms.call(tracer, function, args, kwargs)
    module = function.__module__ or ""
    top = module.partition(".")[0]
    if top == "torch":
        return _call_torch(tracer, function, module, args, kwargs)
    if top == "argand" and not skips.is_layer(function.__code__):
        return _call_own(tracer, function, args, kwargs)
    if top in messages.MODULES:
        return messages.call(tracer, function, args, kwargs)
    if pure.may_run_python(function):
        tracer.world.pin(function)
        of_process = top not in _PURE or function.__name__ == "get_type_hints"
        if of_process and not signatures.asks_signature(tracer, function, args, kwargs):
            tracer.world.keep_off_disk(f"{module}.{function.__qualname__} asks the process")
        return call_harmless(tracer, function, args, kwargs, trusted=True)
    if top == "numpy":
        return tracer.arrays.call(tracer, function, args, kwargs)
    if top in _LEFT_TO_PYTHON:
        raise CaptureBreak(Break.B002, None, function=f"{module}.{function.__qualname__}")
    return tracer.inline(function, args, kwargs)


def _call_torch(tracer: Tracer, function: Any, module: str, args: Args, kwargs: Kwargs) -> Any:
    """A Python function of torch: a wrapper, an answer, a rule, a node, left to Python, or interpreted."""
    optimizer_rule = optimizers.RULES.get(function.__code__.co_qualname)
    if module == "torch.optim.lr_scheduler":
        optimizers.leave_scheduler(tracer, function)
    if optimizer_rule is not None and module.startswith("torch.optim"):
        return optimizer_rule(tracer, function, args, kwargs)
    return _call_torch_function(tracer, function, module, args, kwargs)


def _call_torch_function(
    tracer: Tracer, function: Any, module: str, args: Args, kwargs: Kwargs
) -> Any:
    name = f"{module}.{function.__qualname__}"
    rule, is_node = (
        torch_rules.RULES.get(name) or RULES.get(function),
        torch_functions.is_node(function),
    )
    if name in torch_functions.ANSWERS or rule is not None or is_node:
        # one that is interpreted may be made anew for each call, such as a resume function
        tracer.world.pin(function)
    if name in torch_functions.ANSWERS:
        return torch_functions.ANSWERS[name]
    if name in torch_functions.ASKED or name in torch_functions.SETTLED:
        tracer.world.inlined[id(function)] = function  # its code is asked for at each call
        if name in torch_functions.ASKED:
            tracer.world.ask(function)
        return real.call(function, args, kwargs)
    if rule is not None:
        return rule(tracer, args, kwargs)
    if is_node and torch_functions.is_intact(tracer, function):
        if module != "torch._tensor":
            try:
                return tracer.recorder.call_function(function, args, kwargs)
            except CaptureBreak as cause:
                if cause.row is not Break.B009:  # a function or an object among the arguments
                    raise
        elif args and lookup(tracer, type(args[0]), function.__name__) is function:
            return torch_functions.call_method(tracer, function.__name__, args, kwargs)
    elif module.startswith(torch_functions.LEFT_TO_PYTHON) and name not in transforms.INTERPRETED:
        raise CaptureBreak(Break.B002, None, function=name)
    return tracer.inline(function, args, kwargs)


def _disabled(function: Any, text: str) -> CaptureBreak:
    """The break at a call of a function that is marked; it is mended at the mark, above the function's first line."""
    cause, code = CaptureBreak(Break.B006, None, function=text), code_of(function)
    if code is not None and is_ours(code.co_filename):  # the mark is a function around the user's
        code = code_of(inspect.unwrap(function))
    if code is not None:
        cause.edit = f'File "{code.co_filename}", line {code.co_firstlineno}, in {code.co_qualname}'
    return cause


def _call_marked(
    tracer: Tracer, function: Any, mark: tuple[str, str], args: Args, kwargs: Kwargs
) -> Any:
    kind, reason = mark
    name = getattr(function, "__qualname__", str(function))
    if kind == "disable":
        text = f"{name} ({reason})" if reason else name
        raise _disabled(function, text)
    if kind == "compiled":  # by torch.compile: the outer compiler compiles it, as it is there
        return call(tracer, function._torchdynamo_orig_callable, args, kwargs)
    if kind == "allow":
        result = tracer.recorder.call_function(function, args, kwargs)
        if tracer.world.sizes.active and not is_tensors(result):
            tracer.world.sizes.fix_arguments((args, kwargs), f"{name} gives more than tensors")
        return result
    tracer.world.keep_off_disk(f"{name} runs while tracing (assume_constant_result)")
    return real.call(function, args, kwargs)


def _call_own(tracer: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    if function is marks.graph_break:
        raise CaptureBreak(Break.B005)
    if function is marks.is_compiling:
        return True
    if function.__module__ in _INTERPRETED:
        return tracer.inline(function, args, kwargs)
    if args and type(args[0]) is ArrayNumber:
        return tracer.arrays.call_method(tracer, function.__name__, args[0], args[1:], kwargs)
    if args and issubclass(type(args[0]), OfTrace):
        return real.call(function, args, kwargs)
    raise CaptureBreak(Break.B002, None, function=function.__qualname__)


def call_bound(tracer: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """A bound method of Python."""
    inner, owner = function.__func__, function.__self__
    if inner is autograd_functions.APPLY:
        return autograd_functions.call(
            tracer, owner if isinstance(owner, type) else type(owner), args, kwargs
        )
    if type(inner) is types.FunctionType:
        return call_function(tracer, inner, (owner, *args), kwargs)
    return call(tracer, inner, (owner, *args), kwargs)


def call_builtin(tracer: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:  # noqa: C901, a row per kind
    """A C function, or a C method bound to its object."""
    rule = RULES.get(function) if not isinstance(function, types.MethodWrapperType) else None
    if rule is not None:
        return _ruled(tracer, function, rule, args, kwargs)
    owner = getattr(function, "__self__", None)
    if isinstance(function, types.MethodWrapperType) and not isinstance(owner, torch.Tensor):
        name = overrides.getter(function)
        if name is not None and args and isinstance(args[0], torch.Tensor):
            return attributes.load(tracer, args[0], name)
        return call_descriptor(tracer, unbound(function), (owner, *args), kwargs)
    if isinstance(owner, torch.Tensor):
        return torch_functions.call_method(tracer, function.__name__, (owner, *args), kwargs)
    numpy_rule = _numpy_rule(tracer, function, owner, args)
    if numpy_rule is not None:
        return numpy_rule(tracer, function, args, kwargs)
    if function in _MADE:
        return _MADE[function](tracer, args, kwargs)
    if function.__name__ == "__new__" and isinstance(owner, type):
        return call_new(tracer, function, args, kwargs)
    if transforms.knows(function):
        return transforms.call_native(tracer.recorder, function, args, kwargs)
    if torch_functions.is_torch(function):
        return torch_functions.call_native(tracer, function, args, kwargs)
    if owner is not None and type(owner) is not types.ModuleType:
        found = unbound(function)
        bound_rule = RULES.get(found) if found is not MISSING else None
        if bound_rule is not None:
            return _ruled(tracer, found, bound_rule, (owner, *args), kwargs)
    substitute = marks.substitute_of(function)
    if substitute is not None:
        return call_function(tracer, substitute, args, kwargs)
    return call_harmless(tracer, function, args, kwargs)


def _numpy_rule(tracer: Tracer, function: Any, owner: Any, args: Args) -> Any:
    """What calls a C function of numpy's, a method of an array, or what makes a tensor of one; None for all others."""
    if type(owner) is numpy.ndarray:
        return lambda tracer, function, args, kwargs: tracer.arrays.call_method(
            tracer, function.__name__, owner, args, kwargs
        )
    if (
        isinstance(owner, types.ModuleType | None)
        and getattr(function, "__module__", None) == "numpy"
    ):
        return tracer.arrays.call
    return (
        tracer.arrays.to_tensor
        if args and type(args[0]) in KINDS and function in _TO_TENSOR
        else None
    )


def _ruled(tracer: Tracer, function: Any, rule: Any, args: Args, kwargs: Kwargs) -> Any:
    """A rule may work on what an inner frame gave, so a break in there cannot resume, but for a few."""
    if function in PASSES_THROUGH or (function is getattr and len(args) == 2):
        return rule(tracer, args, kwargs)
    with tracer.seal():
        return rule(tracer, args, kwargs)


def call_descriptor(tracer: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """An unbound C method: `torch.Tensor.add(x, y)`, `dict.get(d, k)`, `object.__setattr__`."""
    rule = RULES.get(function)
    if rule is not None:
        return _ruled(tracer, function, rule, args, kwargs)
    if args and type(args[0]) in KINDS:
        return tracer.arrays.call_method(tracer, function.__name__, args[0], args[1:], kwargs)
    if args and isinstance(args[0], torch.Tensor):
        return torch_functions.call_method(tracer, function.__name__, args, kwargs)
    name = function.__name__
    if args and name == "__setattr__":
        attributes.store_plain(tracer, args[0], args[1], args[2])
        return None
    if args and name == "__getattribute__" and not isinstance(args[0], type):
        return attributes.generic(tracer, args[0], type(args[0]), args[1], hook=False)
    if args and name == "__delattr__":
        attributes.delete_plain(tracer, args[0], args[1])
        return None
    if function is object.__init__:
        return None
    if function is type.__call__:
        return call_class(tracer, args[0], args[1:], kwargs, plain=True)
    return call_harmless(tracer, function, args, kwargs)


def _refusing(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The same; a call that the C function refuses for its arguments is left to Python, which says why."""

    def checked(tracer: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
        try:
            return rule(tracer, function, args, kwargs)
        except (IndexError, TypeError, ValueError) as error:
            if not is_internal(error) or _accepts(function, args, kwargs):
                raise
        raise CaptureBreak(
            Break.B013, None, what=f"{function.__name__} with arguments that do not fit"
        )

    return checked


def _accepts(function: Any, args: Args, kwargs: Kwargs) -> bool:
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError):  # not these, or it does not say which
        return False
    return True


def call_class(tracer: Tracer, kind: Any, args: Args, kwargs: Kwargs, plain: bool = False) -> Any:
    """Make an instance; `plain`: as `type.__call__` does, whatever the metaclass says."""
    rule = CLASS_RULES.get(kind)
    if rule is not None:
        return _ruled(tracer, kind, rule, args, kwargs)
    if issubclass(kind, torch.Tensor) and not (
        overrides.is_made(tracer, kind) or wrappers.is_made(tracer, kind)
    ):
        raise CaptureBreak(Break.B013, None, what=f"making a {kind.__name__}")
    if lookup(tracer, kind, "__del__") is not MISSING:
        raise CaptureBreak(Break.B013, None, what=f"{kind.__name__}, which has a finalizer")
    if kind in pure.MADE:
        return real.call(kind, args, kwargs)
    meta = lookup(tracer, type(kind), "__call__")
    if type(meta) is types.FunctionType and not plain:
        if meta.__module__ == "enum":
            return call_enumeration(tracer.world, kind, args, kwargs)
        return call_function(tracer, meta, (kind, *args), kwargs)
    make, start = lookup(tracer, kind, "__new__"), lookup(tracer, kind, "__init__")
    make = make.__func__ if isinstance(make, staticmethod) else make
    python_start = type(start) is types.FunctionType
    if make is object.__new__ and start is object.__init__ and not args and not kwargs:
        return real.call(object.__new__, (kind,), {})
    if python_start and make is object.__new__:
        return tracer.call(polyfills.instantiate_plain, (kind, args, kwargs), {})
    if python_start or type(make) is types.FunctionType:
        return tracer.call(polyfills.instantiate, (kind, args, kwargs), {})
    if str(kind.__module__).startswith("torch._C"):
        # most are guards: while one lives, torch dispatches in another way, also in this trace
        raise CaptureBreak(Break.B002, None, function=kind.__name__)
    if str(kind.__module__).startswith("torch"):  # it may be no text
        return torch_functions.call_native(tracer, kind, args, kwargs)
    return call_harmless(tracer, kind, args, kwargs)


def call_partial(tracer: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """functools.partial."""
    merged = {**function.keywords, **kwargs}
    return call(tracer, function.func, (*function.args, *args), merged)


def call_reference(outside: Outside, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """weakref.ref: what it leads to, if the trace has met it."""
    target = function()
    known = outside.world.known.get(id(target))
    if known is not None or target is None:
        return None if known is None else known.value
    if isinstance(target, torch.Tensor) or type(target).__flags__ & HEAP_TYPE == 0:
        raise CaptureBreak(
            Break.B011, None, type=f"what a weak reference leads to ({type(target)})"
        )
    outside.world.keep_off_disk("what a weak reference leads to")
    # the reference is guarded: it leads to the same one or to none
    return outside.world.object(target)


_TO_TENSOR: Final = frozenset({torch.from_numpy, torch.as_tensor, torch.tensor, torch.asarray})
_MADE: Final[dict[Any, Any]] = {
    torch.Tensor._make_subclass: overrides.make,
    torch.Tensor._make_wrapper_subclass: wrappers.make,
}
_BY_TYPE: Final[dict[type, Any]] = {
    types.FunctionType: call_function,
    types.MethodType: call_bound,
    types.BuiltinFunctionType: _refusing(call_builtin),
    types.MethodWrapperType: _refusing(call_builtin),
    types.MethodDescriptorType: _refusing(call_descriptor),
    types.WrapperDescriptorType: _refusing(call_descriptor),
    types.ClassMethodDescriptorType: call_harmless,
    type: call_class,
    functools.partial: call_partial,
    functools._lru_cache_wrapper: caching.call_cached,
    **dict.fromkeys(getters.KINDS, getters.call),
    weakref.ref: call_reference,
    **dict.fromkeys(
        (numpy.ufunc, type(numpy.sum)),
        lambda tracer, function, args, kwargs: tracer.arrays.call(tracer, function, args, kwargs),
    ),
    **dict.fromkeys(
        (Callback, Generator),
        lambda tracer, function, args, kwargs: real.call(function, args, kwargs),
    ),
}
