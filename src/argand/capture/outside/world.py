"""capture.outside.world: the outside of a trace: where values come from, and what was relied upon.

In: raw values read from the frame's world, each with its `Source`. Out: the value the interpreter works
with (a fake for a tensor, a shadow copy for a mutable container, the object itself otherwise) and the
guards that make every later call of the compiled code right.

Constants are guarded at the moment they are read and are plain values from then on. Objects are known
by identity: one fake per tensor, one shadow per container, however many sources it has.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy
import torch

from argand.capture.attempts import ReadLists
from argand.capture.outside import arrays, iterators, pure
from argand.capture.outside.containers import read_container, read_tuple
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
    is_member,
    is_settled,
    scalar_in,
)
from argand.capture.outside.known import Known as Known
from argand.capture.outside.known import LoadedModules as LoadedModules
from argand.capture.outside.known import Namespace as Namespace
from argand.capture.outside.known import Shadow as Shadow
from argand.capture.outside.known import parts_of
from argand.capture.outside.partials import read_partial
from argand.capture.outside.subclasses import as_it_was_made, is_subclass, like
from argand.capture.outside.wrappers import read_wrapper
from argand.capture.sizes.frame_sizes import FrameSizes
from argand.ops.fakes import fake_of
from argand.protocol import Bypass
from argand.runtime import sources
from argand.runtime.guards import Guard, GuardKind, tensor_spec
from argand.runtime.levels import below_levels
from argand.runtime.sources import Source
from argand.sizes.plan import SizePlace, SizePlan
from argand.sizes.refusals import Stop
from argand.support.errors import Location

_BOUND: Final = (types.BuiltinFunctionType, types.MethodWrapperType)
_PLACES: Final = (types.ModuleType, type, type(None))  # of which a C function is no method
_SAID_ONCE: Final = frozenset(
    {GuardKind.TENSOR, GuardKind.EQUALS, GuardKind.TYPE_IS, GuardKind.ID_IS, GuardKind.DICT_KEYS}
    | {GuardKind.HOLDS, GuardKind.OBJECT_KEYS}
)
CONTAINERS: Final = (list, dict, set, collections.deque)
SENTINEL: Final = object()
_WITHOUT_KEY: Final = (sources.DictOf, sources.TypeOf)


class World:
    """Everything a trace knows about the outside."""

    def __init__(self, place: Callable[[], Location | None], plan: SizePlan) -> None:
        self.sizes = FrameSizes(plan, place)
        self.guards: list[Guard] = []
        self.known: dict[int, Known] = {}
        self.shadows: list[Shadow] = []
        self.iterators: list[iterators.Opened] = []
        self.opens_iterators = False  # those from outside; otherwise they are handed on only
        self.wrappers: set[int] = set()  # ids of tensors that hold other tensors
        self.arrays: dict[
            int, tuple[Any, torch.Tensor]
        ] = {}  # id(array of numpy's) -> it, its tensor in the trace
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
        self.met: list[Any] | None = None  # what is read, while somebody watches
        self.made: set[int] = set()  # functions, classes and modules made inside the trace
        # What no guard says because it cannot change while the process lives (see `stored`):
        self.names: dict[tuple[int, str], tuple[dict[str, Any], Any]] = {}  # found in modules
        self.inlined: dict[int, types.FunctionType] = {}
        self.signed: dict[int, types.FunctionType] = {}  # whose signature was asked for
        self.asked: dict[
            tuple[Any, tuple[Any, ...]], Location | None
        ] = {}  # questions about torch's state, and where
        self.questions: list[
            tuple[type, type, bool]
        ] = []  # is the one a subclass of the other, an abstract one?
        self.bypass: Bypass | None = None  # why another process must not rely on this trace

    def close(self) -> None:
        """Let go of the objects of the call; guards and names stay with what was captured."""
        for held in (
            self.known,
            self.inputs,
            self._memo,
            self._keep,
            self.shadows,
            self.arrays,
            self.iterators,
        ):
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
        return [parts_of(shadow.known.value) for shadow in self.shadows if shadow.is_changed()]

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
        full = (sources.Const, id(value))
        found = self._children.get(full)
        if found is None:
            found = self._children[full] = sources.Const(value)
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
        return self.read(self.key(sources.Object(raw)), raw)

    def key(self, place: sources.Object) -> Source:
        """The one source of an object that is known by identity."""
        return self._children.setdefault((sources.Object, id(place.reference)), place)

    def note(self, namespace: dict[str, Any], name: str, found: Any = SENTINEL) -> None:
        """Remember what a module held under a name (SENTINEL: nothing), for other processes to check."""
        self.names[id(namespace), name] = (namespace, found)

    def ask(self, function: Any, args: tuple[Any, ...] = ()) -> None:
        """The trace asked what `function(*args)` gives: it must give the same at the start of each call."""
        self._see(self.asked)  # what the trace has set is no constant
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

    @contextlib.contextmanager
    def watching(self) -> Iterator[list[Any]]:
        """Everything that is read from outside, once more or for the first time."""
        before, met = self.met, list[Any]()
        self.met = met
        try:
            yield met
        finally:
            self.met = before
            if before is not None:
                before.extend(met)

    def _see(self, raw: Any) -> None:
        if self.met is not None:
            self.met.append(raw)

    def read(self, source: Source, raw: Any) -> Any:
        """The trace's view of what was found at `source`, guarded."""
        self._see(raw)
        found = self._memo.get(id(source), SENTINEL)
        if found is not SENTINEL:
            return found
        value = self._memo[id(source)] = self._convert(source, raw)
        return value

    def appended(self, source: Source, raw: Any) -> Any:
        """The trace's view of a list it only appends to: neither its length nor its items are guarded."""
        self._see(raw)
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
        return self.read(self.child(sources.Item, base, key), raw)

    def attribute(self, base: Source, name: str, raw: Any) -> Any:
        """`base.name`, read by getattr."""
        return self.read(self.child(sources.Attr, base, name), raw)

    def dict_attribute(self, base: Source, name: str, raw: Any) -> Any:
        """`base.__dict__[name]`."""
        return self.read(self.child(sources.DictAttr, base, name), raw)

    def namespace(self, source: Source, raw: dict[str, Any]) -> Any:
        """The dict of a module: handed around, not looked into, for nobody reads all of it."""
        self._see(raw)
        known = self.known.get(id(raw))
        if known is not None:
            return self._meet_again(source, known)
        self.guard(GuardKind.TYPE_IS, source, dict)
        value = Namespace()
        self.opaque.add(id(value))
        return self.register(source, raw, value)

    def _loaded(self, source: Source, raw: dict[str, Any]) -> Any:
        self.guard(GuardKind.ID_IS, source, raw)
        value = LoadedModules()
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
        if isinstance(raw, SINGLETONS) or kind in SINGLETONS_EXACT or is_member(raw):
            self.guard(GuardKind.ID_IS, source, raw)
            return raw
        if kind in EQUAL_TYPES and (
            is_constant(raw) or (kind is frozenset and all(map(is_settled, raw)))
        ):
            self.guard(GuardKind.EQUALS, source, raw)
            return raw
        known = self.known.get(id(raw))
        if known is not None:
            return self._meet_again(source, known, reads=True)
        if isinstance(raw, torch.Tensor):
            return self._tensor(source, raw)
        if kind is numpy.ndarray:
            return (
                self._opaque(source, raw)
                if (array := arrays.read_array(self, source, raw)) is None
                else array
            )
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
        if raw is sys.modules:
            return self._loaded(source, raw)
        if isinstance(raw, tuple):
            return read_tuple(self, source, raw)
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
            return read_container(self, source, raw)
        return self._object(source, raw)

    def _is_open(self, source: Source, raw: float) -> bool:
        plan = self.sizes.plan
        if plan.opens_nothing:
            return False
        return plan.opens_number(str(source), raw, type(source) is sources.Local)

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
            if isinstance(known.source, sources.Const) or isinstance(known.raw, PINNED):
                self.guard(GuardKind.ID_IS, source, known.raw)
            else:
                self.guard(GuardKind.SAME_OBJECT, source, known.source)
        return known.value

    def _tensor(self, source: Source, raw: torch.Tensor) -> torch.Tensor:
        plain = type(raw) in PLAIN_TENSORS or is_subclass(type(raw))
        with torch._C.DisableTorchFunctionSubclass(), below_levels(), as_it_was_made(raw):
            plain = (
                plain
                and raw.layout is torch.strided
                and not raw._is_zerotensor()
                and raw.device.type == "cpu"
            )
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
            spec = tensor_spec(raw, free=opened.sizes, free_strides=opened.strides)
            self.guard(GuardKind.TENSOR, source, spec)
            fake = opened.fake.requires_grad_(raw.requires_grad)
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
        if isinstance(source, sources.TypeAttr) or (
            owner and owner.__dict__.get(raw.__name__) is raw
        ):
            self.guard(GuardKind.ID_IS, source, raw)
            self.pinned.add(id(raw))
        else:
            self.guard(GuardKind.TYPE_IS, source, types.FunctionType)
            code = self.child(sources.Attr, source, "__code__")
            self.guard(GuardKind.ID_IS, code, raw.__code__)
        return self.register(source, raw, raw)

    def pin(self, value: Any) -> None:
        """The trace does not look inside: what a function's closure, a path or a pattern holds is known by identity only."""
        known, kind = self.known.get(id(value)), type(value)
        if (
            known is None
            or known.raw is not value
            or id(value) in self.pinned
            or isinstance(value, PINNED)
        ):
            return
        of_python = (
            str(kind.__module__).partition(".")[0] in sys.stdlib_module_names
            and kind not in HARMLESS
        )
        if kind is types.FunctionType or of_python:
            self.guard(GuardKind.ID_IS, known.source, value)
            self.pinned.add(id(value))

    def identify(self, value: Any) -> None:
        """The trace asked which object it is: by `id`, or by a hash or text made of it."""
        known = self.known.get(id(value))
        if known is None or known.raw is not value or isinstance(known.source, sources.Const):
            return
        if id(value) not in self.pinned and not isinstance(value, PINNED):
            self.guard(GuardKind.ID_IS, known.source, value)
            self.pinned.add(id(value))

    def _bound(self, source: Source, raw: Any) -> Any:
        """A C method bound to an object: the same method of what the trace sees of the object."""
        self.guard(GuardKind.TYPE_IS, source, type(raw))
        self.guard(GuardKind.EQUALS, self.child(sources.Attr, source, "__name__"), raw.__name__)
        read = self.appended if raw.__name__ == "append" else self.read
        owner = read(self.child(sources.Attr, source, "__self__"), raw.__self__)
        if owner is raw.__self__:
            return self._opaque(source, raw)
        return self.register(source, raw, getattr(owner, raw.__name__))

    def _object(self, source: Source, raw: Any) -> Any:
        kind = type(raw)
        if kind is types.MethodType:
            function = self.attribute(source, "__func__", raw.__func__)
            owner = self.attribute(source, "__self__", raw.__self__)
            return self.register(source, raw, types.MethodType(function, owner))
        if kind is functools.partial:
            return read_partial(self, source, raw)
        if kind in iterators.KINDS and self.opens_iterators:
            opened = iterators.read_iterator(self, source, raw)
            if opened is not None:
                return opened
        if kind not in HARMLESS and not (kind.__flags__ & HEAP_TYPE and pure.is_value(kind)):
            self.opaque.add(id(raw))
        return self.register(source, raw, raw)
