"""capture.write.rebuild: Python source that makes the values of a trace again, at call time.

In: values as the interpreter held them. Out: expressions over collected sources, graph outputs and constants,
with the statements they need. An object is made once however often it is used, so identity and aliasing
are those of the program. Fails with CaptureBreak.B012 for what cannot be made again.
"""

from __future__ import annotations

import collections
import functools
import itertools
import re
import types
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy
import torch

from argand.capture.generated.histories import is_used_up, used_up
from argand.capture.markers import MISSING, OfTrace
from argand.capture.objects.found import is_retained
from argand.capture.objects.generators import Callback, Generator
from argand.capture.objects.methods import unbound
from argand.capture.objects.tracer import Tracer
from argand.capture.outside import arrays, pure, wrappers
from argand.capture.outside.kinds import PINNED, is_constant, native_base
from argand.capture.outside.subclasses import is_subclass, of_class
from argand.capture.record.pending import Pending
from argand.capture.rules.hooks import Handle
from argand.capture.rules.transforms import check_free
from argand.capture.sizes.floats import Float
from argand.capture.sizes.values import Claim, OpenShape, OpenSize
from argand.capture.write.fields import held, members_of, slots_of
from argand.capture.write.statements import Statements
from argand.capture.write.views import VIEWS, view_of
from argand.runtime.sources import Const
from argand.sizes.expressions import Expr, Symbol
from argand.support.errors import Break, CaptureBreak

_LITERALS: Final = frozenset({int, str, bool, bytes, type(None)})
_REDUCED: Final[tuple[Any, ...]] = (
    type(iter([])), type(iter(())), type(iter(range(0))), type(iter({})), type(iter({}.values())),
    type(iter({}.items())), type(iter(set())), type(reversed([])), type(reversed({})), enumerate, zip,
    map, filter, itertools.chain, itertools.islice, itertools.count, itertools.cycle,
    itertools.repeat, itertools.product, itertools.zip_longest, itertools.accumulate,
    itertools.starmap, itertools.takewhile, itertools.dropwhile, type(iter("")), reversed,
)  # fmt: skip
_C: Final = types.BuiltinFunctionType
_POOLED: Final = (
    *(numpy.generic, numpy.dtype, numpy.finfo, numpy.iinfo, torch.finfo, torch.iinfo),
    *(types.CodeType, re.Pattern, property, types.GenericAlias),
)
_BLANKS: Final = frozenset(
    {object, dict, list, set, collections.OrderedDict, collections.defaultdict}
)


class CannotRebuild(CaptureBreak):
    """B012, with the instruction that made the value: breaking there would avoid it."""

    def __init__(self, what: str, made_at: int = 0) -> None:
        super().__init__(Break.B012, None, what=what)
        self.made_at = made_at


class Rebuilder(Statements):
    """Writes the statements of one compiled function."""

    def __init__(self, tracer: Tracer, sizes_in_graph: bool = False) -> None:
        super().__init__()
        self.tracer = tracer
        self.sizes_in_graph = sizes_in_graph  # sizes are results of the graph
        self._memo: dict[int, str] = {}
        # objects that have a name, but not all of their attributes
        self._unfinished: set[int] = set()
        self._late: list[str] = []  # statements that hash them
        self._keep: list[Any] = []

    # -- names -----------------------------------------------------------------------------------

    # -- values ----------------------------------------------------------------------------------

    def value(self, value: Any) -> str:
        """An expression for a value."""
        if type(value) in _LITERALS:
            return repr(value)
        if type(value) is float:
            return self.number(value)
        name = self._memo.get(id(value))
        if name is None:
            self._keep.append(value)  # its id must stay its own
            name = self._memo[id(value)] = self._make(value)
        return name

    def has_made(self, value: Any) -> bool:
        """Whether a value is among what is made again."""
        return id(value) in self._memo

    def _make(self, value: Any) -> str:
        tracer = self.tracer
        known = tracer.world.known.get(id(value))
        if known is not None and not isinstance(value, PINNED):
            return self.source(known.source)
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        kind = type(value)
        maker = _MAKERS.get(kind)
        if maker is not None:
            return maker(self, value)
        if isinstance(value, type) and id(value) in tracer.world.made:
            raise CannotRebuild(f"class {value.__name__}, which was made in the trace")
        if is_constant(value) or isinstance(value, (*PINNED, *_POOLED)):
            return self.constant(value)
        if kind in _REDUCED:
            return self._reduced(value)
        if kind in VIEWS:
            make, mapping = view_of(value)
            return self.fresh(f"{self.constant(make)}({self.value(mapping)})")
        if isinstance(value, BaseException):
            return self._exception(value)
        return self._instance(value)

    def _tensor(self, value: torch.Tensor) -> str:
        node = self.tracer.recorder.nodes.get(id(value))
        if node is None and id(value) in self.tracer.world.wrappers:
            return self._wrapper(value)
        if node is None:
            raise CannotRebuild("a tensor that is not of the graph")
        check_free(value)
        if self.tracer.torch.differentiated and is_used_up(value):
            bare = self.output(
                self.tracer.recorder.add("call_method", "detach", (node,), {}, value.detach())
            )
            return self._named(
                value, f"{self.constant(used_up)}({bare}, {is_retained(self.tracer, value)})"
            )
        if any(value is hooked for hooked in self.tracer.torch.hooked):
            made_at = self.tracer.torch.hooked_at[id(value)]
            raise CannotRebuild("a tensor with a hook", made_at)
        if is_retained(self.tracer, value):  # results of one graph are no ancestors of each other
            made_at = self.tracer.torch.retained_at[id(value)]
            raise CannotRebuild(
                "a tensor that retains the gradient of what is computed from it", made_at
            )
        kind = type(value)
        if kind is torch.Tensor or not is_subclass(kind) or issubclass(kind, torch.nn.Parameter):
            return self.output(node)
        return self._named(
            value, f"{self.constant(of_class)}({self.output(node)}, {self.constant(kind)})"
        )

    def _wrapper(self, value: Any) -> str:
        if not wrappers.is_whole(value):
            raise CannotRebuild(f"a {type(value).__name__} that holds more than it takes apart")
        names, context = value.__tensor_flatten__()
        parts = self._dict_inline({name: getattr(value, name) for name in names})
        rest = self.items((type(value), context, tuple(value.size()), tuple(value.stride())))
        make = self.constant(wrappers.rebuilt)
        return self._named(value, f"(lambda kind, *rest: {make}(kind, {parts}, *rest))({rest})")

    def _array(self, value: Any) -> str:
        found = self.tracer.world.arrays.get(id(value))
        if found is None:
            raise CannotRebuild("an array that is not of the trace")
        return self._named(value, f"{self.constant(arrays.array_over)}({self.value(found[1])})")

    def _named(self, value: Any, text: str) -> str:
        """A variable for a value; what refers to itself through its parts was made by them."""
        done = self._memo.get(id(value))
        if done is None:
            # before its parts: they may refer to it
            done = self._memo[id(value)] = self.fresh(text)
        return done

    def items(self, values: Any) -> str:
        """Expressions of several values, comma separated."""
        return ", ".join([self.value(item) for item in values])

    def _filled(
        self, value: Any, around: tuple[str, str], add: str, parts: Callable[[], str]
    ) -> str:
        """A container that is made before its parts, which may refer to it; one statement where they do not."""
        name = self._named(value, "".join(around))
        at = len(self.lines) - 1
        text = parts().join(around)
        used = [*value, *value.values()] if isinstance(value, dict) else value
        if (
            len(self.lines) == at + 1
            and not any(item is value for item in used)
            and not self._has_unfinished(value)
        ):
            self.lines[at] = f"{name} = {text}"
        elif value:
            self._emit_hashing(value, f"{name}.{add}({text})")
        return name

    def _list(self, value: list[Any]) -> str:
        return self._filled(value, ("[", "]"), "extend", lambda: self.items(value))

    def _tuple(self, value: tuple[Any, ...]) -> str:
        if is_constant(value):
            return self.constant(value)
        return self._named(value, f"({self.items(value)},)")

    def _dict(self, value: dict[Any, Any]) -> str:
        pairs = value.items()
        return self._filled(
            value,
            ("{", "}"),
            "update",
            lambda: ", ".join([f"{self.value(k)}: {self.value(v)}" for k, v in pairs]),
        )

    def _set(self, value: set[Any]) -> str:
        return self._filled(value, ("set([", "])"), "update", lambda: self.items(value))

    def _frozenset(self, value: frozenset[Any]) -> str:
        text = f"frozenset([{self.items(value)}])"
        if self._has_unfinished(value):
            raise CannotRebuild(
                "a frozenset with an object that refers to it and has a hash of its own"
            )
        return self._named(value, text)

    def _has_unfinished(self, keys: Iterable[Any]) -> bool:
        """Is one of them (or of what they hold) an object that has no attributes yet, which its hash may read?"""
        return bool(self._unfinished) and any(
            self._has_unfinished(key)
            if type(key) in (tuple, frozenset)
            else id(key) in self._unfinished
            for key in keys
        )

    def _emit_hashing(self, keys: Iterable[Any], line: str) -> None:
        (self._late if self._has_unfinished(keys) else self.lines).append(line)

    def _deque(self, value: collections.deque[Any]) -> str:
        kind = self.constant(collections.deque)
        name = self._named(value, f"{kind}(maxlen={value.maxlen})")
        self.emit(f"{name}.extend([{self.items(value)}])")
        return name

    def _slice(self, value: slice) -> str:
        return self._named(value, f"slice({self.items((value.start, value.stop, value.step))})")

    def _cell(self, value: types.CellType) -> str:
        shared = self.tracer.outer_cells.get(id(value))
        if shared is not None:
            return self.source(shared[2])
        root = self.tracer.root
        if root is not None:
            for key, cell in root.cells.items():
                if cell is value and key in root.cell_sources:
                    return self.source(self.tracer.cell_source(root, key))
        name = self._named(value, f"{self.constant(types.CellType)}()")
        try:
            contents = value.cell_contents
        except ValueError:
            return name
        self.emit(f"{name}.cell_contents = {self.value(contents)}")
        return name

    def _function(self, value: types.FunctionType) -> str:
        if id(value) not in self.tracer.world.made:
            return self.constant(value)
        make, code = self.constant(types.FunctionType), self.constant(value.__code__, "code")
        names = self.constant(value.__globals__, "globals")
        defaults = self.value(value.__defaults__)
        closure = self.value(value.__closure__)
        done = self._memo.get(id(value))  # a recursive function was made by its own cell
        if done is not None:
            return done
        text = f"{make}({code}, {names}, {value.__name__!r}, {defaults}, {closure})"
        name = self._named(value, text)
        if value.__kwdefaults__:
            self.emit(f"{name}.__kwdefaults__ = {self.value(value.__kwdefaults__)}")
        if value.__annotations__:
            self.emit(f"{name}.__annotations__ = {self.constant(value.__annotations__)}")
        if value.__dict__:
            self.emit(f"{name}.__dict__.update({self.value(dict(value.__dict__))})")
        if value.__qualname__ != value.__name__:
            self.emit(f"{name}.__qualname__ = {value.__qualname__!r}")
        return name

    def _size(self, value: OpenSize) -> str:
        if self.sizes_in_graph:
            return self.output(self.tracer.recorder.size_node(value.expr))
        sizes = self.tracer.world.sizes
        if value.expr.symbols & sizes.table.unbacked:
            return self.output(self.tracer.recorder.size_node(value.expr))
        names = {
            s: Symbol(self.source(sizes.sources[s]), s.minimum, s.maximum)
            for s in value.expr.symbols
        }
        swapped = value.expr.replace({s: Expr.of(name) for s, name in names.items()})
        return self.fresh(str(swapped))

    def _method(self, value: types.MethodType) -> str:
        if isinstance(value.__self__, Generator):  # outside of a trace it is one of Python's
            return self._named(value, f"{self.value(value.__self__)}.{value.__name__}")
        inner: Any = value.__func__
        function, owner = self.value(inner), self.value(value.__self__)
        if not callable(inner):  # such a method only a class method makes
            return self._named(
                value, f"{self.constant(classmethod)}({function}).__get__(None, {owner})"
            )
        return self._named(value, f"{self.constant(types.MethodType)}({function}, {owner})")

    def _builtin_method(self, value: Any) -> str:
        known = self.tracer.world.known.get(id(value))
        pinned = known is not None and isinstance(known.source, Const)
        if pinned or isinstance(value.__self__, types.ModuleType | type | None):
            return self.constant(value)
        found = unbound(value)
        bases = type(value.__self__).__mro__
        first = next(
            (vars(base)[value.__name__] for base in bases if value.__name__ in vars(base)), found
        )
        # a subclass has another: it came from super()
        if first is not found and found is not MISSING:
            return self._named(
                value, f"{self.constant(found)}.__get__({self.value(value.__self__)})"
            )
        return self._named(value, f"{self.value(value.__self__)}.{value.__name__}")

    def _partial(self, value: functools.partial[Any]) -> str:
        make = self.constant(functools.partial)
        keywords = "".join(f", {k}={self.value(v)}" for k, v in value.keywords.items())
        parts = self.items((value.func, *value.args))
        return self._named(value, f"{make}({parts}{keywords})")

    def _generator(self, value: Generator) -> str:
        if value.started:
            raise CannotRebuild("a generator that has started", value.made_at)
        keywords = "".join(f", {k}={self.value(v)}" for k, v in value.kwargs.items())
        function = self.value(value.function)
        return self._named(value, f"{function}({self.items(value.args)}{keywords})")

    def _handle(self, value: Handle) -> str:
        raise CannotRebuild("the handle of a hook", value.made_at)

    def _callback(self, value: Callback) -> str:
        return self.value(value.function)

    def _reduced(self, value: Any) -> str:
        make, args, *state = value.__reduce__()
        name = self._named(value, f"{self.value(make)}({self.items(args)})")
        if state and state[0] is not None:
            self.emit(f"{name}.__setstate__({self.value(state[0])})")
        return name

    def _traceback(self, value: types.TracebackType) -> str:
        error = self.tracer.exceptions.owner_of(value)
        if error is None:
            return self.constant(value)
        # now: the next raise makes a longer one
        return self.fresh(f"{self.value(error)}.__traceback__")

    def _exception(self, value: BaseException) -> str:
        kind: Any = type(value)
        base: Any = native_base(kind)
        made = f"{self.constant(base)}.__new__({self.value(kind)}, {self.items(value.args)})"
        name = self._named(value, made)
        blank = base.__new__(kind, *value.args)
        if blank.args != value.args:
            self.emit(f"{name}.args = ({self.items(value.args)}{',' if value.args else ''})")
        if value.__dict__:
            self.emit(f"{name}.__dict__.update({self.value(dict(value.__dict__))})")
        for member in members_of(kind):
            found = held(member, value)
            if found is not MISSING and found is not held(member, blank):
                self.emit(f"{self.constant(member)}.__set__({name}, {self.value(found)})")
        for link in ("__cause__", "__context__"):
            if getattr(value, link) is not None:
                self.emit(f"{name}.{link} = {self.value(getattr(value, link))}")
        if value.__suppress_context__ != (value.__cause__ is not None):
            self.emit(f"{name}.__suppress_context__ = {value.__suppress_context__}")
        if value.__traceback__ is not None:
            self.emit(f"{name}.__traceback__ = {self.constant(value.__traceback__)}")
        return name

    # -- instances of Python classes ---------------------------------------------------------------

    def _instance(self, value: Any) -> str:
        kind: Any = type(value)
        if isinstance(value, tuple):
            # torch.return_types have a C constructor of their own
            made = (base for base in kind.__mro__ if isinstance(base.__dict__.get("__new__"), _C))
            parts = self.fresh(f"({self.items(value)}{',' if len(value) else ''})")
            text = f"{self.constant(next(made))}.__new__({self.value(kind)}, {parts})"
            name = self._named(value, text)
            return self._attributes(name, value)
        name = self._named(value, self._blank(value))
        if kind.__hash__ is not object.__hash__:
            self._unfinished.add(id(value))
        self._fill(name, value)
        self._attributes(name, value)
        self._unfinished.discard(id(value))
        if not self._unfinished:
            self.lines += self._late
            self._late.clear()
        return name

    def _attributes(self, name: str, value: Any) -> str:
        kind: Any = type(value)
        attributes = getattr(value, "__dict__", None)
        if type(attributes) is dict and attributes:
            self.emit(f"{name}.__dict__.update({self._dict_inline(attributes)})")
        for slot in slots_of(kind):
            if slot not in {"__dict__", "__weakref__"} and hasattr(value, slot):
                store = self.constant(object.__setattr__)
                self.emit(f"{store}({name}, {slot!r}, {self.value(getattr(value, slot))})")
        return name

    def _dict_inline(self, value: dict[str, Any]) -> str:
        return "{" + ", ".join([f"{k!r}: {self.value(v)}" for k, v in value.items()]) + "}"

    def _blank(self, value: Any) -> str:
        kind = type(value)
        make = native_base(kind)
        if issubclass(kind, OfTrace) or make not in _BLANKS or not pure.is_own(kind):
            raise CannotRebuild(f"an object of type {kind.__module__}.{kind.__qualname__}")
        return f"{self.constant(make)}.__new__({self.value(kind)})"

    def _fill(self, name: str, value: Any) -> None:
        base = native_base(type(value))
        if issubclass(base, dict):
            if isinstance(value, collections.defaultdict):  # its C class may be made on the heap
                self.emit(f"{name}.default_factory = {self.value(value.default_factory)}")
            store = self.constant(base.__setitem__)
            ordered = issubclass(base, collections.OrderedDict)  # its order is its own
            for key, item in (collections.OrderedDict if ordered else dict).items(value):
                self._emit_hashing(
                    dict.keys(value), f"{store}({name}, {self.value(key)}, {self.value(item)})"
                )
        elif base is list and len(value):
            self.emit(f"list.extend({name}, [{self.items(list.__iter__(value))}])")
        elif base is set and len(value):
            self._emit_hashing(
                list(set.__iter__(value)),
                f"set.update({name}, [{self.items(set.__iter__(value))}])",
            )


_MAKERS: Final[dict[type, Callable[[Rebuilder, Any], str]]] = {
    list: Rebuilder._list,
    tuple: Rebuilder._tuple,
    dict: Rebuilder._dict,
    set: Rebuilder._set,
    frozenset: Rebuilder._frozenset,
    collections.deque: Rebuilder._deque,
    slice: Rebuilder._slice,
    types.CellType: Rebuilder._cell,
    types.FunctionType: Rebuilder._function,
    types.MethodType: Rebuilder._method,
    types.BuiltinFunctionType: Rebuilder._builtin_method,
    types.MethodWrapperType: Rebuilder._builtin_method,
    functools.partial: Rebuilder._partial,
    super: lambda self, value: self._named(
        value, f"super({self.items((value.__thisclass__, value.__self__))})"
    ),
    Generator: Rebuilder._generator,
    Handle: Rebuilder._handle,
    types.TracebackType: Rebuilder._traceback,
    Callback: Rebuilder._callback,
    Pending: lambda self, value: self.fresh(f"{self.value(value.tensor)}.item()"),
    numpy.ndarray: Rebuilder._array,
    arrays.ArrayNumber: lambda self, value: self.fresh(
        f"{self.constant(arrays.number_in)}({self.value(value.tensor)})"
    ),
    OpenSize: Rebuilder._size,
    Float: lambda self, value: self.source(value.source),
    Claim: lambda self, value: self.output(value.node),
    OpenShape: lambda self, value: self.fresh(
        f"{self.constant(torch.Size)}(({self.items(value)},))"
    ),
}
