"""native.extern: torch's own kernels as steps of a plan.

In: an aten operator and its arguments, tensors given as Operands (buffer ids with their layout).
Out: steps. Matrix products in float and double become BLAS calls on pointers (0.45 us for a small
one); everything else calls the operator's bound C++ function from the launcher (about 3 us, the
same path as eager without Python frames).

The operands of bmm may have four dimensions, [b0, b1, rows, columns], where a view of three does
not exist: attention heads need no copy to be multiplied.

`preallocates` says, before memory is planned, whether the steps write into given buffers or make
their own tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, final

import torch
from torch._ops import OpOverload

from argand.native.control_flow import Flow
from argand.native.ir.types import at_least
from argand.native.pointers import pointer_steps
from argand.ops.rows import row_of
from argand.ops.table import Blas
from argand.runtime.launch import Call, Product, Ref, Step
from argand.support.dataclass import dataclass

_INT_MAX: Final = 2**31 - 1
aten = torch.ops.aten


@final
@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor argument or result: its buffer and layout."""

    id: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    # of a result of a loop that nobody reads: every round writes to the same memory
    one_row: bool = False


class _Matrix(NamedTuple):
    """How BLAS sees an operand's last two dimensions; `steps` through the two of the batch."""

    transposed: bool
    leading: int
    steps: tuple[int, int]


def _matrix(operand: Operand, batch: tuple[int, int]) -> _Matrix | None:
    """None where BLAS cannot read it without a copy."""
    rows, columns = operand.sizes[-2:]
    row, column = operand.strides[-2:]
    steps = _batch_steps(operand, batch)
    if (column == 1 or columns == 1) and (at_least(row, columns) or rows == 1):
        leading = row if rows > 1 else columns
        return _Matrix(False, max(leading, columns, 1), steps)
    if (row == 1 or rows == 1) and (at_least(column, rows) or columns == 1):
        leading = column if columns > 1 else rows
        return _Matrix(True, max(leading, rows, 1), steps)
    return None


def _batch_steps(operand: Operand, batch: tuple[int, int]) -> tuple[int, int]:
    """Strides of the batch dimensions; one dimension of size b0 * b1 is seen as two."""
    front = operand.strides[:-2]
    if len(front) == 2:
        return (front[0], front[1])
    return (front[0] * batch[1], front[0]) if front else (0, 0)


def _batch(operands: Sequence[Operand]) -> tuple[int, int]:
    """The batch as two dimensions: those of the operand that has two, if one has."""
    fronts = [operand.sizes[:-2] for operand in operands]
    longest = max(fronts, key=len)
    return (longest[0], longest[1]) if len(longest) == 2 else ((*longest, 1)[0], 1)


def _swapped(operand: Operand) -> Operand:
    """The same memory with its last two dimensions exchanged."""
    *front, rows, columns = range(len(operand.sizes))
    order = (*front, columns, rows)
    return Operand(
        operand.id,
        tuple(operand.sizes[i] for i in order),
        tuple(operand.strides[i] for i in order),
        operand.dtype,
    )


def _product(
    left: Operand, right: Operand, out: Operand, bias: Operand | None, alpha: float, beta: float
) -> Product | None:
    """BLAS's view of `out = beta * bias + alpha * left @ right`, or None if it has none."""
    if any(operand.dtype != out.dtype for operand in (left, right)):
        return None
    if out.dtype not in (torch.float32, torch.float64):
        return None
    batch = _batch((left, right, out))
    views = [_matrix(operand, batch) for operand in (left, right, out)]
    if views[2] is not None and views[2].transposed:
        # A column-major result: out^T = right^T left^T is row-major.
        turned = None if bias is None else _swapped(bias)
        return _product(_swapped(right), _swapped(left), _swapped(out), turned, alpha, beta)
    a, b, c = views
    rows, columns = out.sizes[-2:]
    inner, count = left.sizes[-1], batch[0] * batch[1]
    if a is None or b is None or c is None or min(rows, columns, inner, count) == 0:
        return None
    if max(rows, columns, inner, count, a.leading, b.leading, c.leading) > _INT_MAX:
        return None
    return Product(
        left=left.id,
        right=right.id,
        out=out.id,
        rows=rows,
        columns=columns,
        inner=inner,
        left_stride=a.leading,
        right_stride=b.leading,
        out_stride=c.leading,
        transpose_left=a.transposed,
        transpose_right=b.transposed,
        double=out.dtype == torch.float64,
        alpha=alpha,
        beta=0.0 if bias is None else beta,
        batch=batch,
        left_steps=a.steps,
        right_steps=b.steps,
        out_steps=c.steps,
        bias=None if bias is None else bias.id,
        bias_steps=(0, 0) if bias is None else _batch_steps(bias, batch),
        bias_strides=(0, 0) if bias is None else (bias.strides[-2], bias.strides[-1]),
    )


def _expanded(bias: Operand, out: Operand) -> Operand | None:
    """`bias` broadcast to the shape of `out`, by strides of 0; None if it has another type."""
    if bias.dtype != out.dtype or len(bias.sizes) > len(out.sizes):
        return None
    missing = len(out.sizes) - len(bias.sizes)
    sizes, strides = (1,) * missing + bias.sizes, (0,) * missing + bias.strides
    if any(own not in (1, wanted) for own, wanted in zip(sizes, out.sizes, strict=True)):
        return None
    broadcast = tuple(0 if size == 1 else step for size, step in zip(sizes, strides, strict=True))
    return Operand(bias.id, out.sizes, broadcast, bias.dtype)


def _plain_product(
    args: Sequence[Any], kwargs: Mapping[str, Any], out: Operand
) -> tuple[Step, ...] | None:
    step = _product(args[0], args[1], out, None, 1.0, 0.0)
    return None if step is None or kwargs else (step,)


def _biased_product(
    args: Sequence[Any], kwargs: Mapping[str, Any], out: Operand
) -> tuple[Step, ...] | None:
    bias = _expanded(args[0], out)
    alpha, beta = kwargs.get("alpha", 1), kwargs.get("beta", 1)
    # beta = 0 must ignore a bias of NaN or infinity.
    if bias is None or len(args) > 3 or beta == 0:
        return None
    step = _product(args[1], args[2], out, bias, float(alpha), float(beta))
    return None if step is None else (step,)


ProductRule = Callable[[Sequence[Any], Mapping[str, Any], Operand], "tuple[Step, ...] | None"]
_PRODUCTS: Final[Mapping[Blas, ProductRule]] = {
    Blas.PLAIN: _plain_product,
    Blas.BIASED: _biased_product,
}


def blas_of(target: Any) -> Blas:
    """How BLAS may compute what an extern node calls."""
    return row_of(target).blas if isinstance(target, OpOverload) else Blas.NONE


def _product_steps(
    target: Any, args: Sequence[Any], kwargs: Mapping[str, Any], outputs: Sequence[Operand | None]
) -> tuple[Step, ...] | None:
    rule = _PRODUCTS.get(blas_of(target))
    if rule is None:
        return pointer_steps(target, args, kwargs, outputs)
    if len(outputs) != 1 or outputs[0] is None:
        return None
    return rule(args, kwargs, outputs[0])


def preallocates(
    target: Any, args: Sequence[Any], kwargs: Mapping[str, Any], outputs: Sequence[Operand | None]
) -> bool:
    """Whether make_extern writes into the outputs' buffers (Slot, Fresh); else they are Made."""
    if isinstance(target, Flow):
        return True
    return _product_steps(target, args, kwargs, outputs) is not None


def _reference(argument: Any) -> Any:
    if isinstance(argument, Operand):
        return Ref(argument.id)
    if isinstance(argument, (list, tuple)):
        return type(argument)(_reference(item) for item in argument)
    return argument


def seed_step(output: int, count: int = 1) -> Call:
    """Draw the seed of a graph call from torch's generator: one int64 in the Made buffer `output`.

    codegen.math.random makes all random numbers of the call from it.
    """
    return Call(
        aten.randint.low, (-(2**63), 2**63 - 1, (count,)), {"dtype": torch.int64}, (output,)
    )


def make_extern(
    target: Any, args: Sequence[Any], kwargs: Mapping[str, Any], outputs: Sequence[Operand | None]
) -> tuple[Step, ...]:
    """Steps for one operator call; `outputs` in its order, None where a result is not used."""
    if isinstance(target, Flow):
        return (target.step(args, outputs),)
    steps = _product_steps(target, args, kwargs, outputs)
    if steps is not None:
        return steps
    return (
        Call(
            target,
            tuple(_reference(argument) for argument in args),
            {name: _reference(value) for name, value in kwargs.items()},
            tuple(-1 if output is None else output.id for output in outputs),
        ),
    )
