"""native.contract.runs: the ways to compute a matrix product, ready to be measured.

In: a ``ProductShape`` without open sizes. Out: functions to run, on numbers of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from argand.native.codegen.llvm.contraction import emit_contraction
from argand.native.codegen.llvm.engine import compile_object
from argand.native.codegen.llvm.module import GRAIN
from argand.native.codegen.load import load
from argand.native.codegen.target import Target
from argand.native.contract.model import BLAS, OURS, ProductShape
from argand.native.ir import loops as ir
from argand.native.ir.affine import Affine
from argand.runtime import launch
from argand.runtime.plan_rows import plan_rows
from argand.runtime.plans import link


def product_ways(
    shape: ProductShape, target: Target, level: int = 2
) -> Mapping[str, Callable[[], object]]:
    """Ours and torch's, on the same operands."""
    b0, b1 = shape.batch
    left = _operand((b0, b1, shape.rows, shape.inner), shape.left, shape.left_strides[1] == 1)
    right = _operand((b0, b1, shape.inner, shape.columns), shape.right, shape.right_strides[0] != 1)
    plan = _plan(shape, target, level, left, right)
    flat = [x.flatten(0, 1) if b0 * b1 > 1 else x[0, 0] for x in (left, right)]
    out = torch.matmul(*flat)
    return {OURS: lambda: plan([left, right]), BLAS: lambda: torch.matmul(*flat, out=out)}


def _operand(sizes: tuple[int, ...], dtype: Any, last: bool) -> torch.Tensor:
    """Numbers whose last dimension runs along memory, or the one before it."""
    b0, b1, rows, columns = sizes
    order = (b0, b1, rows, columns) if last else (b0, b1, columns, rows)
    made = torch.empty(order).uniform_(-1, 1).to(dtype.row.torch_dtype)
    return made if last else made.transpose(2, 3)


def _plan(
    shape: ProductShape, target: Target, level: int, left: torch.Tensor, right: torch.Tensor
) -> Any:
    (b0, b1), rows, columns = shape.batch, shape.rows, shape.columns
    strides = (b1 * rows * columns, rows * columns, columns, 1)
    index = Affine(0, tuple(enumerate(strides)))
    store = ir.Store(shape.left, 2, index, 0)
    types = (shape.left, shape.right, shape.left)
    product = ir.Contraction(
        buffers=types,
        batch=shape.batch,
        rows=rows,
        columns=columns,
        inner=shape.inner,
        left=ir.Factor(
            0, shape.left, (left.stride(0), left.stride(1)), left.stride(2), left.stride(3)
        ),
        right=ir.Factor(
            1, shape.right, (right.stride(0), right.stride(1)), right.stride(3), right.stride(2)
        ),
        result=0,
        dtype=shape.left,
        body=(store,),
    )
    declarations: dict[str, None] = {}
    emitted = emit_contraction("product", product, target, declarations)
    loaded = load(compile_object("\n".join([*declarations, emitted.text]), target, level))
    step = launch.KernelStep("product", (0, 1, 2), emitted.total, max(1, GRAIN // emitted.work))  # type: ignore[arg-type]
    fresh = launch.Fresh((b0, b1, rows, columns), strides, shape.left.row.torch_dtype)
    return link(
        plan_rows(2, (fresh,), (step,), (2,)), {"product": loaded.address("product")}, loaded
    )
