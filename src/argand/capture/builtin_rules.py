"""capture.builtin_rules: builtins that look into objects or call back, one rule each.

In: arguments of a builtin. Out: its result. C functions without a rule run for real when they are known to be
harmless and get no tensor and no outside object they would look into unnoticed.
"""

from __future__ import annotations

import abc
import collections
import copy
import copyreg
import functools
import itertools
import math
import operator
import sys
import types
import typing
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import torch

from argand.capture import attributes, native, operate, pending, pure
from argand.capture.generators import Callback, Inference
from argand.capture.markers import END, MISSING
from argand.capture.operate import PLAIN, lookup
from argand.capture.pending import Pending
from argand.capture.sizes.floats import Float
from argand.capture.sizes.values import Claim, Size
from argand.runtime.guards import Const
from argand.support.errors import Break, CaptureBreak

if TYPE_CHECKING:
    from argand.capture.tracer import Tracer

Args = tuple[Any, ...]
Kwargs = dict[str, Any]

# Reads nothing of its arguments but their identity or type, or only stores them.
_HOLDERS: Final = (*(list, dict, set, frozenset, tuple, collections.deque, str, types.MappingProxyType),)
_KEEPS_TENSORS: Final = frozenset(
    {isinstance, issubclass, type, id, callable, zip, enumerate, list, tuple, set, dict, frozenset}
    | {range, slice, functools.partial, itertools.chain, itertools.islice, itertools.cycle, repr}
    | {itertools.repeat, itertools.product, itertools.zip_longest, itertools.tee, operator.is_}
    | {operator.is_not, hash, itertools.count, itertools.combinations, itertools.permutations}
    | {collections.OrderedDict, collections.deque, collections.defaultdict, any, all, super}
    | {itertools.pairwise, reversed, iter, next, property, staticmethod, classmethod, types.MethodType}
    | {itertools.accumulate, itertools.groupby, object.__new__, types.SimpleNamespace, typing.cast}
)
_ITERATING: Final = frozenset(
    {list, tuple, set, frozenset, enumerate, zip, any, all, sorted, min, max, reversed, map, filter}
    | {itertools.chain, itertools.islice, itertools.cycle, itertools.product, itertools.zip_longest}
    | {itertools.starmap, itertools.takewhile, itertools.dropwhile, itertools.accumulate, sum}
    | {itertools.groupby, itertools.filterfalse, itertools.pairwise, itertools.combinations}
    | {itertools.permutations, collections.deque, itertools.compress, itertools.tee, dict.fromkeys}
    | {math.prod, math.fsum}
)
_ITERATING_METHODS: Final = frozenset({"extend", "join", "update", "extendleft", "from_iterable"})
_CALLING: Final = frozenset(
    {map, filter, sorted, min, max, itertools.starmap, itertools.takewhile, itertools.dropwhile}
    | {itertools.accumulate, itertools.groupby, itertools.filterfalse, collections.defaultdict, iter}
)
_PYTHON_CALLABLES: Final = (types.FunctionType, types.MethodType, functools.partial)


def _name_of(function: Any) -> str:
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", repr(function))
    return f"{module}.{name}" if module and module != "builtins" else str(name)


def _is_exception(function: Any) -> bool:
    return isinstance(function, type) and issubclass(function, BaseException)


def _may_hold(function: Any) -> bool:
    """Whether a function only stores what it gets."""
    try:
        if function in _KEEPS_TENSORS or _is_exception(function):
            return True
    except TypeError:
        return False
    owner = getattr(function, "__self__", None)
    kind = getattr(function, "__objclass__", None)
    return isinstance(owner, _HOLDERS) or (isinstance(kind, type) and issubclass(kind, _HOLDERS))


def call_harmless(tracer: Tracer, function: Any, args: Args, kwargs: Kwargs, trusted: bool = False) -> Any:
    """Run a C function for real, if nothing can go unnoticed; a graph break otherwise."""
    caller = str(tracer.frames[-1].globals.get("__name__"))
    if not trusted and not pure.may_run(function, caller) and not only_numbers(function, args, kwargs):
        pure.refuse(function, args, kwargs)
    owner = getattr(function, "__self__", None)
    tracer.world.pin(function)
    if owner is not None:
        operate.check_readable(tracer, owner)
    if function is dir or getattr(function, "__module__", None) in {"sys", "posix", "os", "time"}:
        tracer.world.keep_off_disk(f"{_name_of(function)} asks the process")
    holds = _may_hold(function)
    known, opaque = tracer.world.known, tracer.world.opaque
    for value in (*args, *kwargs.values()):
        if id(value) in opaque:
            raise CaptureBreak(Break.B011, None, type=type(value).__name__)
        if holds:
            continue
        if isinstance(value, torch.Tensor):
            raise CaptureBreak(Break.B002, None, function=_name_of(function))
        found = known.get(id(value))
        if found is not None and found.raw is value and _is_plain_object(value) and not trusted:
            raise CaptureBreak(Break.B002, None, function=_name_of(function))
        tracer.world.pin(value)
    return native.call(function, *_prepared(tracer, function, args, kwargs))


def only_numbers(function: Any, args: Args, kwargs: Kwargs) -> bool:
    """numpy used as a calculator: numbers in, and so a number out."""
    if not str(getattr(type(function), "__module__", "")).startswith("numpy"):
        return False
    return all(isinstance(value, int | float) for value in (*args, *kwargs.values()))


def _is_plain_object(value: Any) -> bool:
    return not isinstance(value, type | types.FunctionType | types.ModuleType | types.BuiltinFunctionType)


def _prepared(tracer: Tracer, function: Any, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
    """Arguments that native code can call and iterate."""
    try:
        iterating = function in _ITERATING
        calling = function in _CALLING
    except TypeError:
        return args, kwargs
    name = getattr(function, "__name__", "")
    if name == "sort" or calling:
        args = tuple([_callable(tracer, value) for value in args])
        if "key" in kwargs:
            kwargs = {**kwargs, "key": _callable(tracer, kwargs["key"])}
    if iterating or name in _ITERATING_METHODS:
        args = tuple([iterable(tracer, value) for value in args])
    return args, kwargs


def _callable(tracer: Tracer, value: Any) -> Any:
    if isinstance(value, _PYTHON_CALLABLES) or (
        not isinstance(value, type | Callback)
        and callable(value)
        and type(lookup(tracer, type(value), "__call__")) is types.FunctionType
    ):
        return Callback(tracer, value)
    if isinstance(value, type) and type(lookup(tracer, value, "__init__")) is types.FunctionType:
        return Callback(tracer, value)
    if isinstance(value, types.BuiltinFunctionType) and str(value.__module__).startswith("torch"):
        return Callback(tracer, value)
    return value


def iterable(tracer: Tracer, value: Any) -> Any:
    """A value that native code can iterate: Python iterators become generators of the trace."""
    kind = type(value)
    if kind in PLAIN:
        return value
    if isinstance(value, torch.Tensor):
        return operate.get_iter(tracer, value)
    found = lookup(tracer, kind, "__iter__")
    if type(found) is types.FunctionType and not getattr(kind, "_argand_native", False):
        value = operate.get_iter(tracer, value)
        if operate.python_method(tracer, value, "__next__") and not getattr(type(value), "_argand_native", False):
            return tracer.call(tracer.polyfill("drain"), (value,), {})
    return value


# -- rules -------------------------------------------------------------------------------------


def polyfilled(name: str) -> Callable[..., Any]:
    """The rule that interprets a function of `polyfills` instead."""
    return lambda tracer, args, kwargs: tracer.call(tracer.polyfill(name), args, kwargs)


def _breaks(row: Break, **details: str) -> Callable[..., Any]:
    def rule(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
        raise CaptureBreak(row, None, **details)

    return rule


def _operator(row: tuple[Any, str, str, str]) -> Callable[..., Any]:
    return lambda tracer, args, kwargs: operate.binary(tracer, row, *args)


def _isinstance(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
    value, kind = args
    if isinstance(kind, type):
        check = lookup(tracer, type(kind), "__instancecheck__")
        if type(check) is types.FunctionType and not attributes.is_trusted_module(check.__module__):
            return operate.truth(tracer, tracer.call(check, (kind, value), {}))
    _note_registries(tracer, type(value), kind)
    return native.apply(isinstance, value, kind)


def _issubclass(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
    _note_registries(tracer, *args)
    return call_harmless(tracer, issubclass, args, kwargs)


def _note_registries(tracer: Tracer, of: Any, kind: Any) -> None:
    """What users register with abstract classes is in nobody's code, so another process may have other answers."""

    def is_ours(kind: type) -> bool:
        return attributes.is_trusted_module(kind.__module__)

    for abstract in kind if isinstance(kind, tuple) else (kind,):
        if isinstance(abstract, abc.ABCMeta) and isinstance(of, type) and abstract not in of.__mro__:
            known = is_ours(abstract) and any(is_ours(base) and issubclass(base, abstract) for base in of.__mro__)
            if not known and not (is_ours(abstract) and is_ours(of)):
                tracer.world.keep_off_disk(f"{abstract.__qualname__} may have {of.__qualname__} registered")


def _iter(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 2:
        return call_harmless(tracer, iter, args, kwargs)
    return operate.get_iter(tracer, *args)


def _next(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 1:
        return operate.advance_or_stop(tracer, args[0])
    item = operate.advance(tracer, args[0])
    return args[1] if item is END else item


def _sum(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
    items = list(operate.iterate(tracer, args[0]))
    start = args[1] if len(args) > 1 else kwargs.get("start", 0)
    if all(type(item) in PLAIN for item in (*items, start)):
        return native.apply(sum, items, start)
    return tracer.call(tracer.polyfill("add_up"), (items, start), {})


def _hash(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
    found = operate.python_method(tracer, args[0], "__hash__")
    if found is not None and not isinstance(args[0], torch.Tensor):
        return tracer.call(found, args, {})
    tracer.world.keep_off_disk("hash() differs between processes")
    return native.apply(hash, *args)


def _math_sqrt_like(function: Callable[..., Any], method: str) -> Callable[..., Any]:
    def rule(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
        if args and isinstance(args[0], torch.Tensor):
            return tracer.recorder.call_function(function, args, kwargs)
        found = operate.python_method(tracer, args[0], method)
        if found is not None:
            return tracer.call(found, args, kwargs)
        return call_harmless(tracer, function, args, kwargs)

    return rule


def _id(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
    known = tracer.world.known.get(id(args[0]))
    memo = tracer.frames[-1].globals is vars(copy)  # deepcopy's own keys, gone when it returns
    if known is not None and not isinstance(known.source, Const) and not memo:
        raise CaptureBreak(Break.B013, None, what="id() of an object from outside")
    tracer.world.keep_off_disk("id() differs between processes")
    return native.apply(id, *args)


def _one_hot(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """With a given number of classes the result has a fixed size; torch still reads the data to check."""
    count: Any = args[1] if len(args) > 1 else kwargs.get("num_classes", -1)
    if count < 0:
        raise CaptureBreak(Break.B008, None, op="one_hot without num_classes")
    return tracer.call(tracer.polyfill("one_hot"), args, kwargs)


def _reduce_ex(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """`copy` asks an object how to make another: those that only have attributes can be told here."""
    kind = type(args[0])
    default = all(
        lookup(tracer, kind, name) is getattr(object, name, MISSING)
        for name in ("__reduce__", "__getstate__", "__getnewargs__", "__getnewargs_ex__")
    )
    made = lookup(tracer, kind, "__new__") is object.__new__ and args[1] >= 2
    if not default or not made or any("__slots__" in vars(base) for base in kind.__mro__):
        raise CaptureBreak(Break.B002, None, function=f"{kind.__name__}.__reduce_ex__")
    state = attributes.load(tracer, args[0], "__dict__")
    return copyreg.__newobj__, (kind,), state or None, None, None  # type: ignore[attr-defined]


def _vars(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
    if not args:
        return dict(tracer.frames[-1].locals)
    return attributes.load(tracer, args[0], "__dict__")


def _exc_info(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
    error = tracer.handled
    if error is None:  # a caller may handle one
        raise CaptureBreak(Break.B002, None, function="sys.exc_info")
    return type(error), error, tracer.traceback_of(error)


def _build_class(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """`class`: the body is interpreted, the class is made for real if that calls no Python code of users."""
    body, name, *bases = args
    known = all(isinstance(base, type) and _makes_quietly(tracer, base) for base in bases)
    if not known or kwargs:
        raise CaptureBreak(Break.B013, None, what=f"class {name} with a metaclass or __init_subclass__")
    tracer.world.keep_off_disk("a class is made in the trace")
    namespace = tracer.class_body(body)
    for value in namespace.values():
        found = operate.python_method(tracer, value, "__set_name__")
        if found is not None and not attributes.is_trusted_module(found.__module__):
            broken = CaptureBreak(Break.B013, None, what=f"class {name} with __set_name__")
            broken.native = True  # the body has been run
            raise broken
    kind, _, _ = types.prepare_class(name, tuple(bases))
    return tracer.mark_made(native.call(kind, (name, tuple(bases), namespace), {}))


def _makes_quietly(tracer: Tracer, base: type) -> bool:
    if type(lookup(tracer, type(base), "__prepare__")) is not types.ClassMethodDescriptorType:
        return False
    start = lookup(tracer, base, "__init_subclass__")
    return all(attributes.is_trusted_module(getattr(part, "__module__", "torch")) for part in (type(base), start))


def _str(kind: str) -> Callable[..., Any]:
    def rule(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
        if len(args) != 1 or kwargs:
            return call_harmless(tracer, str if kind == "str" else repr, args, kwargs)
        return tracer.format(args[0], kind, None)

    return rule


RULES: Final[dict[Any, Any]] = {
    getattr: lambda tracer, args, kwargs: (attributes.load_or if len(args) == 3 else attributes.load)(tracer, *args),
    hasattr: lambda tracer, args, kwargs: attributes.load_or(tracer, args[0], args[1], MISSING) is not MISSING,
    setattr: lambda tracer, args, kwargs: attributes.store(tracer, *args),
    delattr: lambda tracer, args, kwargs: attributes.delete(tracer, *args),
    isinstance: _isinstance,
    issubclass: _issubclass,
    len: lambda tracer, args, kwargs: operate.length(tracer, *args),
    iter: _iter,
    next: _next,
    print: _breaks(Break.B007, function="print"),
    sum: _sum,
    functools.reduce: polyfilled("reduce"),
    hash: _hash,
    abs: _math_sqrt_like(abs, "__abs__"),
    round: _math_sqrt_like(round, "__round__"),
    repr: _str("repr"),
    format: lambda tracer, args, kwargs: tracer.format(args[0], "", args[1] if len(args) > 1 else ""),
    id: _id,
    torch._C._nn.one_hot: _one_hot,
    object.__reduce_ex__: _reduce_ex,
    vars: _vars,
    locals: _vars,
    globals: _breaks(Break.B013, what="globals()"),
    sys.exc_info: _exc_info,
    sys.exception: lambda tracer, args, kwargs: _exc_info(tracer, args, kwargs)[1],
    __build_class__: _build_class,
    dict.get: lambda tracer, args, kwargs: native.call(dict.get, args, kwargs),
    warnings.warn: lambda tracer, args, kwargs: tracer.defer(warnings.warn, args, kwargs),
    operator.getitem: lambda tracer, args, kwargs: operate.subscript(tracer, *args),
    operator.setitem: lambda tracer, args, kwargs: operate.store_subscript(tracer, *args),
    operator.contains: lambda tracer, args, kwargs: operate.contains(tracer, args[1], args[0]),
    operator.not_: lambda tracer, args, kwargs: not operate.truth(tracer, args[0]),
    operator.truth: lambda tracer, args, kwargs: operate.truth(tracer, args[0]),
    operator.neg: _math_sqrt_like(operator.neg, "__neg__"),
    operator.index: _math_sqrt_like(operator.index, "__index__"),
    **{row[0]: _operator(row) for row in (*operate.BINARY.values(), *operate.COMPARE.values())},
}


# Rules whose last step is the call itself, so that a break inside of it can resume.
PASSES_THROUGH: Final = frozenset({setattr, functools.reduce})


def _number(kind: type, method: str) -> Callable[..., Any]:
    def rule(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
        if args and isinstance(args[0], torch.Tensor):
            if kind is int and tracer.world.sizes.reads_data and not args[0].is_floating_point():
                return pending.item(tracer, args[0])
            raise CaptureBreak(Break.B004, None, method=kind.__name__)
        if kind is float and args and type(args[0]) is Float:
            return args[0]
        if kind is int and args and (type(args[0]) is Size or (type(args[0]) is Pending and args[0].kind is int)):
            return args[0]
        found = operate.python_method(tracer, args[0], method) if args else None
        if found is not None:
            return tracer.call(found, args, kwargs)
        return call_harmless(tracer, kind, args, kwargs)

    return rule


def _type(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 1:
        return args[0].__class__ if type(args[0]) in (Claim, Float, Pending, Size) else type(args[0])
    raise CaptureBreak(Break.B013, None, what="type() making a class")


def _super(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
    if args:
        return native.apply(super, *args)
    frame = tracer.frames[-1]
    kind = frame.cells["__class__"].cell_contents
    first = frame.code.co_varnames[0]
    owner = frame.locals[first] if first in frame.locals else frame.cells[first].cell_contents
    return native.apply(super, kind, owner)


def _dict(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
    if args and not isinstance(args[0], dict):
        value = args[0]
        if operate.python_method(tracer, value, "keys"):
            return {**tracer.as_dict(value), **kwargs}
        return native.call(dict, (iterable(tracer, value),), kwargs)
    if args:
        return {**tracer.as_dict(args[0]), **kwargs}
    return native.call(dict, args, kwargs)


CLASS_RULES: Final[dict[Any, Any]] = {
    bool: lambda tracer, args, kwargs: operate.truth(tracer, args[0]) if args else False,
    int: _number(int, "__int__"),
    float: _number(float, "__float__"),
    complex: _number(complex, "__complex__"),
    type: _type,
    super: _super,
    dict: _dict,
    torch._C._InferenceMode: lambda tracer, args, kwargs: Inference(tracer, *args),
    str: _str("str"),
}
