"""native.codegen.triton.reductions: the value of a reduction over a row, at once or piece by piece."""

from __future__ import annotations

from typing import Final, final

from argand.native.codegen.triton import arithmetic
from argand.native.codegen.triton.source import SourceLines, computed, literal
from argand.native.ir.loops import Accumulate
from argand.native.ir.types import DType

_LAST: Final = 2**63 - 1
_WHOLE: Final = "[XBLOCK, RBLOCK]"
_JOIN: Final = {"amax": "max", "amin": "min"}


@final
class Reduction:
    """One reduction; ``a`` is what it has so far, ``p`` the place of it for argmax and argmin."""

    def __init__(self, statement: Accumulate) -> None:
        self.statement, self.op = statement, statement.op
        self.places = self.op.startswith("arg")
        dtype = statement.operand if self.places else statement.dtype
        self.dtype = DType.F32 if dtype.is_half else dtype
        self.start = literal(arithmetic.identity(self.op, self.dtype))
        self.so_far, self.place = f"a{statement.result}", f"p{statement.result}"

    # --- a whole row -------------------------------------------------------------------------

    def whole(
        self,
        lines: SourceLines,
        value: str,
        position: str,
        mask: str,
        length: int,
        needed: dict[str, None],
    ) -> str:
        """The result, of all places of a row."""
        row = f"[XBLOCK, {length}]"
        taken = f"tl.where({mask}, {value}, {self.start})" if mask else value
        if not self.places:
            return self._join(taken, needed)
        needed[self.op] = None
        last = f"tl.where({mask}, {position}, {_LAST})" if mask else position
        lines.add(f"{self.so_far} = tl.broadcast_to({taken}, {row})")
        lines.add(f"{self.place} = tl.broadcast_to({last}, {row})")
        return self._finish_places()

    # --- piece by piece ----------------------------------------------------------------------

    def begin(self, lines: SourceLines) -> None:
        """Before the loop."""
        lines.add(f"{self.so_far} = tl.full({_WHOLE}, {self.start}, {computed(self.dtype)})")
        if self.places:
            lines.add(f"{self.place} = tl.full({_WHOLE}, {_LAST}, tl.int64)")

    def add(
        self, lines: SourceLines, value: str, position: str, mask: str, needed: dict[str, None]
    ) -> None:
        """Take in one piece."""
        old = self.so_far
        if self.places:
            needed[self.op] = None
            lines.add(f"n, k = {self.op}({old}, {self.place}, {value}, {position})")
            lines.add(f"{old} = tl.where({mask}, n, {old})")
            lines.add(f"{self.place} = tl.where({mask}, k, {self.place})")
            return
        lines.add(f"{old} = tl.where({mask}, {self._step(old, value, needed)}, {old})")

    def finish(self, lines: SourceLines, needed: dict[str, None]) -> str:
        """After the loop: the result."""
        return self._finish_places() if self.places else self._join(self.so_far, needed)

    def _step(self, old: str, value: str, needed: dict[str, None]) -> str:
        if self.op in ("sum", "prod"):
            either = "|" if self.op == "sum" else "&"
            sign = either if self.dtype is DType.BOOL else "+" if self.op == "sum" else "*"
            return f"{old} {sign} {value}"
        return arithmetic.extreme(_JOIN[self.op], old, value, self.dtype, needed)

    # --- across threads ----------------------------------------------------------------------

    def _join(self, row: str, needed: dict[str, None]) -> str:
        if self.dtype is DType.BOOL:
            any_ = self.op in ("sum", "amax")
            return f"tl.{'max' if any_ else 'min'}(({row}).to(tl.int32), 1)[:, None] != 0"
        if self.op == "sum":
            return f"tl.sum({row}, 1)[:, None]"
        if self.op == "prod":
            needed["multiply"] = None
            return f"tl.reduce({row}, 1, multiply)[:, None]"
        if self.dtype.is_float:
            name = f"{_JOIN[self.op]}imum"
            needed[name] = None
            return f"tl.reduce({row}, 1, {name})[:, None]"
        return f"tl.{_JOIN[self.op]}({row}, 1)[:, None].to({computed(self.dtype)})"

    def _finish_places(self) -> str:
        return f"tl.reduce(({self.so_far}, {self.place}), 1, {self.op})[1][:, None]"
