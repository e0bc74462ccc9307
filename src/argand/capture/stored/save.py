"""capture.stored.save: a captured frame as data (decision 0011).

In: `Captured` with the facts of its trace. Out: one JSON value: sources, guards, facts, the text of the target and
the names it uses, and the key of the compiled graph. `Unstorable` says what has no data form.
"""

from __future__ import annotations

import types
from typing import Any, Final, NamedTuple, final

import torch

from argand.capture.stored.tokens import IMMUTABLE, Tokens, find, name_of
from argand.runtime import guards, state
from argand.runtime.disk.values import Unstorable, Writer
from argand.runtime.guards import Const, Guard, GuardKind, Source

KINDS: Final[tuple[type, ...]] = Source.__args__  # by number, in this Argand
TENSORS: Final = (torch.Tensor, torch.nn.Parameter)
BY_TOKEN: Final = frozenset((GuardKind.TYPE_IS, GuardKind.ID_IS))
OF_SOURCES: Final = frozenset((GuardKind.NOT_ALIASED, GuardKind.NO_OVERLAP))
_PLAIN: Final = frozenset(
    {GuardKind.EQUALS, GuardKind.LENGTH, GuardKind.DICT_KEYS, GuardKind.HAS_ATTR}
    | {GuardKind.NO_ATTR, GuardKind.DICT_CONTAINS, GuardKind.DICT_MISSING, GuardKind.MISSING}
)


@final
class Facts(NamedTuple):
    """What a trace relied on besides its guards, and what its target is made of."""

    names: dict[tuple[int, str], tuple[dict[str, Any], Any]]  # of modules; SENTINEL: not there
    lookups: dict[tuple[type, str], Any]  # of classes; MISSING: not there
    inlined: dict[int, types.FunctionType]
    absent: tuple[Any, ...]  # SENTINEL and MISSING
    volatile: str
    namespace: dict[str, Any]
    graph: str  # the key of the compiled graph


def state_text() -> list[str]:
    """torch's global state as text: what guards ask for, and what decides how torch takes operators apart."""
    c = torch._C
    more = (c._get_flash_sdp_enabled(), c._get_mem_efficient_sdp_enabled(), c._get_mkldnn_enabled())
    rest = (c._get_math_sdp_enabled(), torch.get_float32_matmul_precision())
    return [repr(value) for value in (*state.snapshot()[1::2], *more, *rest)]


class Saver:
    """Writes one captured frame."""

    def __init__(self) -> None:
        self.writer, self.tokens = Writer(), Tokens()
        self.sources: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._types: dict[type, int] = {}  # a class -> a source whose value is of it
        self._held: dict[int, int] = {}  # id of an object -> a source it is found at

    def save(self, captured: Any, facts: Facts, code: types.CodeType) -> dict[str, Any]:
        """The data of a captured frame."""
        if facts.volatile:
            raise Unstorable(facts.volatile)
        if not facts.graph:
            raise Unstorable("the compiled graph is not stored")
        for row in captured.guards:
            if row.kind is GuardKind.TYPE_IS:
                self._types.setdefault(row.expected, self.source(row.source))
        for row in captured.guards:
            if row.kind is GuardKind.ID_IS:
                self._held.setdefault(id(row.expected), self.source(row.source))
        rows = [self._guard(row) for row in captured.guards]
        self.tokens.seen.add(id(code))
        return {
            "guards": rows,
            "collect": [self.source(source) for source in captured.collect],
            "names": self._names(facts),
            "lookups": self._lookups(facts),
            "inlined": self._inlined(facts),
            "text": captured.source,
            "namespace": self._namespace(facts.namespace),
            "graph": facts.graph,
            "sources": self.sources,
        }

    def source(self, source: Any) -> int:
        """The number of a source."""
        number = self._numbers.get(id(source))
        if number is None:
            kind = type(source)
            if kind is Const:
                row = [KINDS.index(kind), -1, self.object(source.value)]
            else:
                names = kind.__match_args__
                base = self.source(source.base) if names[0] == "base" else -1
                fields = names[1:] if names[0] == "base" else names
                values = [self.writer.write(getattr(source, name)) for name in fields]
                row = [KINDS.index(kind), base, *values]
            number = self._numbers[id(source)] = len(self.sources)
            self.sources.append(row)
        return number

    def object(self, value: Any) -> list[Any]:
        """How to find an object, and its token."""
        try:
            place: list[Any] = [*name_of(value)]
        except Unstorable:
            if isinstance(value, type) and value in self._types:
                place = ["type", self._types[value], ""]
            elif id(value) in self._held:
                place = ["at", self._held[id(value)], ""]
            else:
                raise
        return [*place, None if type(value) is dict else self.tokens.of(value, exact=True)]

    def _guard(self, row: Guard) -> list[Any]:
        kind, expected = row.kind, row.expected
        if kind is GuardKind.GLOBAL_STATE:
            return [int(kind), -1, state_text()]
        if row.source is None:
            raise Unstorable(f"a guard {kind.name}")
        return [int(kind), self.source(row.source), self._expected(kind, expected)]

    def _expected(self, kind: GuardKind, expected: Any) -> Any:
        if kind in BY_TOKEN:
            return self.tokens.of(expected, exact=True)
        if kind in _PLAIN:
            return self.writer.write(expected)
        if kind is GuardKind.SAME_OBJECT:
            return self.source(expected)
        if kind in OF_SOURCES:
            return [self.source(source) for source in expected]
        if kind is GuardKind.TENSOR and expected.python_type in TENSORS:
            fields = [getattr(expected, name) for name in guards.TensorSpec.__match_args__[1:]]
            return [TENSORS.index(expected.python_type), *map(self.writer.write, fields)]
        raise Unstorable(f"a guard {kind.name}")

    def _names(self, facts: Facts) -> list[Any]:
        tables: dict[int, list[Any]] = {}
        for (_, name), (namespace, found) in facts.names.items():
            table = tables.get(id(namespace))
            if table is None:
                table = tables[id(namespace)] = [name_of(namespace)[1]]
            absent = any(found is mark for mark in facts.absent)
            table.append([name, None if absent else self.tokens.of(found)])
        return list(tables.values())

    def _lookups(self, facts: Facts) -> list[Any]:
        tables: dict[type, list[Any]] = {}
        for (kind, name), found in facts.lookups.items():
            if kind.__flags__ & IMMUTABLE:
                continue
            if kind not in tables:
                tables[kind] = [self.object(kind)]
            absent = any(found is mark for mark in facts.absent)
            tables[kind].append([name, None if absent else self.tokens.of(found)])
        return list(tables.values())

    def _inlined(self, facts: Facts) -> list[Any]:
        """Functions that were called without a read that has been told already."""
        rows = []
        for function in facts.inlined.values():
            if id(function.__code__) in self.tokens.seen:
                continue
            module, path = function.__module__, function.__qualname__
            if find(module, path) is not function:
                raise Unstorable(f"the function {module}.{path}, which is not found by its name")
            rows.append([module, path, self.tokens.of(function)])
        return rows

    def _namespace(self, namespace: dict[str, Any]) -> list[Any]:
        rows: list[Any] = []
        for name, value in namespace.items():
            if name in ("graph", "__builtins__"):
                continue
            try:
                rows.append([name, self.writer.write(value), None])
            except Unstorable:
                rows.append([name, None, self.object(value)])
        if self.writer.blobs:
            raise Unstorable("a constant tensor")
        return rows
