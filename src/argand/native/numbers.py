"""native.numbers: sizes known at run time as numbers of a launch plan.

In: the inputs of a graph, some of them sizes (``SizeInt``), and rows of ``runtime.launch`` with sizes in
them. Out: the rows with a ``Sym`` for each size, and the ``Number`` rows that compute these from the inputs.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, Final, final

from argand.native.ir.tensor import TensorMeta
from argand.runtime import launch
from argand.sizes.expressions import Expr, SizeInt, Symbol
from argand.support.dataclass import fields_of, replace
from argand.support.errors import InternalError

_KINDS: Final = {
    **{"+": "add", "*": "mul", "//": "floordiv", "%": "mod"},
    **{"min": "min", "max": "max"},
}


@final
class Numbers:
    """The numbers of one plan; equal expressions are one number."""

    def __init__(self, inputs: Sequence[TensorMeta | int | None]) -> None:
        self.rows: list[launch.Number] = []
        self._known: dict[launch.Number, launch.Sym] = {}
        self._made: dict[Expr, launch.PlanSize] = {}
        self.sources: dict[Symbol, launch.Number] = {}
        for position, given in enumerate(inputs):
            listed = given.shape if isinstance(given, TensorMeta) else ()
            for dim, size in enumerate(listed):
                self._found(size, launch.Number("size", position, dim))
        for position, given in enumerate(inputs):
            if isinstance(given, int):
                self._found(given, launch.Number("input", position))

    def _found(self, size: int, row: launch.Number) -> None:
        if isinstance(size, SizeInt) and len(size.expr.terms) == 1:
            (product, factor), *_ = size.expr.terms
            if factor == 1 and len(product) == 1 and isinstance(product[0], Symbol):
                self.sources[product[0]] = row

    def _row(self, row: launch.Number) -> launch.Sym:
        if row not in self._known:
            self._known[row] = launch.Sym(len(self.rows))
            self.rows.append(row)
        return self._known[row]

    def of(self, size: int | Expr) -> launch.PlanSize:
        """An expression as a number."""
        if type(size) is int:
            return size
        expr = Expr.of(size)
        if expr not in self._made:
            self._made[expr] = expr.build(
                self._source, lambda name, a, b: self._row(launch.Number(_KINDS[name], a, b))
            )
        return self._made[expr]

    def _source(self, symbol: Symbol) -> launch.Sym:
        if symbol not in self.sources:
            raise InternalError("native.plan", f"no input tells the size {symbol}")
        return self._row(self.sources[symbol])

    def within(self, value: Any) -> Any:
        """A row, or an argument, with numbers in the place of sizes."""
        if isinstance(value, SizeInt):
            return self.of(value)
        if isinstance(value, list | tuple):
            return type(value)([self.within(item) for item in value])
        if isinstance(value, dict):
            return {key: self.within(item) for key, item in value.items()}
        if type(value).__module__ == launch.__name__ and not isinstance(value, enum.Enum):
            names = [f.name for f in fields_of(value)]
            return replace(value, **{n: self.within(getattr(value, n)) for n in names})
        return value
