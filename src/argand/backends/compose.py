"""backends.compose: several backends in order; the first that takes a graph compiles it.

``argand.compile(m, backend=["tensorrt", "onnxrt", "argand"])`` is the recipe people write by hand: a
backend that is missing or declines (raises) passes the graph to the next one, and the report says which
one took it and why the others did not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, final

from typing_extensions import override

from argand.backends.registry import CompilerFunction, name_of
from argand.backends.resolve import compiler_of
from argand.protocol import CompiledGraph, GraphContext
from argand.sizes.refusals import Refusal
from argand.support import events
from argand.support.errors import InvalidBackend


class Choice(NamedTuple):
    """Which backend took one graph, and why those before it declined."""

    taken_by: str
    declined: tuple[tuple[str, str], ...]

    @override
    def __str__(self) -> str:
        reasons = "".join(f"\n  {name} declined: {why}" for name, why in self.declined)
        return f"graph taken by {self.taken_by}{reasons}"


@final
class FirstThatTakes:
    """A backend made of several."""

    def __init__(self, backends: tuple[str | CompilerFunction, ...]) -> None:
        if not backends:
            raise InvalidBackend("an empty list of backends", hint="name at least one")
        self.backends = backends
        self.choices: list[Choice] = []
        self.__name__ = " | ".join(name_of(backend) for backend in backends)

    def compile(
        self, gm: Any, example_inputs: Sequence[Any], context: GraphContext
    ) -> CompiledGraph | Refusal:
        """Compile with the first backend that does not raise; one that wants other sizes does not decline."""
        declined: list[tuple[str, str]] = []
        for backend in self.backends:
            try:
                compiled = compiler_of(backend)(gm, example_inputs, context)
            except Exception as error:  # declining is what exceptions mean here
                declined.append(
                    (name_of(backend), f"{type(error).__name__}: {error}".split("\n")[0])
                )
                continue
            choice = Choice(name_of(backend), tuple(declined))
            self.choices.append(choice)
            events.artifact("perf_hints", choice.__str__, "backend choice")
            return compiled
        reasons = "; ".join(f"{name}: {why}" for name, why in declined)
        raise InvalidBackend(f"every backend of the list declined: {reasons}")
