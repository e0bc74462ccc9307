"""capture.record.size_nodes: open sizes as nodes of a graph.

In: an expression of sizes. Out: the node that computes it from placeholders, or an int when it is constant; equal
expressions share a node.
"""

from __future__ import annotations

import operator
from typing import Any, Final, Protocol

import torch

from argand.capture.outside.known import Known
from argand.capture.sizes.frame_sizes import FrameSizes
from argand.sizes.expressions import Expr, Symbol
from argand.sizes.refusals import fixing

_SIZE_FUNCTIONS: Final = {"//": operator.floordiv, "%": operator.mod, "min": min, "max": max}


class GraphOfSizes(Protocol):
    """The graph that nodes of sizes are added to."""

    def compute(self, function: Any, left: Any, right: Any, expr: Expr) -> torch.fx.Node:
        """A node that computes a size from two others."""

    def placeholder(self, known: Known, name: str = "") -> torch.fx.Node:
        """An input of the graph."""


class SizeNodes:
    """The nodes of one graph that hold sizes."""

    def __init__(self, sizes: FrameSizes) -> None:
        self._sizes = sizes
        self._nodes: dict[Expr, Any] = {}

    def knows(self, expr: Expr) -> bool:
        """Whether there is a node for an expression."""
        return expr in self._nodes

    def name(self, expr: Expr, node: torch.fx.Node) -> None:
        """A node holds an expression."""
        self._nodes[expr] = node

    def of(self, graph: GraphOfSizes, expr: Expr) -> Any:
        """The node that computes an expression of sizes; an int when it is constant."""
        node = self._nodes.get(expr)
        if node is None:
            node = self._nodes[expr] = self._made(graph, expr)
        return node

    def _made(self, graph: GraphOfSizes, expr: Expr) -> Any:
        if expr.constant is not None:
            return expr.constant
        table = self._sizes.table
        self._sizes.fit(expr)
        if len(expr.terms) > 1:
            *head, (product, factor) = expr.terms
            last = self.of(graph, Expr({product: abs(factor)}))
            function = operator.add if factor > 0 else operator.sub
            return graph.compute(function, self.of(graph, Expr(dict(head))), last, expr)
        product, factor = expr.terms[0]
        if factor != 1:
            rest = self.of(graph, Expr({product: 1}))
            return graph.compute(operator.mul, rest, factor, expr)
        atom = product[-1]
        if len(product) > 1:
            rest, last = self.of(graph, Expr({product[:-1]: 1})), self.of(graph, Expr.of(atom))
            return graph.compute(operator.mul, rest, last, expr)
        if isinstance(atom, Symbol):
            if atom in table.unbacked:
                raise fixing([atom], f"{atom} inside of an operator")
            source = self._sizes.sources[atom]
            return graph.placeholder(Known(table.reals[atom], table.size(expr), source), str(atom))
        sides = self.of(graph, atom.left), self.of(graph, atom.right)
        return graph.compute(_SIZE_FUNCTIONS[atom.name], *sides, expr)
