"""capture.rules.python_builtins: builtins that look into objects or call back, one rule each.

In: arguments of a builtin. Out: its result. C functions without a rule run for real when they are known to be
harmless and get no tensor and no outside object they would look into unnoticed.
"""

from __future__ import annotations

import copy
import functools
import inspect
import operator
import sys
import types
import warnings
import weakref
from collections.abc import Callable
from typing import Any, Final

import torch

from argand.bytecode import LOCALS_ARE_NEW, is_resume, variables
from argand.capture.markers import END, MISSING, Args, Kwargs
from argand.capture.objects import attributes, callbacks, holders, loaded, operate, polyfills
from argand.capture.objects.conversions import as_dict, formatted
from argand.capture.objects.generators import Inference
from argand.capture.objects.methods import PLAIN, lookup, python_method
from argand.capture.objects.parts import Caller
from argand.capture.objects.tracer import FRAME_FUNCTION, Tracer
from argand.capture.outside import real
from argand.capture.outside.arrays import KINDS
from argand.capture.outside.kinds import is_numpy_number
from argand.capture.outside.known import LoadedModules
from argand.capture.outside.state import Outside
from argand.capture.record import items
from argand.capture.record.pending import Pending
from argand.capture.rules import copying, messages, numbers, overrides, references, torch_functions
from argand.capture.rules.classes import (
    build_class,
    find_super,
    is_instance,
    is_set,
    is_subclass,
    make_type,
    subclasses,
)
from argand.capture.rules.harmless import call_harmless, items_of
from argand.capture.sizes.floats import Float
from argand.capture.sizes.values import OpenSize
from argand.runtime.sources import Attr
from argand.support.errors import Break, CaptureBreak

_POOLING: Final = ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")

# -- rules -------------------------------------------------------------------------------------


def polyfilled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The rule that interprets a function of `polyfills` instead."""
    return lambda tracer, args, kwargs: tracer.call(function, args, kwargs)


def _breaks(row: Break, **details: str) -> Callable[..., Any]:
    def rule(outside: Outside, args: Args, kwargs: Kwargs) -> Any:
        raise CaptureBreak(row, None, **details)

    return rule


def _operator(row: tuple[Any, str, str, str]) -> Callable[..., Any]:
    return lambda tracer, args, kwargs: operate.binary(tracer, row, *args)


def _iter(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 2:
        return call_harmless(tracer, iter, args, kwargs)
    return operate.get_iter(tracer, *args)


def _next(caller: Caller, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 1:
        return operate.advance_or_stop(caller, args[0])
    item = operate.advance(caller, args[0])
    return args[1] if item is END else item


def _sum(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
    items = list(operate.iterate(tracer, args[0]))
    start = args[1] if len(args) > 1 else kwargs.get("start", 0)
    if all(type(item) in PLAIN for item in (*items, start)):
        return real.apply(sum, items, start)
    return tracer.call(polyfills.add_up, (items, start), {})


def _extreme(
    function: Callable[..., Any], of_objects: Callable[..., Any], of_tensors: Callable[..., Any]
) -> Callable[..., Any]:
    """`min` and `max`: of tensors a node, of objects that compare themselves a loop."""

    def rule(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
        if not args:
            return real.call(function, args, kwargs)  # raises
        items = list(operate.iterate(tracer, args[0])) if len(args) == 1 else list(args)
        if len(items) == 2 and not kwargs and _are_alike(*items):
            return tracer.call(of_tensors, tuple(items), {})
        if callbacks.runs_python(tracer, items, callbacks.ORDER):
            default = [kwargs["default"]] if "default" in kwargs else []
            return tracer.call(of_objects, (items, kwargs.get("key"), default), {})
        return call_harmless(tracer, function, (items,), kwargs)

    return rule


def _are_alike(a: Any, b: Any) -> bool:
    """Whether it makes no difference which of two tensors is taken, but for the value.

    With gradients it does: they flow to the one that is taken, whole, and not at all to the other.
    """
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return False
    return (
        a.dim() == b.dim() == 0
        and a.dtype == b.dtype
        and not (a.requires_grad or b.requires_grad or a.is_complex())
    )


def _sorted(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
    items = list(operate.iterate(tracer, args[0]))
    if callbacks.runs_python(tracer, items, callbacks.ORDER):
        return tracer.call(
            polyfills.in_order, (items, kwargs.get("key"), kwargs.get("reverse", False)), {}
        )
    return call_harmless(tracer, sorted, (items,), kwargs)


def _hash(caller: Caller, args: Args, kwargs: Kwargs) -> Any:
    found = python_method(caller, args[0], "__hash__")
    if found is not None and not isinstance(args[0], torch.Tensor):
        return caller.call(found, args, {})
    caller.world.keep_off_disk("hash() differs between processes")
    callbacks.refuse(caller, args[0], callbacks.EQUALITY, "hash() of a tuple of objects")
    if lookup(caller, type(args[0]), "__hash__") is object.__hash__:
        caller.world.identify(args[0])
    return real.apply(hash, *args)


def _object_str(caller: Caller, args: Args, kwargs: Kwargs) -> Any:
    return formatted(caller, args[0], "repr", None)


def _object_format(caller: Caller, args: Args, kwargs: Kwargs) -> Any:
    if len(args) != 2 or args[1]:
        return real.call(object.__format__, args, kwargs)  # raises
    return formatted(caller, args[0], "str", None)


def _object_eq(outside: Outside, args: Args, kwargs: Kwargs) -> Any:
    return operate.identical(outside.world, *args) or NotImplemented


def _object_ne(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
    answer = tracer.sealed(lookup(tracer, type(args[0]), "__eq__"), args, {})
    return answer if answer is NotImplemented else not operate.truth(tracer, answer)


def _object_hash(outside: Outside, args: Args, kwargs: Kwargs) -> Any:
    outside.world.identify(args[0])
    outside.world.keep_off_disk("hash() differs between processes")
    return real.call(object.__hash__, args, kwargs)


def _object_repr(outside: Outside, args: Args, kwargs: Kwargs) -> Any:
    outside.world.identify(args[0])
    outside.world.keep_off_disk("the text of an object differs between processes")
    return real.call(object.__repr__, args, kwargs)


def _id(caller: Caller, args: Args, kwargs: Kwargs) -> Any:
    known = caller.world.known.get(id(args[0]))
    memo = caller.frames[-1].globals is vars(copy)  # deepcopy's own keys, gone when it returns
    if isinstance(args[0], torch.Tensor) and not memo:  # a fake has another
        raise CaptureBreak(Break.B013, None, what="id() of a tensor")
    if known is not None and known.raw is not args[0] and not memo:
        raise CaptureBreak(Break.B013, None, what="id() of a container from outside")
    if not memo:
        caller.world.identify(args[0])
    caller.world.keep_off_disk("id() differs between processes")
    return real.apply(id, *args)


def _one_hot(caller: Caller, args: Args, kwargs: Kwargs) -> Any:
    """With a given number of classes the result has a fixed size; torch still reads the data to check."""
    count: Any = args[1] if len(args) > 1 else kwargs.get("num_classes", -1)
    if count < 0:
        raise CaptureBreak(Break.B008, None, op="one_hot without num_classes")
    return caller.call(polyfills.one_hot, args, kwargs)


def _max_pool1d(function: Any) -> Callable[..., Any]:
    """Eager has a kernel for tensors without gradients that C++ does not choose under a dispatch mode.

    Its results lie row by row in memory, whatever the layout of the tensor, and are no views.
    """

    def rule(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
        names = dict(zip(("input", *_POOLING), args, strict=False)) | kwargs
        tensor = names.pop("input", None)
        differentiated = (
            isinstance(tensor, torch.Tensor) and tensor.requires_grad and torch.is_grad_enabled()
        )
        if (
            isinstance(tensor, torch.Tensor)
            and not differentiated
            and not names.get("return_indices", False)
        ):
            tensor = (
                tensor
                if tensor.is_contiguous()
                else torch_functions.call_method(tracer, "contiguous", (tensor,), {})
            )
            view = tracer.recorder.call_function(function, (tensor,), names)
            return tracer.recorder.call_function(
                torch.ops.aten._unsafe_view.default, (view, list(view.shape)), {}
            )
        return tracer.recorder.call_function(function, args, kwargs)

    return rule


def _vars(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
    if not args:
        return _locals(tracer)
    return attributes.load(tracer, args[0], "__dict__")


def _locals(caller: Caller) -> dict[str, Any]:
    """`locals()`: all variables that are set, in the order of their slots; of the body of a class its namespace."""
    frame = caller.frames[-1]
    code = frame.code
    if not code.co_flags & inspect.CO_OPTIMIZED:
        return frame.locals
    found = {} if LOCALS_ARE_NEW or frame.shown_locals is None else frame.shown_locals
    for name in variables(code):
        if name.startswith("_" * 3) and is_resume(code):
            continue  # an argument that only we know
        value = frame.locals.get(name, MISSING)
        if (
            value is MISSING
            and name in frame.cells
            and (name in frame.cell_sources or is_set(frame.cells[name]))
        ):
            value = caller.cell_value(frame, name)
        if value is not MISSING:
            found[name] = value
        else:
            found.pop(name, None)
    frame.shown_locals = found
    return found


def _globals(caller: Caller, args: Args, kwargs: Kwargs) -> Any:
    frame, world = caller.frames[-1], caller.world
    source = frame.globals_source or world.child(Attr, FRAME_FUNCTION, "__globals__")
    return world.namespace(source, frame.globals)


def _dir(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
    return call_harmless(tracer, dir, args, kwargs) if args else sorted(_locals(tracer))


def nothing_is_handled() -> bool:
    """Whether no exception is being handled; asked for at each call that relied on it."""
    return sys.exc_info()[1] is None


def _exc_info(caller: Caller, args: Args, kwargs: Kwargs) -> Any:
    error = caller.exceptions.current
    if error is None:
        if sys.exc_info()[1] is not None:  # a caller of the compiled function handles one
            raise CaptureBreak(Break.B002, None, function="sys.exc_info")
        caller.world.ask(nothing_is_handled)
        return None, None, None
    return type(error), error, caller.exceptions.traceback_of(error)


def _dict_get(caller: Caller, args: Args, kwargs: Kwargs) -> Any:
    if len(args) > 1:
        if type(args[0]) is LoadedModules and type(args[1]) is str:
            return loaded.found_or(caller.world, *args)
        operate.check_readable(caller.world, args[0])
        args = (args[0], callbacks.settle_key(caller, args[0], args[1]), *args[2:])
    return real.call(dict.get, args, kwargs)


def _str(kind: str) -> Callable[..., Any]:
    def rule(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
        if len(args) != 1 or kwargs:
            return call_harmless(tracer, str if kind == "str" else repr, args, kwargs)
        return formatted(tracer, args[0], kind, None)

    return rule


def _getattr(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
    return attributes.load_or(tracer, *args) if len(args) == 3 else attributes.load(tracer, *args)


RULES: Final[dict[Any, Any]] = {
    **numbers.RULES,
    getattr: _getattr,
    hasattr: lambda tracer, args, kwargs: (
        attributes.load_or(tracer, args[0], args[1], MISSING) is not MISSING
    ),
    setattr: lambda tracer, args, kwargs: attributes.store(tracer, *args),
    delattr: lambda tracer, args, kwargs: attributes.delete(tracer, *args),
    types.FunctionType.__get__: lambda tracer, args, kwargs: holders.bound(*args, **kwargs),
    isinstance: is_instance,
    issubclass: is_subclass,
    len: lambda tracer, args, kwargs: operate.length(tracer, *args),
    iter: _iter,
    next: _next,
    print: _breaks(Break.B007, function="print"),
    sum: _sum,
    functools.reduce: polyfilled(polyfills.reduce),
    hash: _hash,
    max: _extreme(max, polyfills.greatest, polyfills.greater_of),
    min: _extreme(min, polyfills.least, polyfills.lesser_of),
    sorted: _sorted,
    repr: _str("repr"),
    format: lambda tracer, args, kwargs: formatted(
        tracer, args[0], "", args[1] if len(args) > 1 else ""
    ),
    id: _id,
    torch._C._nn.one_hot: _one_hot,
    torch.max_pool1d: _max_pool1d(torch.max_pool1d),
    torch.nn.functional.max_pool1d: _max_pool1d(torch.nn.functional.max_pool1d),
    object.__reduce_ex__: copying.reduce_ex,
    type.__subclasses__: subclasses,
    object.__str__: _object_str,
    object.__format__: _object_format,
    object.__eq__: _object_eq,
    object.__ne__: _object_ne,
    object.__hash__: _object_hash,
    object.__repr__: _object_repr,
    vars: _vars,
    locals: _vars,
    globals: _globals,
    dir: _dir,
    sys.exc_info: _exc_info,
    sys.exception: lambda tracer, args, kwargs: _exc_info(tracer, args, kwargs)[1],
    __build_class__: build_class,
    dict.get: _dict_get,
    warnings.warn: lambda tracer, args, kwargs: messages.call(tracer, warnings.warn, args, kwargs),
    operator.getitem: lambda tracer, args, kwargs: operate.subscript(tracer, *args),
    operator.setitem: lambda tracer, args, kwargs: operate.store_subscript(tracer, *args),
    operator.contains: lambda tracer, args, kwargs: operate.contains(tracer, args[1], args[0]),
    operator.not_: lambda tracer, args, kwargs: not operate.truth(tracer, args[0]),
    operator.truth: lambda tracer, args, kwargs: operate.truth(tracer, args[0]),
    **{row[0]: _operator(row) for row in (*operate.BINARY.values(), *operate.COMPARE.values())},
}


# Rules whose last step is the call itself, so that a break inside of it can resume.
PASSES_THROUGH: Final = frozenset({setattr, functools.reduce})


def _number(kind: type, method: str) -> Callable[..., Any]:
    def rule(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
        if args and isinstance(args[0], torch.Tensor):
            if kind is int and tracer.world.sizes.reads_data and not args[0].is_floating_point():
                return items.item(tracer.recorder, args[0])
            raise CaptureBreak(Break.B004, None, method=kind.__name__)
        if args and type(args[0]) in KINDS:
            return tracer.arrays.convert(tracer, kind, args[0])
        if args and is_numpy_number(args[0]):
            return real.call(kind, args, kwargs)  # its value is guarded
        if kind is float and args and type(args[0]) is Float:
            return args[0]
        if (
            kind is int
            and args
            and (type(args[0]) is OpenSize or (type(args[0]) is Pending and args[0].kind is int))
        ):
            return args[0]
        # it is read, whatever methods it has
        text = kind is complex and args and isinstance(args[0], str)
        found = python_method(tracer, args[0], method) if args and not text else None
        if found is not None:
            return tracer.call(found, args, kwargs)
        return call_harmless(tracer, kind, args, kwargs)

    return rule


def _dict(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
    if args and not isinstance(args[0], dict):
        value = args[0]
        if python_method(tracer, value, "keys"):
            return {**as_dict(tracer, value), **kwargs}
        return real.call(dict, (items_of(tracer, value),), kwargs)
    if args:
        return {**as_dict(tracer, args[0]), **kwargs}
    return real.call(dict, args, kwargs)


def _shape(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """`torch.Size(...)` of whatever gives its items."""
    if len(args) == 1 and not isinstance(args[0], tuple | list | torch.Tensor):
        args = (tuple(operate.iterate(tracer, args[0])),)
    return torch_functions.call_native(tracer, torch.Size, args, kwargs)


CLASS_RULES: Final[dict[Any, Any]] = {
    weakref.ref: references.make,
    bool: lambda tracer, args, kwargs: operate.truth(tracer, args[0]) if args else False,
    int: _number(int, "__int__"),
    float: _number(float, "__float__"),
    complex: _number(complex, "__complex__"),
    type: make_type,
    super: find_super,
    dict: _dict,
    torch.Size: _shape,
    torch._C.DisableTorchFunctionSubclass: overrides.disable,
    torch._C._InferenceMode: lambda tracer, args, kwargs: Inference(tracer, *args),
    str: _str("str"),
}
