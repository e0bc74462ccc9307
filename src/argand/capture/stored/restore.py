"""capture.stored.restore: a captured frame from disk, checked against the frame that is about to run (decision 0011).

In: the data of `save` and the view of a frame. Out: `Compiled`: guard program and target, with every fact of the
trace found to hold; SKIP for a frame without a graph. Anything else is `Miss`, with the reason; nothing of the
program runs before.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Any, Final

from typing_extensions import override

from argand.capture.generated import again
from argand.capture.generated.target import make_target
from argand.capture.stored.rows import (
    BY_TOKEN,
    KINDS,
    TENSORS,
    functions_in,
    signature_text,
    state_text,
)
from argand.capture.stored.tokens import Tokens, find
from argand.protocol import CompiledGraph
from argand.runtime import _native
from argand.runtime._native import NULL, FrameView
from argand.runtime.cache import Compiled
from argand.runtime.cached_calls import CallWith
from argand.runtime.describe import evaluate, explain, step
from argand.runtime.disk.values import Reader, find_function
from argand.runtime.guard_programs import GuardProgram, compile_guards
from argand.runtime.guards import Guard, GuardKind, Relation, TensorSpec
from argand.runtime.sources import Const, Source
from argand.runtime.tables import make_tables
from argand.sizes.marks import read_marks
from argand.support.errors import Location

_GUARD_KINDS: Final = tuple(GuardKind)


class Miss(Exception):
    """The stored frame is not the one at hand; the text says why."""


class _SourceReader(Reader):
    """A reader that finds sources by their numbers."""

    def __init__(self, sources: list[Source]) -> None:
        super().__init__(records=(Relation, CallWith))
        self._sources = sources

    @override
    def read(self, item: Any) -> Any:
        return (
            self._sources[item[1]] if type(item) is list and item[0] == "$" else super().read(item)
        )


class Restorer:
    """Puts one stored frame over a view."""

    def __init__(self, data: dict[str, Any], view: FrameView) -> None:
        self.data, self.view = data, view
        self.sources: list[Source] = []
        self.reader, self.tokens = _SourceReader(self.sources), Tokens()
        self.values: list[Any] = []
        self.codes: dict[int, types.CodeType] = {}
        self.places: list[Location | None] = []
        self.objects: dict[int, Any] = {}
        self.functions: list[types.FunctionType] = []  # that the trace went through

    def run(self, load_graph: Callable[[str], CompiledGraph | None]) -> Compiled | str:
        """The restored frame; the graph is loaded when everything else holds."""
        program, rows, collect = self.check()
        if not self.data["text"]:
            return _native.SKIP
        namespace = self.namespace()
        if self.data["graph"] is not None:
            graph = load_graph(self.data["graph"])
            if graph is None:
                raise Miss("its compiled graph is gone")
            namespace["graph"] = _native.disabled(graph.takes_inputs)
        code = self.view.code
        target = make_target(self.data["text"], namespace, f"{code.co_name}:{code.co_firstlineno}")
        return Compiled(rows, collect, target, program)

    def check(self) -> tuple[GuardProgram, tuple[Guard, ...], tuple[Source, ...]]:
        """All of it but the target, if it fits the frame."""
        data = self.data
        self._check_state()
        tables: list[dict[Any, Any]] = [{}, {}, {}]
        for module, *names in data["names"]:
            holder = getattr(sys.modules.get(module), "__dict__", {})
            found = self._check_names(module, [holder], names)
            tables[0] |= {(id(holder), name): (holder, value) for name, value in found}
        for row in data["sources"]:
            self._add_source(row)
        for place, rows in ((1, data["lookups"]), (2, data["own"])):
            for reference, *names in rows:
                kind = self._object(reference)
                bases = kind.__mro__ if place == 1 else (kind,)
                found = self._check_names(
                    kind.__qualname__, [base.__dict__ for base in bases], names
                )
                tables[place] |= {(kind, name): value for name, value in found}
        for module, path, token in data["inlined"]:
            function = find(module, path)
            self._same(function, token, f"{module}.{path}")
            self.functions.append(function)
        self._check_signatures()
        self.places = [self._place(*row) for row in data["places"]]
        rows = tuple([self._guard(*row) for row in data["guards"]])
        known = [row.expected for row in rows if row.kind is GuardKind.ID_IS]
        self.functions += [value for value in known if type(value) is types.FunctionType]
        rows = (*[self._asked(*row) for row in data["asked"]], *rows)
        rows = (
            Guard(
                GuardKind.TABLES, None, make_tables(tables[0], tables[1], tables[2], self.functions)
            ),
            *rows,
        )
        if len({id(found) for found in self.objects.values()}) < len(self.objects):
            raise Miss("objects that were two are one")
        collect = tuple([self.sources[number] for number in data["collect"]])
        program = compile_guards(rows, collect, self.view.code)
        refused = explain(program, self.view)
        if refused is not None:
            raise Miss(str(refused))
        return program, rows, collect

    def namespace(self) -> dict[str, Any]:
        """The objects that the names of the target mean."""
        namespace: dict[str, Any] = dict(again.NAMES)
        for name, data, reference in self.data["namespace"]:
            namespace[name] = (
                self.reader.read(data) if reference is None else self._object(reference)
            )
        if self.data["breaks"]:
            from argand.capture.generated.tails import NAMES  # noqa: PLC0415  # only after graph breaks

            namespace.update(NAMES)
        return namespace

    # -- facts -------------------------------------------------------------------------------------

    def _same(self, value: Any, token: Any, what: str) -> None:
        if self.tokens.of(value) != token:
            raise Miss(f"{what} is another")

    def _check_state(self) -> None:
        for kind, _, expected, _ in self.data["guards"]:
            if kind == GuardKind.GLOBAL_STATE and expected != state_text():
                raise Miss("torch's global state is another")

    def _check_signatures(self) -> None:
        for module, path, text in self.data["signed"]:
            found = find(module, path)
            if type(found) is not types.FunctionType or signature_text(found) != text:
                raise Miss(f"the signature of {module}.{path} is another")

    def _check_names(
        self, owner: str, tables: list[Any], names: list[Any]
    ) -> list[tuple[str, Any]]:
        """What the tables hold under these names, if it is the same, or nothing."""
        values: list[tuple[str, Any]] = []
        for name, token, called in names:
            found = next((table[name] for table in tables if name in table), NULL)
            values.append((name, found))
            if called:
                self.functions += functions_in(found)
            if (found is NULL) != (token is None):
                raise Miss(f"{owner}.{name} is there or not")
            if token is not None:
                self._same(found, token, f"{owner}.{name}")
        return values

    def _object(self, reference: list[Any]) -> Any:
        """An object by its place, if it is the same."""
        how, where, path, token = reference
        if how in ("code", "resume"):
            code = self._code(where)
            self._same(code, token, code.co_qualname)
            return (
                types.FunctionType(code, self._object(path), code.co_name)
                if how == "resume"
                else code
            )
        if how == "module":
            found: Any = sys.modules.get(where)
        elif how == "namespace":
            found = getattr(sys.modules.get(where), "__dict__", None)
        elif how == "named":
            found = find(where, path)
        elif how == "torch":
            found = find_function(where, path)
        else:
            found = type(self.values[where]) if how == "type" else self.values[where]
        if found is None or found is NULL:
            raise Miss(f"no {where} {path}")
        if token is not None:
            self._same(found, token, f"{where} {path}")
        return found

    def _code(self, number: int) -> types.CodeType:
        """A code object: of a function that is the same, a constant in it, or a resume function made of it."""
        code = self.codes.get(number)
        if code is None:
            code = self._find_code(*self.data["codes"][number])
            if type(code) is not types.CodeType:
                raise Miss("no code")
            self.codes[number] = code
        return code

    def _find_code(self, how: str, where: Any = None, *rest: Any) -> Any:
        match how:
            case "own":
                return self.view.code
            case "at":
                return self.values[where]
            case "of":
                return self._object(where).__code__
            case "origin":
                return self._code(where).co_consts[-1].code
            case "inside":
                return self._code(where).co_consts[rest[0]]
            case _:
                from argand.capture.generated.tails import resume_again  # noqa: PLC0415  # only after graph breaks

                return resume_again(self._code(where), *rest)

    def _place(self, number: int, offset: int) -> Location:
        """The user's line of an instruction."""
        code = self._code(number)
        line = next((line for _, end, line in code.co_lines() if offset < end), None)
        return Location(code.co_filename, line or code.co_firstlineno, code.co_name)

    # -- sources and guards --------------------------------------------------------------------------

    def _add_source(self, row: list[Any]) -> None:
        number, base, *fields = row
        kind: Any = KINDS[number]
        if kind is Const:
            value = self._object(fields[0])
            source: Any = Const(value)
        elif base < 0:
            source = kind(*fields)
            value = evaluate(source, self.view)
        else:
            source = kind(self.sources[base], *map(self.reader.read, fields))
            value = step(source, self.values[base])
        self.sources.append(source)
        self.values.append(value)

    def _guard(self, number: int, at: int, expected: Any, place: int) -> Guard:
        kind = _GUARD_KINDS[number]
        if kind is GuardKind.GLOBAL_STATE:
            return Guard(kind, None)
        source, where = self.sources[at], self.places[place] if place >= 0 else None
        return Guard(kind, source, self._expected(kind, source, at, expected), where)

    def _asked(self, module: str, path: str, args: Any, answer: Any) -> Guard:
        function, given = find_function(module, path), self.reader.read(args)
        reader = functools.partial(function, *given) if given else function
        expected = self.reader.read(answer)
        if reader() != expected:
            raise Miss(f"{path} gives another answer")
        return Guard(GuardKind.GLOBAL_STATE, None, (reader, expected))

    def _expected(self, kind: GuardKind, source: Source, at: int, expected: Any) -> Any:
        if kind in BY_TOKEN:
            found = type(self.values[at]) if kind is GuardKind.TYPE_IS else self.values[at]
            if expected not in self.objects:
                self._same(found, self.data["objects"][expected], str(source))
                self.objects[expected] = found
            if self.objects[expected] is not found:
                raise Miss(f"{source} is not the same object as before")
            return found
        if kind is GuardKind.TENSOR:
            which, *fields = expected
            spec = TensorSpec(TENSORS[which], *map(self.reader.read, fields))
            for dim, mark in read_marks(self.values[at]).items():
                unwanted = "static" if spec.sizes[dim] is None else "dynamic"
                if mark.kind == unwanted and spec.sizes[dim] not in (0, 1):
                    raise Miss(f"{source}.shape[{dim}] is marked {unwanted}")
            return spec
        return self.reader.read(expected)
