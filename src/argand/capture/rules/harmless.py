"""capture.rules.harmless: C functions that run for real in a trace.

In: a C function and its arguments. Out: its result, if it is known to be harmless and gets no tensor and no outside
object it would look into unnoticed; a graph break otherwise.
"""

from __future__ import annotations

import collections
import functools
import itertools
import math
import operator
import sys
import types
import typing
from typing import Any, Final

import torch

from argand.capture.markers import Args, Kwargs, OfTrace
from argand.capture.objects import callbacks, operate, polyfills
from argand.capture.objects.generators import Callback
from argand.capture.objects.methods import PLAIN, lookup, python_method
from argand.capture.objects.parts import Caller
from argand.capture.objects.tracer import Tracer
from argand.capture.outside import pure, real
from argand.capture.outside.arrays import KINDS
from argand.capture.outside.kinds import scalar_in
from argand.capture.outside.world import World
from argand.support.errors import Break, CaptureBreak

# Reads nothing of its arguments but their identity or type, or only stores them.
_HOLDERS: Final = (
    *(list, dict, set, frozenset, tuple, collections.deque, str, types.MappingProxyType),
)
_KEEPS_TENSORS: Final = frozenset(
    {isinstance, issubclass, type, id, callable, zip, enumerate, list, tuple, set, dict, frozenset}
    | {range, slice, functools.partial, itertools.chain, itertools.islice, itertools.cycle, repr}
    | {itertools.repeat, itertools.product, itertools.zip_longest, itertools.tee, operator.is_}
    | {operator.is_not, hash, itertools.count, itertools.combinations, itertools.permutations}
    | {collections.OrderedDict, collections.deque, collections.defaultdict, any, all, super}
    | {
        itertools.pairwise,
        reversed,
        iter,
        next,
        property,
        staticmethod,
        classmethod,
        types.MethodType,
    }
    | {itertools.accumulate, itertools.groupby, object.__new__, types.SimpleNamespace, typing.cast}
)
MADE_OF_ITEMS: Final = (tuple, list, set, frozenset, dict, collections.deque)
_ITERATING: Final = frozenset(
    {list, tuple, set, frozenset, enumerate, zip, any, all, sorted, min, max, reversed, map, filter}
    | {itertools.chain, itertools.islice, itertools.cycle, itertools.product, itertools.zip_longest}
    | {itertools.starmap, itertools.takewhile, itertools.dropwhile, itertools.accumulate, sum}
    | {itertools.groupby, itertools.filterfalse, itertools.pairwise, itertools.combinations}
    | {itertools.permutations, collections.deque, itertools.compress, itertools.tee, dict.fromkeys}
    | {math.prod, math.fsum}
)
_ITERATING_METHODS: Final = frozenset({"extend", "join", "update", "extendleft", "from_iterable"})
# a key is first
_KEYED: Final = frozenset({"remove", "discard", "add", "pop", "setdefault", "get", "__contains__"})
_FINDING: Final = frozenset(
    {*_KEYED, "index", "count", "__eq__", "update"}
    | {
        "issubset",
        "issuperset",
        "union",
        "intersection",
        "difference",
        "symmetric_difference",
        "isdisjoint",
    }
)
_CALLING: Final = frozenset(
    {map, filter, sorted, min, max, itertools.starmap, itertools.takewhile, itertools.dropwhile}
    | {
        itertools.accumulate,
        itertools.groupby,
        itertools.filterfalse,
        collections.defaultdict,
        iter,
    }
)
# Functions that ask their arguments, from this one on, for `__index__`; and methods of sequences.
_INDEXING: Final = {bin: 0, oct: 0, hex: 0, chr: 0, range: 0, enumerate: 1} | dict.fromkeys(
    (itertools.islice, itertools.repeat, itertools.combinations), 1
)
_INDEXING_METHODS: Final = {
    **dict.fromkeys(("__mul__", "__rmul__", "__imul__"), slice(1)),
    **dict.fromkeys(("insert", "pop", "rotate"), slice(1)),
    "index": slice(1, None),
}
_ASKING_TRUTH: Final = frozenset({any, all, filter, itertools.filterfalse, itertools.compress})
_TEXTS: Final = frozenset({"format", "format_map", "__mod__"})
# These call methods of their argument, or have rules for values of the trace: `map(int, x.shape)`, `sorted(rows, key=len)`.
_ASKING: Final = frozenset(
    map(id, (int, float, bool, complex, str, repr, len, abs, round, hash, sum, min, max))
) | frozenset(map(id, (math.floor, math.ceil, math.trunc, math.prod, math.sqrt)))
_PYTHON_CALLABLES: Final = (types.FunctionType, types.MethodType, functools.partial)
# Numbers that never change, and nothing: their exact types.
_NUMBERS: Final = frozenset({type(None), bool, int, float})


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


def call_harmless(
    tracer: Tracer, function: Any, args: Args, kwargs: Kwargs, trusted: bool = False
) -> Any:
    """Run a C function for real, if nothing can go unnoticed; a graph break otherwise."""
    caller = str(tracer.frames[-1].globals.get("__name__"))
    if (
        not trusted
        and not pure.may_run(function, caller)
        and not only_numbers(function, args, kwargs)
        and not _pickles_numbers(tracer.world, function, args)
    ):
        pure.refuse(function, args, kwargs)
    owner = getattr(function, "__self__", None)
    tracer.world.pin(function)
    if owner is not None:
        operate.check_readable(tracer.world, owner)
    if function is dir or getattr(function, "__module__", None) in {"sys", "posix", "os", "time"}:
        tracer.world.keep_off_disk(f"{_name_of(function)} asks the process")
    if type(owner) is slice:
        callbacks.refuse(
            tracer, (owner.start, owner.stop, owner.step), callbacks.NUMBER, "slice.indices"
        )
    args = _with_numbers(tracer, function, args)
    holds = _may_hold(function)
    if holds and args:
        args = _with_callbacks(tracer, function, owner, args)
    known, opaque = tracer.world.known, tracer.world.opaque
    for value in (*args, *kwargs.values()):
        if id(value) in opaque:
            raise CaptureBreak(Break.B011, None, type=type(value).__name__)
        if holds:
            continue
        if isinstance(value, torch.Tensor) or type(value) in KINDS:
            raise CaptureBreak(Break.B002, None, function=_name_of(function))
        of = getattr(function, "__objclass__", object)
        if (
            type(function) is types.WrapperDescriptorType
            and isinstance(value, of)
            and scalar_in(value) is not None
        ):
            continue  # the number or text is guarded, and the method of its base reads nothing else
        found = known.get(id(value))
        if found is not None and found.raw is value and _is_plain_object(value) and not trusted:
            raise CaptureBreak(Break.B002, None, function=_name_of(function))
        callbacks.refuse(tracer, value, callbacks.NUMBER, _name_of(function))
        tracer.world.pin(value)
    given = _prepared(tracer, function, args, kwargs)
    made = real.call(function, *given)
    return (
        fresh_or_break(tracer.world, function, given, made)
        if trusted or isinstance(function, type)
        else made
    )


def fresh_or_break(world: World, function: Any, given: tuple[Args, Kwargs], made: Any) -> Any:
    """What a call gave; a break if it made a class, module or function, which later calls would find as this one left it."""
    if not isinstance(made, type | types.ModuleType | types.FunctionType) or pure.gives_what_is(
        function
    ):
        return made
    args, kwargs = given
    if (
        any(made is value for value in (*args, *kwargs.values()))
        or id(made) in world.made
        or _is_named(made)
    ):
        return made
    broken = CaptureBreak(
        Break.B013, None, what=f"{_name_of(function)}, which makes a {type(made).__name__},"
    )
    broken.native = True  # it has been run
    raise broken


def _is_named(value: Any) -> bool:
    """Whether a class, module or function is found where its name says."""
    if isinstance(value, types.ModuleType):
        return any(value is module for module in tuple(sys.modules.values()))
    found: Any = sys.modules.get(str(value.__module__))
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is value


def _with_numbers(caller: Caller, function: Any, args: Args) -> Args:
    """The arguments; objects that stand for an index are asked for it here, where the trace sees what they do."""
    try:
        first, asks = _INDEXING.get(function), function in _ASKING_TRUTH
    except TypeError:  # a method of what has no hash
        return args
    if asks:
        callbacks.refuse(caller, args, callbacks.TRUTH, f"{_name_of(function)}() of objects")
    return (
        args
        if first is None
        else (*args[:first], *[callbacks.index(caller, value) for value in args[first:]])
    )


def _with_callbacks(caller: Caller, function: Any, owner: Any, args: Args) -> Args:
    """The arguments; containers compare what they are asked for with what they hold."""
    unbound = hasattr(function, "__objclass__")
    container, given = (args[0], args[1:]) if unbound else (owner, args)
    name = getattr(function, "__name__", "")
    if isinstance(container, str | bytes) and given:
        names = callbacks.TEXT + callbacks.NUMBER if name in _TEXTS else callbacks.NUMBER
        callbacks.refuse(caller, given, names, f"{name}() of objects")
    elif (
        isinstance(container, list | tuple | collections.deque)
        and given
        and name in _INDEXING_METHODS
    ):
        places = range(len(given))[_INDEXING_METHODS[name]]
        given = tuple(
            [
                callbacks.index(caller, value) if i in places else value
                for i, value in enumerate(given)
            ]
        )
        args = (container, *given) if unbound else given
    if name in _KEYED and given and isinstance(container, dict | set | frozenset):
        return (*args[: -len(given)], callbacks.settle_key(caller, container, given[0]), *given[1:])
    if name in _FINDING and given and isinstance(container, dict | set | frozenset):
        callbacks.refuse_keys(caller, (container, *given), f"{name}() of objects")
    elif name in _FINDING or function in (set, frozenset, dict.fromkeys, collections.Counter):
        callbacks.refuse(caller, (given, container), callbacks.EQUALITY, f"{name}() of objects")
    elif name == "sort":
        callbacks.refuse(caller, container, callbacks.ORDER, "sort() of objects")
    return args


def only_numbers(function: Any, args: Args, kwargs: Kwargs) -> bool:
    """numpy used as a calculator: numbers in, and so a number out."""
    if not str(getattr(type(function), "__module__", "")).startswith("numpy"):
        return False
    return all(isinstance(value, int | float) for value in (*args, *kwargs.values()))


def _pickles_numbers(world: World, function: Any, args: Args) -> bool:
    """``pickle.dumps`` of a dict of the trace with names and numbers, a key of a cache: bytes that depend on these alone.

    Texts as values are left out: of one that comes twice, pickle writes that it is the same object.
    """
    if pure.module_of(function) != "_pickle" or function.__name__ != "dumps" or len(args) != 1:
        return False
    made = args[0]
    return (
        type(made) is dict
        and id(made) not in world.known
        and all(type(key) is str and type(value) in _NUMBERS for key, value in made.items())
    )


def _is_plain_object(value: Any) -> bool:
    return not isinstance(
        value, type | types.FunctionType | types.ModuleType | types.BuiltinFunctionType
    )


def _prepared(tracer: Tracer, function: Any, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
    """Arguments that native code can call and iterate."""
    if kwargs and getattr(function, "__name__", "") == "format":
        callbacks.refuse(tracer, tuple(kwargs.values()), callbacks.TEXT, "format() of objects")
    try:
        iterating = function in _ITERATING
        calling = function in _CALLING
    except TypeError:
        return args, kwargs
    name = getattr(function, "__name__", "")
    if function is collections.defaultdict and args and id(args[0]) in _ASKING:
        calling = False  # it keeps what it calls
    if name == "sort" or calling:
        args = tuple([_callable(tracer, value) for value in args])
        if "key" in kwargs:
            kwargs = {**kwargs, "key": _callable(tracer, kwargs["key"])}
    if iterating or name in _ITERATING_METHODS:
        with tracer.seal():
            args = tuple([iterable(tracer, value) for value in args])
    return args, kwargs


def _callable(tracer: Tracer, value: Any) -> Any:
    if isinstance(value, _PYTHON_CALLABLES) or (
        not isinstance(value, type | Callback)
        and callable(value)
        and type(lookup(tracer, type(value), "__call__")) is types.FunctionType
    ):
        return Callback(tracer, value)
    if id(value) in _ASKING:
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
    if isinstance(value, torch.Tensor) or kind in KINDS:
        return operate.get_iter(tracer, value)
    found = lookup(tracer, kind, "__iter__")
    if type(found) is types.FunctionType and not issubclass(kind, OfTrace):
        value = operate.get_iter(tracer, value)
        if python_method(tracer, value, "__next__") and not issubclass(type(value), OfTrace):
            return tracer.call(polyfills.drain, (value,), {})
    return value


def items_of(tracer: Tracer, value: Any) -> Any:
    """What native code makes a container of: it takes the items while the trace runs, so they must be the trace's."""
    with tracer.seal():
        given = iterable(tracer, value)
    operate.check_readable(tracer.world, given)
    return given
