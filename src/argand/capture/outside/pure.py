"""capture.outside.pure: which C code may run while a frame is traced.

In: a C function, or an object that C code would look at. Out: whether the trace may run it. The tables list what
is known to be harmless: values that never change, containers that are the trace's own, functions that look at
their arguments only. Whatever is in no table (locks, files, streams, random states, counters, sockets, what
only the process knows) may be seen or changed by others, so it is a graph break: it runs when its time has come.
"""

from __future__ import annotations

import abc
import collections
import functools
import itertools
import operator
import re
import struct
import types
import typing
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn, TypeVar

import numpy
import torch

from argand.capture.markers import OfTrace
from argand.capture.outside.kinds import is_enumeration
from argand.support.errors import Break, CaptureBreak

Answer = TypeVar("Answer")

# -- classes -----------------------------------------------------------------------------------

# Their objects never change: C code may look at one wherever it comes from.
_VALUES: Final = frozenset(
    {object, int, float, bool, str, bytes, complex, type(None), type(...), type(NotImplemented)}
    | {tuple, frozenset, range, slice, type, property, staticmethod, classmethod, super}
    | {
        types.FunctionType,
        types.BuiltinFunctionType,
        types.MethodType,
        types.ModuleType,
        types.CodeType,
    }
    | {
        types.MethodDescriptorType,
        types.WrapperDescriptorType,
        types.MethodWrapperType,
        types.CellType,
    }
    | {types.GetSetDescriptorType, types.MemberDescriptorType, types.ClassMethodDescriptorType}
    | {types.GenericAlias, types.UnionType, types.MappingProxyType, types.TracebackType}
    | {
        re.Pattern,
        re.Match,
        struct.Struct,
        weakref.ref,
        functools.partial,
        functools._lru_cache_wrapper,
    }
    | {
        operator.itemgetter,
        operator.attrgetter,
        operator.methodcaller,
        type(functools.cmp_to_key(max)),
    }
    | {torch.Size, torch.dtype, torch.layout, torch.memory_format, torch.qscheme, torch.device}
    | {torch.finfo, torch.iinfo, torch._C.TensorBase, torch._C._FunctionBase}
    | {torch._C._TensorMeta, numpy.dtype}
    | {
        abc.ABC,
        typing.Generic,
        typing.Protocol,
        typing.TypeVar,
        typing.ParamSpec,
        typing.TypeVarTuple,
    }
)
_ITERABLES: Final[tuple[Any, ...]] = (
    *([], (), "", b"", range(0), range(1 << 99), {}, set(), collections.deque()),
    *({}.values(), {}.items(), collections.OrderedDict(), bytearray()),
)
# Their objects change. Those from outside are seen as copies (see `world`) or not at all, others are the trace's own.
_OWN: Final = frozenset(
    {
        list,
        dict,
        set,
        bytearray,
        collections.deque,
        collections.OrderedDict,
        collections.defaultdict,
    }
    | {types.SimpleNamespace, BaseException, enumerate, zip, map, filter, reversed}
    | {type({}.keys()), type({}.values()), type({}.items()), type(collections.OrderedDict().keys())}
    | {type(collections.OrderedDict().values()), type(collections.OrderedDict().items())}
    | {value for value in vars(itertools).values() if isinstance(value, type)}
    | {type(iter(made)) for made in _ITERABLES}
    | {type(reversed(made)) for made in _ITERABLES if hasattr(made, "__reversed__")}
    | {type(iter(int, 1)), type(re.finditer("", "")), type(struct.iter_unpack("b", b""))}
)
# Classes of Python whose objects are made for real: what is in them (a lock) is nobody's until they are used.
MADE: Final = frozenset({functools.cached_property, numpy.finfo, numpy.iinfo})
_NUMBERS: Final = (numpy.generic, numpy.dtype)  # numpy's scalars and types are values too
_OF_C: Final = (
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
)
# what pybind11 puts into its classes; the type has no other name
_OF_PYBIND: Final = "instancemethod"
_EVERYWHERE: Final = frozenset({"__dict__", "__weakref__"})


def _per_class(function: Callable[[Any], Answer]) -> Callable[[Any], Answer]:
    """Ask once for each class, as long as it lives: one that a program makes at each call is not kept."""
    known: weakref.WeakKeyDictionary[type, Answer] = weakref.WeakKeyDictionary()

    @functools.wraps(function)
    def ask(kind: Any) -> Answer:
        try:
            return known[kind]
        except KeyError:
            return known.setdefault(kind, function(kind))

    return ask


def _is_native(kind: type) -> bool:
    """Whether a class has methods written in C of its own."""
    for name, value in vars(kind).items():
        which = type(value)
        if which in _OF_C and value.__objclass__ is kind:
            return True
        if which is types.GetSetDescriptorType and name not in _EVERYWHERE:
            return True
        if which.__name__ == _OF_PYBIND or (
            name == "__new__" and which is types.BuiltinFunctionType
        ):
            return True
    return False


@_per_class
def _natives(kind: Any) -> frozenset[type]:
    """The classes below a class that are written in C."""
    if kind.__mro__ is None:
        raise CaptureBreak(
            Break.B013, None, what=f"class {kind.__name__}, whose order of bases is being made"
        )
    return frozenset(base for base in kind.__mro__ if _is_native(base))


@_per_class
def is_value(kind: Any) -> bool:
    """Whether C code may look at any object of a class: it has no state that only C code sees."""
    if issubclass(kind, _NUMBERS) or issubclass(kind, OfTrace) or is_enumeration(kind):
        return True
    # a tuple written in C has fields that are its items: torch.return_types, sys.flags
    return all(base in _VALUES or issubclass(base, tuple) for base in _natives(kind))


@_per_class
def is_own(kind: Any) -> bool:
    """Whether C code may look at and change objects of a class that the trace made, or copied."""
    if is_value(kind):
        return True
    return all(
        base in _VALUES or base in _OWN or issubclass(base, BaseException)
        for base in _natives(kind)
    )


# -- functions ---------------------------------------------------------------------------------

_ALL: Final = frozenset({"*"})


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# C functions by module: "*" is all of them. They look at and change nothing but their arguments.
_FUNCTIONS: Final[dict[str, frozenset[str]]] = {
    "builtins": _words(
        """abs all any ascii bin callable chr dir divmod format hash hex id isinstance issubclass iter len max min
        next oct ord pow repr round sorted sum getattr hasattr setattr delattr __build_class__"""
    ),
    **dict.fromkeys(
        ("math", "cmath", "_operator", "operator", "itertools", "unicodedata", "_string"), _ALL
    ),
    **dict.fromkeys(("_functools", "functools", "_collections", "_bisect", "_heapq"), _ALL),
    "_abc": _words("get_cache_token _abc_instancecheck _abc_subclasscheck"),
    "_sre": _words(
        "compile getcodesize ascii_iscased unicode_iscased ascii_tolower unicode_tolower"
    ),
    "_struct": _words("calcsize iter_unpack pack unpack unpack_from"),
    "_weakref": _words("getweakrefcount getweakrefs"),
    # questions with one answer for the life of a process
    "sys": _words(
        "exc_info exception getsizeof intern getdefaultencoding getfilesystemencoding is_finalizing"
    ),
    "posix": _words("fspath cpu_count getpid"),
}
# they say neither their module nor their class
_STATIC: Final = frozenset({str.maketrans, bytes.maketrans, bytearray.maketrans})
# Python functions that are run, not interpreted, by module: what they do depends on their arguments alone.
_RUN: Final[dict[str, frozenset[str]]] = {
    **dict.fromkeys(
        ("typing", "typing_extensions", "enum", "abc", "numbers", "string", "textwrap", "keyword"),
        _ALL,
    ),
    **dict.fromkeys(("re", "sre_compile", "json", "ast", "packaging"), _ALL),
    **dict.fromkeys(
        ("posixpath", "ntpath", "genericpath"),
        _words(
            "join split basename dirname splitext isabs normpath normcase splitdrive commonprefix commonpath"
        ),
    ),
    # these ask the process, and get the same answer as long as it lives
    "inspect": _words(
        """signature getfullargspec getcallargs get_annotations isclass ismethod isfunction ismodule isbuiltin isroutine
        isabstract iscode isgenerator isgeneratorfunction iscoroutine iscoroutinefunction isawaitable ismethoddescriptor
        isdatadescriptor getmro unwrap getdoc cleandoc getmodule getfile getsource getsourcelines getattr_static
        bind bind_partial apply_defaults replace from_callable"""
    ),
    **dict.fromkeys(("tokenize", "linecache", "importlib", "importlib_metadata"), _ALL),
    "os": _words("fspath fsencode fsdecode cpu_count"),
    "sys": _ALL,
}

_GIVE_WHAT_IS: Final = frozenset({"inspect", "importlib", "importlib_metadata", "sys"})
# whatever module they are of
_WRITERS: Final = frozenset({"__setattr__", "__delattr__", "__setitem__", "__delitem__"})


# They look at the frames of their callers, or follow what comes after: where one is called, no frame is compiled.
_LOOKS: Final = {
    "sys": _words(
        "_getframe _getframemodulename _current_frames breakpointhook __breakpointhook__ settrace setprofile call_tracing"
    ),
    "builtins": _words("breakpoint"),
}
_LOOKS_WITHOUT: Final = _words("eval exec")  # they do, given no globals
# A function that names one of these is not cut in two: the debugger would stop in a part of it.
_NAMES: Final = _words("_getframe currentframe breakpoint set_trace")
_ASK_CALLER: Final = _NAMES | _words("_getframemodulename _caller")  # the latter is typing's
# of C code: they are there for their effects
_CONTEXTS: Final = frozenset({"__enter__", "__exit__"})
# Text that a library makes into functions: of itself it changes nothing.
_BY_LIBRARIES: Final = frozenset(
    {("exec", "dataclasses"), ("eval", "collections"), ("exec", "collections")}
)


def module_of(function: Any) -> str:
    """The module a C function is of; methods have that of their class."""
    module = getattr(function, "__module__", None)
    if module is None:
        owner = getattr(function, "__self__", None)
        module = getattr(owner, "__name__", "") if isinstance(owner, types.ModuleType) else ""
    return str(module)


def _named(table: dict[str, frozenset[str]], module: str, name: str) -> bool:
    names = table.get(module)
    return names is not None and (name in names or names is _ALL)


def may_run(function: Any, caller: str) -> bool:
    """Whether a C callable may run in a trace when a module calls it, as far as it and what it is bound to say."""
    owner = getattr(function, "__self__", None)
    if getattr(function, "__name__", "") in _CONTEXTS and not issubclass(type(owner), OfTrace):
        return False
    if owner is not None and not isinstance(owner, types.ModuleType):
        return is_own(owner if isinstance(owner, type) else type(owner))
    kind = getattr(function, "__objclass__", None)  # of an unbound method
    if isinstance(function, type) or kind is not None:
        return is_own(function if kind is None else kind)
    if not hasattr(function, "__name__"):
        return is_own(type(function))
    name = function.__name__
    if function in _STATIC:
        return True
    return _named(_FUNCTIONS, module_of(function), name) or (name, caller) in _BY_LIBRARIES


def refuse(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NoReturn:
    """The break at a C function that may not run in a trace."""
    module, name = module_of(function), getattr(function, "__name__", "")
    looks = _named(_LOOKS, module, name)
    if module == "builtins" and name in _LOOKS_WITHOUT:
        looks = (args[1] if len(args) > 1 else kwargs.get("globals")) is None
    full = getattr(function, "__qualname__", None) or name or repr(function)
    row = Break.B021 if looks else Break.B002
    raise CaptureBreak(
        row, None, function=f"{module}.{full}" if module not in ("", "builtins") else full
    )


def names_debuggers(code: types.CodeType) -> bool:
    """Whether code calls a debugger, or looks at frames, somewhere."""
    return not _NAMES.isdisjoint(code.co_names)


def may_run_python(function: Callable[..., Any]) -> bool:
    """Whether a Python function of a library is run for real instead of being interpreted."""
    name = function.__name__
    if name in _WRITERS or not _ASK_CALLER.isdisjoint(function.__code__.co_names):
        return False  # run from here, the caller would be the compiler
    return _named(_RUN, (function.__module__ or "").partition(".")[0], name)


def gives_what_is(function: Any) -> bool:
    """Whether a function of a library answers with classes, modules and functions that are there, and makes none."""
    return (getattr(function, "__module__", None) or "").partition(".")[0] in _GIVE_WHAT_IS
