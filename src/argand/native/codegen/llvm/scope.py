"""native.codegen.llvm.scope: what the emitter knows at a point of a function it writes.

A scope maps the numbers of loop statements to LLVM values and loop variables to their names; a block
inside works on a copy, so that nothing it defines is used after it.
"""

from __future__ import annotations

from dataclasses import field
from typing import final

from argand.native.codegen.llvm.accumulators import Accumulator
from argand.native.ir.affine import Affine, Var
from argand.native.ir.types import DType
from argand.support.dataclass import dataclass


@final
@dataclass(slots=True)
class VectorValue:
    """An SSA value or constant; ``lanes`` 1 means the same in all lanes."""

    dtype: DType
    name: str
    lanes: int
    constant: bool | int | float | None = None


@final
@dataclass(slots=True)
class Scope:
    """What is known at a point of the function; inner blocks work on copies."""

    values: dict[int, VectorValue]
    variables: dict[Var, str]
    lanes: int = 1
    vector: Var | None = None
    indices: dict[Affine, str] = field(default_factory=dict)
    accumulators: dict[int, Accumulator] = field(default_factory=dict)

    def inside(self, var: Var, name: str, lanes: int = 0) -> Scope:
        """The scope of a loop body."""
        variables = {**self.variables, var: name}
        vectorized = lanes > 1
        return Scope(
            dict(self.values),
            variables,
            lanes if vectorized else self.lanes,
            var if vectorized else self.vector,
            {} if var in self.variables else dict(self.indices),
            self.accumulators,
        )
