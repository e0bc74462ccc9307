"""capture.stored.restore: a captured frame from disk, checked against the frame that is about to run (decision 0011).

In: the data of `save` and the view of a frame. Out: `Restored`: guard program and target, with every fact of the
trace found to hold. Anything else is `Miss`, with the reason; nothing of the program runs before.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final, NamedTuple, final

from argand.capture.stored.save import BY_TOKEN, KINDS, OF_SOURCES, TENSORS, state_text
from argand.capture.stored.tokens import Tokens, find
from argand.capture.target import make_target
from argand.runtime import _native
from argand.runtime._native import NULL, FrameView
from argand.runtime.describe import evaluate, explain, step
from argand.runtime.disk.values import Reader, find_function
from argand.runtime.guards import Const, Guard, GuardKind, Source, TensorSpec
from argand.runtime.programs import GuardProgram, compile_guards

_GUARD_KINDS: Final = tuple(GuardKind)


class Miss(Exception):
    """The stored frame is not the one at hand; the text says why."""


@final
class Restored(NamedTuple):
    """A captured frame from disk."""

    program: GuardProgram
    guards: tuple[Guard, ...]
    collect: tuple[Source, ...]
    target: Callable[..., Any]


class Restorer:
    """Puts one stored frame over a view."""

    def __init__(self, data: dict[str, Any], view: FrameView) -> None:
        self.data, self.view = data, view
        self.reader, self.tokens = Reader(), Tokens()
        self.sources: list[Source] = []
        self.values: list[Any] = []

    def run(self, load_graph: Callable[[str], Callable[..., Any] | None]) -> Restored:
        """The restored frame; the graph is loaded when everything else holds."""
        data = self.data
        self._check_state()
        self._check_names()
        for row in data["sources"]:
            self._add_source(row)
        for reference, *names in data["lookups"]:
            self._check_lookups(self._object(reference), names)
        for module, path, token in data["inlined"]:
            self._same(find(module, path), token, f"{module}.{path}")
        rows = tuple([self._guard(*row) for row in data["guards"]])
        collect = tuple([self.sources[number] for number in data["collect"]])
        program = compile_guards(rows, collect, self.view.code)
        refused = explain(program, self.view)
        if refused is not None:
            raise Miss(str(refused))
        return Restored(program, rows, collect, self._target(load_graph))

    def _target(self, load_graph: Callable[[str], Callable[..., Any] | None]) -> Callable[..., Any]:
        namespace: dict[str, Any] = {}
        for name, data, reference in self.data["namespace"]:
            namespace[name] = self.reader.read(data) if reference is None else self._object(reference)
        graph = load_graph(self.data["graph"])
        if graph is None:
            raise Miss("its compiled graph is gone")
        namespace["graph"] = _native.disabled(graph)
        code = self.view.code
        return make_target(self.data["text"], namespace, f"{code.co_name}:{code.co_firstlineno}")

    # -- facts -------------------------------------------------------------------------------------

    def _same(self, value: Any, token: Any, what: str) -> None:
        if self.tokens.of(value) != token:
            raise Miss(f"{what} is another")

    def _check_state(self) -> None:
        for kind, _, expected in self.data["guards"]:
            if kind == GuardKind.GLOBAL_STATE and expected != state_text():
                raise Miss("torch's global state is another")

    def _check_names(self) -> None:
        for module, *names in self.data["names"]:
            namespace = getattr(sys.modules.get(module), "__dict__", {})
            for name, token in names:
                if token is None and name not in namespace:
                    continue
                if token is None or name not in namespace:
                    raise Miss(f"{module}.{name} is there or not")
                self._same(namespace[name], token, f"{module}.{name}")

    def _check_lookups(self, kind: Any, names: list[Any]) -> None:
        tables = [base.__dict__ for base in kind.__mro__]
        for name, token in names:
            found = next((table[name] for table in tables if name in table), NULL)
            if (found is NULL) != (token is None):
                raise Miss(f"{kind.__qualname__}.{name} is there or not")
            if token is not None:
                self._same(found, token, f"{kind.__qualname__}.{name}")

    def _object(self, reference: list[Any]) -> Any:
        """An object by its place, if it is the same."""
        how, where, path, token = reference
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

    def _guard(self, number: int, place: int, expected: Any) -> Guard:
        kind = _GUARD_KINDS[number]
        if kind is GuardKind.GLOBAL_STATE:
            return Guard(kind, None)
        source = self.sources[place]
        if kind in BY_TOKEN:
            found = self.values[place]
            found = type(found) if kind is GuardKind.TYPE_IS else found
            self._same(found, expected, str(source))
            return Guard(kind, source, found)
        if kind is GuardKind.TENSOR:
            which, *fields = expected
            spec = TensorSpec(TENSORS[which], *map(self.reader.read, fields))
            return Guard(kind, source, spec)
        if kind is GuardKind.SAME_OBJECT:
            return Guard(kind, source, self.sources[expected])
        if kind in OF_SOURCES:
            return Guard(kind, source, tuple([self.sources[other] for other in expected]))
        return Guard(kind, source, self.reader.read(expected))
