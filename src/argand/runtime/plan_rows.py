"""runtime.plan_rows: the plan of a compiled graph as rows of numbers and objects, which C reads (launch.c).

In: buffers and steps (``runtime.launch``). Out: the rows that ``runtime.plans`` hands to C.
"""

from __future__ import annotations

import math
from typing import Any, Final, assert_never

from argand.runtime.launch import (
    DTYPE_NUMBERS,
    SYMBOL,
    Buffer,
    Call,
    Constant,
    Free,
    Fresh,
    Integer,
    Keep,
    Kept,
    KernelStep,
    Made,
    Marks,
    Nested,
    Number,
    PlanSize,
    PlanSizes,
    Product,
    PythonValue,
    Ref,
    Slot,
    Step,
    Sym,
    View,
)
from argand.runtime.plans import ArgumentKind, BufferKind, Row, Rows, StepKind

# C's order
_NUMBER_KINDS: Final = (
    "size",
    "stride",
    "input",
    "add",
    "sub",
    "mul",
    "floordiv",
    "mod",
    "min",
    "max",
)


def _number(size: PlanSize) -> int:
    return size if isinstance(size, int) else SYMBOL + size.index


def _numbers(sizes: PlanSizes) -> tuple[int, ...]:
    return tuple(map(_number, sizes))


# Multiply-adds from which on a matrix product is worth releasing the GIL (about 5 us).
_LONG_PRODUCT: Final = 1 << 17


def _buffer_row(buffer: Buffer) -> Row:
    match buffer:
        case Fresh(sizes, strides, dtype):
            return (
                BufferKind.FRESH,
                DTYPE_NUMBERS[dtype],
                0,
                0,
                _numbers(sizes),
                _numbers(strides),
                None,
            )
        case Slot(offset, sizes, strides, dtype):
            return (
                BufferKind.SLOT,
                DTYPE_NUMBERS[dtype],
                0,
                _number(offset),
                _numbers(sizes),
                _numbers(strides),
                None,
            )
        case Constant(value) | PythonValue(value):
            return (BufferKind.OBJECT, 0, 0, 0, (), (), value)
        case Made(None):
            return (BufferKind.MADE, 0, 0, 0, (), (), None)
        case Made(sizes, strides, dtype):
            return (
                BufferKind.MADE,
                DTYPE_NUMBERS[dtype],
                0,
                1,
                _numbers(sizes or ()),
                _numbers(strides),
                None,
            )
        case View(base, sizes, strides, offset):
            return (
                BufferKind.VIEW,
                0,
                base,
                _number(offset),
                _numbers(sizes),
                _numbers(strides),
                None,
            )
        case Integer(number):
            return (BufferKind.INTEGER, 0, 0, _number(number), (), (), None)
        case Marks():
            return (BufferKind.MARKS, 0, 0, 0, (), (), None)
        case Kept(offset, sizes, strides, dtype):
            return (BufferKind.KEPT, DTYPE_NUMBERS[dtype], 0, offset, sizes, strides, None)
        case _:
            assert_never(buffer)


def _argument_row(argument: Any) -> Row:
    if isinstance(argument, Ref):
        return (ArgumentKind.BUFFER, argument.buffer)
    if isinstance(argument, Sym):
        return (ArgumentKind.NUMBER, _number(argument))
    if isinstance(argument, (list, tuple)) and _holds_ref(argument):
        return (ArgumentKind.LIST, tuple(_argument_row(item) for item in argument))
    return (ArgumentKind.OBJECT, argument)


def _holds_ref(items: list[Any] | tuple[Any, ...]) -> bool:
    return any(
        isinstance(item, (Ref, Sym)) or (isinstance(item, (list, tuple)) and _holds_ref(item))
        for item in items
    )


def _product_row(step: Product) -> Row:
    bias = () if step.bias is None else (step.bias,)
    lengths = (*step.batch, step.rows, step.columns, step.inner)
    table = (  # in the order of product.c
        *step.batch,
        *step.left_steps,
        *step.right_steps,
        *step.out_steps,
        *step.bias_steps,
        *step.bias_strides,
        step.rows,
        step.columns,
        step.inner,
        step.left_stride,
        step.right_stride,
        step.out_stride,
    )
    work = math.prod(max(number, 0) or 64 for number in _numbers(lengths))
    flags = (step.transpose_left, step.transpose_right, step.double, work >= _LONG_PRODUCT)
    operands = (step.left, step.right, step.out, *bias)
    return (
        StepKind.PRODUCT,
        operands,
        float(step.alpha),
        float(step.beta),
        _numbers(table),
        *flags,
    )


def _nested_row(step: Nested) -> Row:
    places = [
        tuple(
            (int(p.kind), p.id, _number(p.start), _number(p.step), _number(p.bytes)) for p in rows
        )
        for rows in (step.inputs, step.outputs)
    ]
    carries = tuple((c.first, c.last, _number(c.bytes)) for c in step.carries)
    return (
        StepKind.NESTED,
        step.buffers(),
        int(step.kind),
        step.bodies,
        *places,
        carries,
        step.condition,
        _number(step.count),
    )


def _step_row(step: Step) -> Row:
    match step:
        case KernelStep(pointer, buffers, total, grain, sizes):
            is_long = isinstance(total, Sym) or total >= grain
            ids = tuple(buffers)
            return (StepKind.KERNEL, ids, pointer, _number(total), grain, _numbers(sizes), is_long)
        case Product():
            return _product_row(step)
        case Call(function, args, kwargs, outputs):
            arguments = tuple(_argument_row(item) for item in (*args, *kwargs.values()))
            return (StepKind.CALL, tuple(outputs), function, arguments, tuple(kwargs))
        case Free(buffers):
            return (StepKind.FREE, tuple(buffers))
        case Nested():
            return _nested_row(step)
        case Keep(watched, sizes, count, size, frozen):
            return (StepKind.KEEP, watched, sizes, count, size, frozen)
        case _:
            assert_never(step)


def plan_rows(
    inputs: int,
    buffers: tuple[Buffer, ...],
    steps: tuple[Step, ...],
    returns: tuple[int, ...],
    arena_bytes: PlanSize = 0,
    numbers: tuple[Number, ...] = (),
    given: tuple[Buffer, ...] = (),
) -> Rows:
    """The plan as data; a kernel may have its name in place of the pointer."""
    return Rows(
        inputs=inputs,
        buffers=tuple(_buffer_row(buffer) for buffer in buffers),
        steps=tuple(_step_row(step) for step in steps),
        returns=tuple(returns),
        arena_bytes=_number(arena_bytes),
        numbers=tuple(
            (_NUMBER_KINDS.index(item.kind), _number(item.left), _number(item.right))
            for item in numbers
        ),
        given=tuple(_buffer_row(buffer) for buffer in given),
    )
