"""capture.write.statements: the text of a compiled function, line by line, and what its names stand for.

In: expressions, constants, sources to collect, nodes of the graph. Out: the names under which the text knows them.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from argand.capture.sizes.floats import Computed
from argand.runtime.sources import Const, Source


class Statements:
    """The statements of one compiled function."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.namespace: dict[str, Any] = {}
        self.collect: list[Source] = []
        self.outputs: list[torch.fx.Node] = []
        self._constants: dict[int, str] = {}
        self._collected: dict[int, str] = {}
        self._output_names: dict[torch.fx.Node, str] = {}
        self._count = 0

    def emit(self, line: str) -> None:
        """Append a statement."""
        self.lines.append(line)

    def fresh(self, value: str) -> str:
        """A new variable for an expression."""
        name = f"t{self._count}"
        self._count += 1
        self.emit(f"{name} = {value}")
        return name

    def constant(self, value: Any, hint: str = "c") -> str:
        """A name for an object that lives with the compiled function."""
        name = self._constants.get(id(value))
        if name is None:
            name = f"{hint}{len(self._constants)}"
            self._constants[id(value)] = name
            self.namespace[name] = value
        return name

    def number(self, value: float) -> str:
        """An expression for an int or a float."""
        return repr(value) if math.isfinite(value) else self.constant(value)

    def source(self, source: Source | Computed) -> str:
        """The parameter that holds what lives at a source."""
        if isinstance(source, Const):
            return self.constant(source.value)
        if isinstance(source, Computed):
            left, right = (
                self.number(s) if isinstance(s, int | float) else self.source(s) for s in source[1:]
            )
            return f"({left} {source.operator} {right})"
        name = self._collected.get(id(source))
        if name is None:
            name = self._collected[id(source)] = f"v{len(self.collect)}"
            self.collect.append(source)
        return name

    def output(self, node: torch.fx.Node) -> str:
        """The variable that holds a result of the graph."""
        name = self._output_names.get(node)
        if name is None:
            name = self._output_names[node] = f"out{len(self.outputs)}"
            self.outputs.append(node)
        return name
