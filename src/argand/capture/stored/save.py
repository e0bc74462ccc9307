"""capture.stored.save: a captured frame as data (decision 0011).

In: `Captured` (or `Skipped`) with the facts of its trace. Out: one JSON value: sources, guards and their places, facts, the
text of the target and the names it uses, and the key of the compiled graph. `Unstorable` says what has no data form.

Code objects are found by their function, or as constants of one that is found; a resume function is how it was made.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable
from typing import Any, Final, NamedTuple, final

from typing_extensions import override

from argand.bytecode import is_resume
from argand.capture.generated import again
from argand.capture.generated.tails import NAMES, is_entered
from argand.capture.stored.rows import (
    BY_TOKEN,
    KINDS,
    TENSORS,
    functions_in,
    signature_text,
    state_text,
)
from argand.capture.stored.tokens import IMMUTABLE, Tokens, find, name_of
from argand.protocol import Bypass
from argand.runtime import guards
from argand.runtime.cached_calls import CallWith
from argand.runtime.disk.values import Unstorable, Writer, name_of_function
from argand.runtime.guards import Guard, GuardKind, Relation
from argand.runtime.sources import Const
from argand.runtime.tables import Lookups
from argand.support.errors import Location

_PLAIN: Final = frozenset(
    {GuardKind.EQUALS, GuardKind.LENGTH, GuardKind.DICT_KEYS, GuardKind.HAS_ATTR}
    | {GuardKind.NO_ATTR, GuardKind.DICT_CONTAINS, GuardKind.DICT_MISSING, GuardKind.MISSING}
    | {GuardKind.RELATION, GuardKind.SAME_OBJECT, GuardKind.NOT_ALIASED, GuardKind.NO_OVERLAP}
)
_NOT_DATA: Final = frozenset(("graph", "__builtins__", *NAMES, *again.NAMES))


@final
class Facts(NamedTuple):
    """What a trace relied on besides its guards, and what its target is made of."""

    names: dict[tuple[int, str], tuple[dict[str, Any], Any]]  # of modules; SENTINEL: not there
    lookups: Lookups  # of classes; MISSING: not there
    own: Lookups  # of classes without their bases
    inlined: dict[int, types.FunctionType]
    signed: dict[int, types.FunctionType]  # whose signature was asked for
    absent: tuple[Any, ...]  # SENTINEL and MISSING
    bypass: Bypass | None  # why another process must not rely on the trace
    namespace: dict[str, Any]
    # the key of the compiled graph, or why it has none; None: there is no graph
    graph: str | Bypass | None


def _is_asked(row: Guard) -> bool:
    return row.kind is GuardKind.GLOBAL_STATE and row.expected is not None


def _is_about_process(row: Guard) -> bool:
    return row.kind is GuardKind.TABLES or _is_asked(row)


class _SourceWriter(Writer):
    """A writer that knows the numbers of sources."""

    def __init__(self, number: Callable[[Any], int]) -> None:
        super().__init__((Relation, CallWith))
        self._number = number

    @override
    def write(self, value: Any) -> Any:
        return ["$", self._number(value)] if type(value) in KINDS else super().write(value)


class Saver:
    """Writes one captured frame."""

    def __init__(self, code: types.CodeType) -> None:
        self.code = code
        self.writer, self.tokens = _SourceWriter(self.source), Tokens()
        self.sources: list[Any] = []
        self.objects: list[Any] = []  # tokens of what guards know by identity
        self.codes: list[Any] = []
        self.places: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._types: dict[type, int] = {}  # a class -> a source whose value is of it
        self._held: dict[int, int] = {}  # id of an object -> a source it is found at
        self._guarded: dict[int, int] = {}  # id of an object -> its token's number
        self._known: dict[types.CodeType, tuple[str, Any]] = {}  # how to find it
        self._code_numbers: dict[types.CodeType, int] = {}
        self._wheres: dict[Location | None, int] = {None: -1}

    def save(self, captured: Any) -> dict[str, Any]:
        """The data of a captured frame."""
        facts = captured.facts
        if facts.bypass is not None:
            raise Unstorable(facts.bypass.reason)
        if isinstance(facts.graph, Bypass):
            raise Unstorable(f"the compiled graph is not stored: {facts.graph.reason}")
        for row in captured.guards:
            if row.kind is GuardKind.TYPE_IS:
                self._types.setdefault(row.expected, self.source(row.source))
        for row in captured.guards:
            if row.kind is GuardKind.ID_IS:
                self._held.setdefault(id(row.expected), self.source(row.source))
        self._meet_codes(facts)
        self.tokens.seen.add(id(self.code))
        return {
            "guards": [self._guard(row) for row in captured.guards if not _is_about_process(row)],
            "asked": [self._asked(row) for row in captured.guards if _is_asked(row)],
            "collect": [self.source(source) for source in captured.collect],
            "names": self._names(facts),
            "lookups": self._lookups(facts, facts.lookups),
            "own": self._lookups(facts, facts.own),
            "text": captured.source,
            "namespace": self._namespace(facts.namespace),
            "breaks": "run_tails" in facts.namespace,
            "graph": facts.graph,
            "inlined": self._inlined(facts),  # after all that tells of code
            "signed": [self._signed(function) for function in facts.signed.values()],
            "sources": self.sources,
            "objects": self.objects,
            "codes": self.codes,
            "places": self.places,
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
        if id(value) in self._held:
            place: list[Any] = ["at", self._held[id(value)], ""]
        elif isinstance(value, type) and value in self._types:
            place = ["type", self._types[value], ""]
        elif type(value) is types.CodeType:
            place = ["code", self._code(value), ""]
        elif type(value) is types.FunctionType and is_resume(value.__code__):
            place = ["resume", self._code(value.__code__), self.object(value.__globals__)]
            value = value.__code__
        else:
            place = [*name_of(value)]
        return [*place, None if type(value) is dict else self.tokens.of(value, exact=True)]

    # -- code and places ---------------------------------------------------------------------------

    def _meet_codes(self, facts: Facts) -> None:
        found: list[tuple[types.CodeType, str, Any]] = [(self.code, "own", None)]
        found += [(function.__code__, "of", function) for function in facts.inlined.values()]
        for code, how, where in found:  # grows
            if code not in self._known:
                self._known[code] = (how, where)
                if is_resume(code) and (how == "own" or id(code) in self._held):
                    found.append((code.co_consts[-1].code, "origin", code))
                inside = [
                    (i, item)
                    for i, item in enumerate(code.co_consts)
                    if type(item) is types.CodeType
                ]
                found += [(item, "inside", (code, i)) for i, item in inside]

    def _code(self, code: types.CodeType) -> int:
        """The number of a code object."""
        number = self._code_numbers.get(code)
        if number is None:
            row = self._code_row(code, *self._known.get(code, ("", None)))
            number = self._code_numbers[code] = len(self.codes)
            self.codes.append(row)
        return number

    def _code_row(self, code: types.CodeType, how: str, where: Any) -> list[Any]:
        if id(code) in self._held:
            return ["at", self._held[id(code)]]
        if is_resume(code) and how != "own":
            origin = code.co_consts[-1]
            return ["resume", self._code(origin.code), origin.request, is_entered(code)]
        match how:
            case "own":
                return [how]
            case "origin":
                return [how, self._code(where)]
            case "of":
                return [how, self.object(where)]
            case "inside":
                return [how, self._code(where[0]), where[1]]
            case _:
                raise Unstorable(f"the code of {code.co_qualname}, which is not found by a name")

    def _place(self, where: Location | None) -> int:
        """The number of a user's line: the code, and the first instruction of the line; -1: not known."""
        if where is not None and where not in self._wheres:
            self._wheres[where] = -1
            named = [
                c for c in self._known if (c.co_filename, c.co_name) == (where.file, where.function)
            ]
            starts = [
                (code, start)
                for code in named
                for start, _, line in code.co_lines()
                if line == where.line
            ]
            with contextlib.suppress(Unstorable, IndexError):
                code, start = starts[0]
                self.places.append([self._code(code), start])
                self._wheres[where] = len(self.places) - 1
        return self._wheres[where]

    # -- guards and facts --------------------------------------------------------------------------

    def _guard(self, row: Guard) -> list[Any]:
        kind, expected = row.kind, row.expected
        if kind is GuardKind.GLOBAL_STATE:
            return [int(kind), -1, state_text(), -1]
        if row.source is None:
            raise Unstorable(f"a guard {kind.name}")
        return [
            int(kind),
            self.source(row.source),
            self._expected(kind, expected),
            self._place(row.where),
        ]

    def _asked(self, row: Guard) -> list[Any]:
        """A question about the state of torch, and its answer."""
        reader, answer = row.expected
        function, args = getattr(reader, "func", reader), getattr(reader, "args", ())
        return [*name_of_function(function), self.writer.write(args), self.writer.write(answer)]

    def _expected(self, kind: GuardKind, expected: Any) -> Any:
        if kind in BY_TOKEN:
            number = self._guarded.setdefault(id(expected), len(self.objects))
            if number == len(self.objects):
                self.objects.append(self.tokens.of(expected, exact=True))
            return number
        if kind in _PLAIN:
            return self.writer.write(expected)
        if kind is GuardKind.TENSOR and expected.python_type in TENSORS:
            fields = [getattr(expected, name) for name in guards.TensorSpec.__match_args__[1:]]
            return [TENSORS.index(expected.python_type), *map(self.writer.write, fields)]
        raise Unstorable(f"a guard {kind.name}")

    def _names(self, facts: Facts) -> list[Any]:
        tables: dict[int, list[Any]] = {}
        for (_, name), (namespace, found) in facts.names.items():
            if namespace is sys.modules:  # another process imports its own
                continue
            if id(namespace) not in tables:
                tables[id(namespace)] = [name_of(namespace)[1]]
            tables[id(namespace)].append(self._found(name, found, facts))
        return list(tables.values())

    def _lookups(self, facts: Facts, lookups: Lookups) -> list[Any]:
        tables: dict[type, list[Any]] = {}
        for (kind, name), found in lookups.items():
            if kind.__flags__ & IMMUTABLE:
                continue
            if kind not in tables:
                tables[kind] = [self.object(kind)]
            tables[kind].append(self._found(name, found, facts))
        return list(tables.values())

    def _found(self, name: str, found: Any, facts: Facts) -> list[Any]:
        if any(found is mark for mark in facts.absent):
            return [name, None, False]
        return [
            name,
            self.tokens.of(found),
            any(id(function) in facts.inlined for function in functions_in(found)),
        ]

    def _inlined(self, facts: Facts) -> list[Any]:
        """Functions that were called without a read that is written already."""
        rows = []
        for function in facts.inlined.values():
            # ours are part of the key, and not imported on a hit
            if (function.__module__ or "").partition(".")[0] == "argand" or id(
                function.__code__
            ) in self.tokens.seen:
                continue
            module, path = function.__module__, function.__qualname__
            if find(module, path) is not function:
                raise Unstorable(f"the function {module}.{path}, which is not found by its name")
            rows.append([module, path, self.tokens.of(function)])
        return rows

    def _signed(self, function: types.FunctionType) -> list[str]:
        """Where a function is found, and the text of its signature."""
        text = signature_text(function)
        how, module, path = name_of(function)
        if how != "named" or " at 0x" in text:
            raise Unstorable(f"the signature of {path}, which differs between processes")
        return [module, path, text]

    def _namespace(self, namespace: dict[str, Any]) -> list[Any]:
        rows: list[Any] = []
        for name, value in namespace.items():
            if name in _NOT_DATA:
                continue
            try:
                rows.append([name, self.writer.write(value), None])
            except Unstorable:
                rows.append([name, None, self.object(value)])
        if self.writer.blobs:
            raise Unstorable("a constant tensor")
        return rows
