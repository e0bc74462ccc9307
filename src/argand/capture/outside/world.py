"""capture.outside.world: the outside of a trace: where values come from, and what was relied upon.

In: raw values read from the frame's world, each with its `Source`. Out: the value the interpreter works
with (a fake for a tensor, a shadow copy for a mutable container, the object itself otherwise) and the
guards that make every later call of the compiled code right.

Constants are guarded at the moment they are read and are plain values from then on. Objects are known
by identity: one fake per tensor, one shadow per container, however many sources it has.
"""

from __future__ import annotations

import collections
import functools
import operator
import sys
import types
from collections.abc import Callable
from typing import Any, Final

import numpy
import torch

from argand.bytecode import append_only, collected_on_stack, is_resume, used_names
from argand.capture.attempts import ReadLists
from argand.capture.outside import arrays, pure
from argand.capture.outside.kinds import (
    EQUAL_TYPES,
    HARMLESS,
    HEAP_TYPE,
    PINNED,
    PLAIN_TENSORS,
    SCALARS,
    SINGLETONS,
    SINGLETONS_EXACT,
    is_constant,
    is_object_key,
    is_settled,
    scalar_in,
    tuple_like,
)
from argand.capture.outside.known import Known as Known
from argand.capture.outside.known import Namespace as Namespace
from argand.capture.outside.known import Shadow as Shadow
from argand.capture.outside.known import contents, parts_of
from argand.capture.outside.subclasses import as_it_was_made, is_subclass, like
from argand.capture.outside.wrappers import read_wrapper
from argand.capture.sizes.frame_sizes import FrameSizes
from argand.ops.fakes import fake_of
from argand.protocol import Bypass
from argand.runtime import guards
from argand.runtime.guards import Guard, GuardKind, Source, tensor_spec
from argand.runtime.levels import below_levels
from argand.sizes.plan import SizePlace, SizePlan
from argand.sizes.refusals import Stop
from argand.support.errors import Location

_BOUND: Final = (types.BuiltinFunctionType, types.MethodWrapperType)
_PLACES: Final = (types.ModuleType, type, type(None))  # of which a C function is no method
_FEW: Final = 8  # items of a container that are guarded one by one: better messages
_SAID_ONCE: Final = frozenset(
    {GuardKind.TENSOR, GuardKind.EQUALS, GuardKind.TYPE_IS, GuardKind.ID_IS, GuardKind.DICT_KEYS}
    | {GuardKind.HOLDS, GuardKind.OBJECT_KEYS}
)
CONTAINERS: Final = (list, dict, set, collections.deque)
SENTINEL: Final = object()
_WITHOUT_KEY: Final = (guards.DictOf, guards.TypeOf)


class World:
    """Everything a trace knows about the outside."""

    def __init__(self, place: Callable[[], Location | None], plan: SizePlan) -> None:
        self.sizes = FrameSizes(plan, place)
        self.guards: list[Guard] = []
        self.known: dict[int, Known] = {}
        self.shadows: list[Shadow] = []
        self.wrappers: set[int] = set()  # ids of tensors that hold other tensors
        self.arrays: dict[int, tuple[Any, torch.Tensor]] = {}  # id(array of numpy's) -> it, its tensor in the trace
        self.inputs: dict[int, Known] = {}  # id(fake) -> the tensor it stands for
        self._plain: Any = None  # what turns the overrides of subclasses off, once there is one
        self._place = place
        self._children: dict[tuple[Any, ...], Source] = {}
        self._memo: dict[int, Any] = {}  # id(source) -> value
        self._said: set[tuple[Any, ...]] = set()
        self._keep: list[Any] = []
        self.opaque: set[int] = set()  # outside objects whose state only C code sees
        self.pinned: set[int] = set()  # functions guarded by identity, defaults and all
        self.whole = False  # read every list, even one that is only appended to
        self.made: set[int] = set()  # functions, classes and modules made inside the trace
        # What no guard says because it cannot change while the process lives (see `stored`):
        self.names: dict[tuple[int, str], tuple[dict[str, Any], Any]] = {}  # found in modules
        self.inlined: dict[int, types.FunctionType] = {}
        self.signed: dict[int, types.FunctionType] = {}  # whose signature was asked for
        self.asked: dict[tuple[Any, tuple[Any, ...]], Location | None] = {}  # questions about torch's state, and where
        self.questions: list[tuple[type, type, bool]] = []  # is the one a subclass of the other, an abstract one?
        self.bypass: Bypass | None = None  # why another process must not rely on this trace

    def close(self) -> None:
        """Let go of the objects of the call; guards and names stay with what was captured."""
        for held in (self.known, self.inputs, self._memo, self._keep, self.shadows, self.arrays):
            held.clear()
        if self._plain is not None:
            self._plain.__exit__(None, None, None)

    def hold(self, value: Any) -> None:
        """Keep an object alive, so that its id stays its own."""
        self._keep.append(value)

    def keep_off_disk(self, reason: str) -> None:
        """Another process must not rely on this trace; the first reason is kept."""
        self.bypass = self.bypass or Bypass(reason)

    def changed(self) -> list[list[int]]:
        """What containers from outside hold that the trace has changed."""
        parts = [(parts_of(shadow.known.value), parts_of(shadow.before or ())) for shadow in self.shadows]
        return [now for now, before in parts if now != before]

    # -- sources ---------------------------------------------------------------------------------

    def child(self, kind: type, base: Source | None, key: Any) -> Source:
        """The source reached from `base`; the same object for the same arguments, so ids are keys."""
        full = (kind, id(base), type(key), key)
        found = self._children.get(full)
        if found is None:
            roots = (key,) if base is None else (base,) if kind in _WITHOUT_KEY else (base, key)
            found = kind(*roots)
            self._children[full] = found
        return found

    def const(self, value: Any) -> Source:
        """The source of an object the guard program itself holds."""
        full = (guards.Const, id(value))
        found = self._children.get(full)
        if found is None:
            found = self._children[full] = guards.Const(value)
        return found

    def source_of(self, value: Any) -> Source | None:
        """Where an outside object lives; None for constants and what was made inside."""
        known = self.known.get(id(value))
        if known is not None:
            return known.source
        if isinstance(value, (*PINNED, types.FunctionType)) and id(value) not in self.made:
            return self.const(value)
        return None

    def object(self, raw: Any) -> Any:
        """The trace's view of an object that is known by identity and not kept alive: the code ends with it."""
        place = guards.Object(raw)
        return self.read(self._children.setdefault((guards.Object, id(place.reference)), place), raw)

    def note(self, namespace: dict[str, Any], name: str, found: Any = SENTINEL) -> None:
        """Remember what a module held under a name (SENTINEL: nothing), for other processes to check."""
        self.names[id(namespace), name] = (namespace, found)

    def ask(self, function: Any, args: tuple[Any, ...] = ()) -> None:
        """The trace asked what `function(*args)` gives: it must give the same at the start of each call."""
        self.asked.setdefault((function, args), self._place())

    def guard(self, kind: GuardKind, source: Source | None, expected: Any = None) -> None:
        """Rely on a fact; the same fact is noted once."""
        if kind not in _SAID_ONCE:  # those of `read` are, a source is read once
            key = (kind, id(source), expected)
            if key in self._said:
                return
            self._said.add(key)
        self.guards.append(Guard(kind, source, expected, self._place()))

    # -- values ----------------------------------------------------------------------------------

    def read(self, source: Source, raw: Any) -> Any:
        """The trace's view of what was found at `source`, guarded."""
        found = self._memo.get(id(source), SENTINEL)
        if found is not SENTINEL:
            return found
        value = self._memo[id(source)] = self._convert(source, raw)
        return value

    def appended(self, source: Source, raw: Any) -> Any:
        """The trace's view of a list it only appends to: neither its length nor its items are guarded."""
        if type(raw) is not list or self.whole:
            return self.read(source, raw)
        known = self.known.get(id(raw))
        if known is not None:
            return self._meet_again(source, known)
        self.guard(GuardKind.TYPE_IS, source, list)
        value: list[Any] = self.register(source, raw, [])
        known = self.known[id(raw)]
        known.partial = True
        self.shadows.append(Shadow(known, None, None))
        return value

    def item(self, base: Source, key: Any, raw: Any) -> Any:
        """`base[key]`, read by exact C access."""
        return self.read(self.child(guards.Item, base, key), raw)

    def attribute(self, base: Source, name: str, raw: Any) -> Any:
        """`base.name`, read by getattr."""
        return self.read(self.child(guards.Attr, base, name), raw)

    def dict_attribute(self, base: Source, name: str, raw: Any) -> Any:
        """`base.__dict__[name]`."""
        return self.read(self.child(guards.DictAttr, base, name), raw)

    def namespace(self, source: Source, raw: dict[str, Any]) -> Any:
        """The dict of a module: handed around, not looked into, for nobody reads all of it."""
        known = self.known.get(id(raw))
        if known is not None:
            return self._meet_again(source, known)
        self.guard(GuardKind.TYPE_IS, source, dict)
        value = Namespace()
        self.opaque.add(id(value))
        return self.register(source, raw, value)

    def register(self, source: Source, raw: Any, value: Any) -> Any:
        """Know `raw` under `source`, seen by the trace as `value`."""
        known = Known(raw, value, source)
        self._keep.append(known)
        self.known[id(raw)] = known
        if value is not raw:
            self.known[id(value)] = known
        return value

    def _convert(self, source: Source, raw: Any) -> Any:  # noqa: C901, one row per kind of value
        kind = type(raw)
        if kind in (int, float) and self._is_open(source, raw):
            return self._number(source, raw)
        if kind in SCALARS:
            self.guard(GuardKind.EQUALS, source, raw)
            return raw
        if isinstance(raw, SINGLETONS) or kind in SINGLETONS_EXACT:
            self.guard(GuardKind.ID_IS, source, raw)
            return raw
        if kind in EQUAL_TYPES and (is_constant(raw) or (kind is frozenset and all(map(is_settled, raw)))):
            self.guard(GuardKind.EQUALS, source, raw)
            return raw
        known = self.known.get(id(raw))
        if known is not None:
            return self._meet_again(source, known, reads=True)
        if isinstance(raw, torch.Tensor):
            return self._tensor(source, raw)
        if kind is numpy.ndarray:
            return self._opaque(source, raw) if (array := arrays.read_array(self, source, raw)) is None else array
        if isinstance(raw, numpy.dtype) and arrays.is_known(raw):
            self.guard(GuardKind.ID_IS, source, raw)  # there is one of each
            return raw
        if isinstance(raw, _BOUND) and not isinstance(raw.__self__, _PLACES):
            return self._bound(source, raw)
        if isinstance(raw, PINNED):
            self.guard(GuardKind.ID_IS, source, raw)
            return self.register(source, raw, raw)
        if kind is types.FunctionType:
            return self._function(source, raw)
        if isinstance(raw, tuple):
            return self._tuple(source, raw)
        self.guard(GuardKind.TYPE_IS, source, kind)
        scalar = scalar_in(raw)
        if scalar is not None:
            self.guard(GuardKind.HOLDS, source, scalar)
            return self.register(source, raw, raw)
        derived = isinstance(raw, set) and kind is not set  # no guard says what one holds
        if derived or (
            isinstance(raw, set | collections.deque)
            and not all(map(is_settled if isinstance(raw, set) else is_constant, raw))
        ):
            return self._opaque(source, raw)
        if isinstance(raw, CONTAINERS):
            return self._shadow(source, raw)
        return self._object(source, raw)

    def _is_open(self, source: Source, raw: float) -> bool:
        plan = self.sizes.plan
        if plan.opens_nothing:
            return False
        return plan.opens_number(str(source), raw, type(source) is guards.Local)

    def _number(self, source: Source, raw: float) -> Any:
        self.guard(GuardKind.TYPE_IS, source, type(raw))
        place = SizePlace(str(source), source, raw)
        if type(raw) is int:
            return self.sizes.wrap(self.sizes.open(place))
        self.keep_off_disk("a float that is left open")
        return self.sizes.open_float(place)

    def _meet_again(self, source: Source, known: Known, reads: bool = False) -> Any:
        """A second source of an object: both must give the same one from now on."""
        if reads and known.partial:
            raise Stop(ReadLists())
        if source is not known.source:
            if isinstance(known.source, guards.Const) or isinstance(known.raw, PINNED):
                self.guard(GuardKind.ID_IS, source, known.raw)
            else:
                self.guard(GuardKind.SAME_OBJECT, source, known.source)
        return known.value

    def _tensor(self, source: Source, raw: torch.Tensor) -> torch.Tensor:
        plain = type(raw) in PLAIN_TENSORS or is_subclass(type(raw))
        with torch._C.DisableTorchFunctionSubclass(), below_levels(), as_it_was_made(raw):
            plain = plain and raw.layout is torch.strided and not raw._is_zerotensor() and raw.device.type == "cpu"
            fake = self._fake(source, raw) if plain else read_wrapper(self, source, raw)
        if fake is None:
            return self._opaque(source, raw)
        if type(raw) not in PLAIN_TENSORS:
            self.plain_from_here()  # not above: it ends with the trace, after what is entered there
        if not plain:
            return fake
        self.register(source, raw, fake)
        self.inputs[id(fake)] = self.known[id(fake)]
        return fake

    def plain_from_here(self) -> None:
        """A tensor of a subclass is in the trace: nothing of ours that looks at it shall run its overrides."""
        if self._plain is None:
            self._plain = torch._C.DisableTorchFunctionSubclass()
            self._plain.__enter__()

    def _fake(self, source: Source, raw: torch.Tensor) -> torch.Tensor:
        opened = self.sizes.fake(source, raw)
        if opened is None:
            self.sizes.table.meet(raw.shape)
            self.guard(GuardKind.TENSOR, source, tensor_spec(raw))
            fake = fake_of(raw)
        else:
            self.guard(GuardKind.TENSOR, source, tensor_spec(raw, free=opened[1]))
            fake = opened[0].requires_grad_(raw.requires_grad)
        if type(raw) not in PLAIN_TENSORS:
            self.keep_off_disk(f"a tensor of the class {type(raw).__name__}")
        return like(raw, fake)

    def _opaque(self, source: Source, raw: Any) -> Any:
        """An object the trace may hand around, but not look into."""
        self.guard(GuardKind.TYPE_IS, source, type(raw))
        self.opaque.add(id(raw))
        return self.register(source, raw, raw)

    def _function(self, source: Source, raw: types.FunctionType) -> Any:
        """Functions in a module are pinned; others may be made anew for each call: pin their code."""
        owner = sys.modules.get(raw.__module__ or "")
        if isinstance(source, guards.TypeAttr) or (owner and owner.__dict__.get(raw.__name__) is raw):
            self.guard(GuardKind.ID_IS, source, raw)
            self.pinned.add(id(raw))
        else:
            self.guard(GuardKind.TYPE_IS, source, types.FunctionType)
            code = self.child(guards.Attr, source, "__code__")
            self.guard(GuardKind.ID_IS, code, raw.__code__)
        return self.register(source, raw, raw)

    def pin(self, value: Any) -> None:
        """The trace does not look inside: what a function's closure, a path or a pattern holds is known by identity only."""
        known, kind = self.known.get(id(value)), type(value)
        if known is None or known.raw is not value or id(value) in self.pinned or isinstance(value, PINNED):
            return
        of_python = str(kind.__module__).partition(".")[0] in sys.stdlib_module_names and kind not in HARMLESS
        if kind is types.FunctionType or of_python:
            self.guard(GuardKind.ID_IS, known.source, value)
            self.pinned.add(id(value))

    def identify(self, value: Any) -> None:
        """The trace asked which object it is: by `id`, or by a hash or text made of it."""
        known = self.known.get(id(value))
        if known is None or known.raw is not value or isinstance(known.source, guards.Const):
            return
        if id(value) not in self.pinned and not isinstance(value, PINNED):
            self.guard(GuardKind.ID_IS, known.source, value)
            self.pinned.add(id(value))

    def _bound(self, source: Source, raw: Any) -> Any:
        """A C method bound to an object: the same method of what the trace sees of the object."""
        self.guard(GuardKind.TYPE_IS, source, type(raw))
        self.guard(GuardKind.EQUALS, self.child(guards.Attr, source, "__name__"), raw.__name__)
        read = self.appended if raw.__name__ == "append" else self.read
        owner = read(self.child(guards.Attr, source, "__self__"), raw.__self__)
        if owner is raw.__self__:
            return self._opaque(source, raw)
        return self.register(source, raw, getattr(owner, raw.__name__))

    def _tuple(self, source: Source, raw: tuple[Any, ...]) -> Any:
        plain = type(raw) is tuple and is_constant(raw)
        if plain and (len(raw) > _FEW or not any(type(item) is float for item in raw)):
            self.guard(GuardKind.EQUALS, source, raw)
            return raw
        self.guard(GuardKind.TYPE_IS, source, type(raw))
        self.guard(GuardKind.LENGTH, source, len(raw))
        items = [self.item(source, i, item) for i, item in enumerate(tuple.__iter__(raw))]
        if plain and all(map(operator.is_, items, raw)):  # each may be left open if it varies
            return raw
        value = tuple(items) if type(raw) is tuple else tuple_like(raw, items)
        if hasattr(raw, "__dict__"):
            self._copy_attributes(source, raw, value)
        return self.register(source, raw, value)

    def _copy_attributes(self, source: Source, raw: Any, value: Any) -> dict[str, Any]:
        self.guard(GuardKind.DICT_KEYS, self.child(guards.DictOf, source, None), tuple(raw.__dict__))
        attributes = {name: self.dict_attribute(source, name, item) for name, item in raw.__dict__.items()}
        value.__dict__.update(attributes)
        return attributes

    def _shadow(self, source: Source, raw: Any) -> Any:
        kind: Any = type(raw)
        if isinstance(raw, collections.OrderedDict) and any(map(is_object_key, dict.keys(raw))):
            self.opaque.add(id(raw))  # its order is no guard's
            return self.register(source, raw, raw)
        value: Any = kind.__new__(kind)
        self.register(source, raw, value)
        known = self.known[id(raw)]
        before: Any
        if kind in (list, dict) and len(raw) > _FEW and is_constant(contents(raw)):
            self.guard(GuardKind.EQUALS, source, kind(raw))  # one row says it all
            (value.extend if kind is list else value.update)(raw)
            before = kind(raw)
        elif isinstance(raw, dict) and any(map(is_object_key, dict.keys(raw))):
            before = self._fill_by_objects(source, raw, value)
        elif isinstance(raw, dict):
            ordered = isinstance(raw, collections.OrderedDict)  # has an order of its own
            keys = tuple((collections.OrderedDict if ordered else dict).keys(raw))
            self.guard(GuardKind.DICT_KEYS, source, keys)
            self._know_parts(keys)
            if isinstance(raw, collections.defaultdict):
                value.default_factory = self.attribute(source, "default_factory", raw.default_factory)
            store = collections.OrderedDict.__setitem__ if ordered else dict.__setitem__
            for key in keys:
                store(value, key, self.item(source, key, dict.__getitem__(raw, key)))
            before = dict(dict.items(value))
        elif isinstance(raw, set):
            self.guard(GuardKind.EQUALS, source, set(raw))
            set.update(value, raw)
            before = frozenset(raw)
        else:
            self.guard(GuardKind.LENGTH, source, len(raw))
            if isinstance(raw, collections.deque):
                self.guard(GuardKind.EQUALS, self.child(guards.Attr, source, "maxlen"), raw.maxlen)
                value = collections.deque(maxlen=raw.maxlen)
                known.value = value
                self.known[id(value)] = known
                self.guard(GuardKind.EQUALS, source, collections.deque(raw, raw.maxlen))
                value.extend(raw)
            else:
                for i, item in enumerate(list.__iter__(raw)):
                    list.append(value, self.item(source, i, item))
            before = list(value)
        attributes = None
        if kind.__flags__ & HEAP_TYPE and hasattr(raw, "__dict__"):
            attributes = self._copy_attributes(source, raw, value)
        self.shadows.append(Shadow(known, before, attributes))
        return value

    def _know_parts(self, keys: tuple[Any, ...]) -> None:
        """Objects in keys that are tuples stay what they are."""
        for part in [part for key in keys if type(key) is tuple for part in key if is_object_key(part)]:
            self.read(self.const(part), part)

    def _fill_by_objects(self, source: Source, raw: dict[Any, Any], value: dict[Any, Any]) -> dict[Any, Any]:
        """Fill the shadow of a dict with objects as keys, which are known by identity: tensors by their fakes."""
        self.keep_off_disk("objects as keys of a dict")
        places = [guards.Object(key) if is_object_key(key) else None for key in dict.keys(raw)]
        keys = [key if place is None else place.reference for place, key in zip(places, dict.keys(raw), strict=True)]
        self.guard(GuardKind.OBJECT_KEYS, source, tuple(keys))
        if isinstance(raw, collections.defaultdict):
            value.default_factory = self.attribute(source, "default_factory", raw.default_factory)  # type: ignore[attr-defined]
        for place, (key, item) in zip(places, dict.items(raw), strict=True):
            if place is None:
                dict.__setitem__(value, key, self.item(source, key, item))
                continue
            root = self._children.setdefault((guards.Object, id(place.reference)), place)
            found = self.read(root, key)
            dict.__setitem__(value, found, self.read(self.child(guards.Keyed, source, root), item))
        return dict(dict.items(value))

    def _partial_arguments(self, source: Source, raw: functools.partial[Any]) -> tuple[Any, ...]:
        """What a partial holds. A waiting resume function says itself which of its arguments matter."""
        place = self.child(guards.Attr, source, "args")
        code = raw.func.__code__ if type(raw.func) is types.FunctionType else None
        if code is None or not is_resume(code):
            found: tuple[Any, ...] = self.read(place, raw.args)
            return found
        self.guard(GuardKind.LENGTH, place, len(raw.args))
        used, grown = used_names(code), append_only(code) | collected_on_stack(code)
        values: list[Any] = []
        for i, (name, item) in enumerate(zip(code.co_varnames, raw.args, strict=False)):
            read = self.appended if name in grown else self.read
            values.append(read(self.child(guards.Item, place, i), item) if name in used else None)
        return tuple(values)

    def _object(self, source: Source, raw: Any) -> Any:
        kind = type(raw)
        if kind is types.MethodType:
            function = self.attribute(source, "__func__", raw.__func__)
            owner = self.attribute(source, "__self__", raw.__self__)
            return self.register(source, raw, types.MethodType(function, owner))
        if kind is functools.partial:
            function = self.attribute(source, "func", raw.func)
            args = self._partial_arguments(source, raw)
            keywords = self.attribute(source, "keywords", raw.keywords)
            value: Any = functools.partial(lambda: None)  # a partial of a partial would be flattened
            value.__setstate__((function, tuple(args), dict(keywords), {}))
            return self.register(source, raw, value)
        if kind not in HARMLESS and not (kind.__flags__ & HEAP_TYPE and pure.is_value(kind)):
            self.opaque.add(id(raw))
        return self.register(source, raw, raw)
