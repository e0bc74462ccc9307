"""native.ir.verify_loops: the rules of the loop IR (L1 to L12 of docs/ir.md).

In: Kernel or Contraction. Out: the first broken rule, or None. That indices stay inside of the memory behind a buffer is
a rule of loop nests, who know their owners (``schedule.verify``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import final

from argand.native.ir.affine import Var
from argand.native.ir.faults import Fault
from argand.native.ir.loops import (
    Accumulate,
    Block,
    Compute,
    Contraction,
    Coordinate,
    Factor,
    Kernel,
    Load,
    Loop,
    PerGroup,
    Statement,
    Store,
    indices_of,
    tables_of,
    uses_of,
    walk,
)
from argand.native.ir.types import DType
from argand.support.dataclass import dataclass


@final
@dataclass(slots=True)
class _Place:
    """What is known at a statement; ``line`` counts the lines of the printed kernel."""

    kernel: Kernel
    known: dict[int, DType]
    variables: frozenset[Var]
    loops: int = 0
    line: list[int] = field(default_factory=lambda: [0])


def verify_kernel(kernel: Kernel | Contraction) -> Fault | None:
    """The first broken rule of a kernel."""
    if isinstance(kernel, Contraction):
        return _contraction_fault(kernel)
    variables = [v for v, _ in kernel.outer]
    if len(set(variables)) != len(variables):
        return Fault("L6", "two outer loops have one variable", 0)
    if kernel.vector is not None and kernel.vector not in variables:
        return Fault("L7", f"d{kernel.vector} is no outer variable", 0)
    fault = _block_fault(kernel.body, _Place(kernel, {}, frozenset(variables)))
    if fault is None and not any(isinstance(s, Store) for s in walk(kernel.body)):
        return Fault("L4", "nothing is stored", 0)
    return fault


def _contraction_fault(product: Contraction) -> Fault | None:
    operands: tuple[Factor | PerGroup, ...] = (
        product.left,
        product.right,
        *tables_of(product.right),
    )
    for factor in operands:
        if (
            factor.buffer not in range(len(product.buffers))
            or product.buffers[factor.buffer] is not factor.dtype
        ):
            return Fault("L3", f"no buffer {factor.buffer} of {factor.dtype.value}", 1)
        if isinstance(factor, Factor) and 1 not in (factor.across, factor.inner):
            return Fault(
                "L10",
                f"buffer {factor.buffer} runs neither along its rows nor along its columns",
                1,
            )
    given = product.right.quantized
    if product.left.quantized or (
        given and (product.right.inner != 1 or product.inner % given.group)
    ):
        return Fault(
            "L12", "groups of small integers do not fill the columns of the right operand", 1
        )
    if any(isinstance(s, Loop | Accumulate) for s in product.body):
        return Fault("L11", "the statements of a contraction have loops", 1)
    place = _Place(
        Kernel(product.buffers, (), product.body),
        {product.result: product.dtype},
        frozenset(range(4)),
    )
    place.line[0] = 1
    fault = _block_fault(product.body, place)
    if fault is None and not any(isinstance(s, Store) for s in product.body):
        return Fault("L4", "nothing is stored", 0)
    return fault


def _block_fault(block: Block, place: _Place) -> Fault | None:
    for statement in block:
        place.line[0] += 1
        if isinstance(statement, Loop):
            fault = _loop_fault(statement, place)
        else:
            fault = _statement_fault(statement, place)
            if fault is not None:
                return fault._replace(line=place.line[0])
        if fault is not None:
            return fault
    return None


def _loop_fault(loop: Loop, place: _Place) -> Fault | None:
    line = place.line[0]
    if loop.var in place.variables:
        return Fault("L6", f"d{loop.var} is a loop around it already", line)
    if loop.vector and any(isinstance(s, Loop) for s in loop.body):
        return Fault("L7", f"the vector loop d{loop.var} has a loop inside", line)
    if loop.limit is not None and any(v not in place.variables for v in loop.limit.variables()):
        return Fault("L2", f"the limit {loop.limit} uses a loop that is not around it", line)
    inner = _Place(
        place.kernel, dict(place.known), place.variables | {loop.var}, place.loops + 1, place.line
    )
    fault = _block_fault(loop.body, inner)
    for statement in walk(loop.body):
        if isinstance(statement, Accumulate):
            place.known[statement.result] = statement.dtype
    return fault


def _statement_fault(statement: Statement, place: _Place) -> Fault | None:
    for value in uses_of(statement):
        if value not in place.known:
            return Fault("L1", f"v{value} is used before it is defined")
    for form in indices_of(statement):
        for var in form.variables():
            if var not in place.variables:
                return Fault("L2", f"{form} uses d{var}, which is no loop around it")
    if isinstance(statement, Load | Store):
        fault = _memory_fault(statement, place.kernel)
        if fault is not None:
            return fault
    if isinstance(statement, Accumulate) and not place.loops:
        return Fault("L8", "a reduction stands in no loop")
    fault = _type_fault(statement, place.known)
    if fault is None and not isinstance(statement, Store | Accumulate | Loop):
        if statement.result in place.known:
            return Fault("L5", f"v{statement.result} is defined twice")
        place.known[statement.result] = (
            DType.I64 if isinstance(statement, Coordinate) else statement.dtype
        )
    return fault


def _memory_fault(access: Load | Store, kernel: Kernel) -> Fault | None:
    if access.buffer not in range(-len(kernel.scratch), len(kernel.buffers)):
        return Fault("L3", f"no buffer {access.buffer}")
    found = (
        kernel.buffers[access.buffer]
        if access.buffer >= 0
        else kernel.scratch[-1 - access.buffer][0]
    )
    if found is not access.dtype:
        return Fault("L3", f"buffer {access.buffer} holds {found.value}, not {access.dtype.value}")
    if isinstance(access, Load) and access.flag >= len(kernel.buffers):
        return Fault("L3", f"no buffer {access.flag} for the flag")
    return None


def _computed(dtype: DType) -> DType:
    """The type a value is computed in: halves are floats inside of a kernel."""
    return DType.F32 if dtype.is_half else dtype


def _type_fault(statement: Statement, known: Mapping[int, DType]) -> Fault | None:
    if isinstance(statement, Store | Accumulate):
        wanted = statement.dtype if isinstance(statement, Store) else statement.operand
        arguments: tuple[int, ...] = (statement.value,)
    elif isinstance(statement, Compute) and statement.op not in ("uniform", "normal"):
        wanted = statement.operand
        arguments = statement.arguments[1:] if statement.op == "select" else statement.arguments
    else:
        return None
    for value in arguments:
        if _computed(known[value]) is not _computed(wanted):
            return Fault("L9", f"v{value} is {known[value].value}, wanted is {wanted.value}")
    return None
