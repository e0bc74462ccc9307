"""native.lower.pointwise: elementwise aten ops as expressions of tensor IR.

``_same`` rows get their arguments in the type of the result, as eager computes them; comparison
rows get the promoted type of the arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

from argand.native.ir.tensor import MATHS, Node
from argand.native.ir.types import DType
from argand.native.lower.context import (
    Lowering,
    LoweringContext,
    NotLowered,
    Scalar,
    Value,
    dtype_of,
    in_float,
)


def _same(template: Callable[..., Node]) -> Lowering:
    """A row whose tensor arguments are all converted to the type of the result."""

    def lower(context: LoweringContext, *args: Any, **kwargs: Any) -> Node:
        nodes = [context.node(a) if isinstance(a, Node) else a for a in args]
        keywords = {k: context.node(a) if isinstance(a, Node) else a for k, a in kwargs.items()}
        result = template(context, *nodes, **keywords)
        return context.full(context.node(result))

    return lower


def _by_one_number(row: Lowering) -> Lowering:
    """Divisions that give whole numbers: eager's kernels round halves between their steps, unless they divide by one number."""
    wide = in_float(row)

    def lower(context: LoweringContext, x: Value, y: Value, **kwargs: Any) -> Node:
        single = not isinstance(y, Node) or all(size == 1 for size in y.shape)
        chosen = wide if single else row
        found: Node = chosen(context, x, y, **kwargs)
        return found

    return lower


def _by_wide_number(row: Lowering) -> Lowering:
    """Halves times or over a wider tensor of one number, which eager does not round to a half."""
    wide = in_float(row)

    def lower(context: LoweringContext, x: Value, y: Value) -> Node:
        chosen = wide if context.dtype.is_half and _is_wide_number(y) else row
        found: Node = chosen(context, x, y)
        return found

    return lower


def _is_wide_number(value: Value) -> bool:
    if not isinstance(value, Node) or value.shape or value.dtype is None:
        return False
    return value.dtype.is_float and not value.dtype.is_half


def _unary(op: str) -> Lowering:
    def template(c: LoweringContext, x: Node) -> Node:
        return c.op(op, x)

    return _same(template)


def _binary(op: str) -> Lowering:
    def template(c: LoweringContext, x: Value, y: Value) -> Node:
        return c.op(op, c.node(x), c.node(y))

    return _same(template)


def _rounding(op: str) -> Lowering:
    """Integers stay as they are."""

    def template(c: LoweringContext, x: Node) -> Node:
        return c.op(op, x) if c.dtype.is_float else x

    return _same(template)


def _compare(op: str) -> Lowering:
    def lower(context: LoweringContext, x: Value, y: Value) -> Node:
        dtype = context.promoted()
        return context.full(context.op(op, context.node(x, dtype), context.node(y, dtype)))

    return lower


def _scaled(template: Callable[..., Node]) -> Lowering:
    """Sums and differences, in float when one side is scaled first: eager rounds halves once."""
    plain, wide = _same(template), in_float(_same(template))

    def lower(context: LoweringContext, x: Value, y: Value, alpha: Scalar = 1) -> Node:
        found: Node = (
            plain(context, x, y) if alpha == 1 else wide(context, x, y, context.number(alpha))
        )
        return found

    return lower


def _add(c: LoweringContext, x: Value, y: Value, alpha: Scalar = 1) -> Node:
    scaled = c.node(y) if alpha == 1 else c.op("mul", c.node(y), c.node(alpha))
    if c.dtype is DType.BOOL:
        return c.op("or", c.node(x), scaled if alpha else c.node(False))
    return c.op("add", c.node(x), scaled)


def _sub(c: LoweringContext, x: Value, y: Value, alpha: Scalar = 1) -> Node:
    return c.op(
        "sub", c.node(x), c.node(y) if alpha == 1 else c.op("mul", c.node(y), c.node(alpha))
    )


def _differ_in_sign(c: LoweringContext, x: Node, y: Node) -> Node:
    return c.op("xor", c.op("lt", x, 0), c.op("lt", y, 0))


def _nonzero_integer(c: LoweringContext, divisor: Value) -> None:
    """Eager raises for a zero divisor; only a constant is known to be none, in the bits that its type keeps."""
    node = c.node(divisor)
    value = node.attribute if node.op == "constant" else 0
    if not isinstance(value, int) or not value % (1 << 8 * c.dtype.row.bytes):
        raise NotLowered


def _floor_divide(c: LoweringContext, x: Value, y: Value) -> Node:
    a, b = c.node(x), c.node(y)
    if not c.dtype.is_float:
        _nonzero_integer(c, y)
        quotient, rest = c.op("idiv", a, b), c.op("irem", a, b)
        if not c.dtype.is_signed:
            return quotient
        down = c.op("and", c.op("ne", rest, 0), _differ_in_sign(c, rest, b))
        return c.op("sub", quotient, c.build.cast(down, c.dtype))
    rest = c.op("fmod", a, b)
    quotient = c.op("div", c.op("sub", a, rest), b)
    down = c.op("and", c.op("ne", rest, 0), _differ_in_sign(c, b, rest))
    quotient = c.where(down, c.op("sub", quotient, 1), quotient)
    floor = c.op("floor", quotient)
    floor = c.where(c.op("gt", c.op("sub", quotient, floor), 0.5), c.op("add", floor, 1), floor)
    plain = c.op("div", a, b)
    signed_zero = c.op("copysign", c.build.constant(0.0, c.dtype), plain)
    return c.where(c.op("eq", b, 0), plain, c.where(c.op("ne", quotient, 0), floor, signed_zero))


def _remainder(c: LoweringContext, x: Value, y: Value) -> Node:
    b, rest = c.node(y), _fmod(c, x, y)
    if not c.dtype.is_float and not c.dtype.is_signed:
        return rest
    wrap = c.op("and", c.op("ne", rest, 0), _differ_in_sign(c, rest, b))
    return c.where(wrap, c.op("add", rest, b), rest)


def _fmod(c: LoweringContext, x: Value, y: Value) -> Node:
    if c.dtype.is_float:
        return c.op("fmod", c.node(x), c.node(y))
    _nonzero_integer(c, y)
    return c.op("irem", c.node(x), c.node(y))


def _div_mode(c: LoweringContext, x: Value, y: Value, rounding_mode: str | None = None) -> Node:
    if rounding_mode == "floor":
        return _floor_divide(c, x, y)
    if rounding_mode == "trunc":
        if c.dtype.is_float:
            return c.op("trunc", c.op("div", c.factor(x), c.factor(y)))
        _nonzero_integer(c, y)
        return c.op("idiv", c.node(x), c.node(y))
    return c.op("div", c.factor(x), c.factor(y))


def _mul(c: LoweringContext, x: Value, y: Value) -> Node:
    return c.op("and" if c.dtype is DType.BOOL else "mul", c.factor(x), c.factor(y))


def _power(c: LoweringContext, x: Value, y: Value) -> Node:
    if isinstance(y, int | float) and not isinstance(y, bool):
        base = c.node(x)
        if y == 2:
            return c.op("mul", base, base)
        if y == 1:
            return base
        if y == 3:
            return c.op("mul", c.op("mul", base, base), base)
        if c.dtype.is_float and y == 0.5:
            return c.op("sqrt", base)
        if c.dtype.is_float and y == -0.5:
            return c.op("div", 1, c.op("sqrt", base))
        if c.dtype.is_float and y == -1:
            return c.op("div", 1, base)
    if not c.dtype.is_float:
        raise NotLowered
    return c.op("pow", c.node(x), c.node(y))


def _powers(row: Lowering) -> Lowering:
    """Eager multiplies bfloat16 step by step; other powers of halves are rounded once.

    Wider tensors of one number are halves first: a power jumps where the exponent is no longer whole.
    """
    wide = in_float(row)

    def lower(context: LoweringContext, x: Value, y: Value) -> Node:
        found: Node
        if isinstance(y, Node):
            base = context.node(x) if isinstance(x, Node) else context.number(x)
            found = wide(context, base, context.node(y))
        elif context.dtype is not DType.F16 and y in (2, 3):
            found = row(context, x, y)
        else:
            found = wide(context, x, context.number(y))
        return found

    return lower


def _sign(c: LoweringContext, x: Node) -> Node:
    if c.dtype is DType.BOOL:
        return x
    positive, negative = c.op("gt", x, 0), c.op("lt", x, 0)
    return c.op("sub", c.build.cast(positive, c.dtype), c.build.cast(negative, c.dtype))


def _round_decimals(c: LoweringContext, x: Node, *, decimals: int) -> Node:
    if decimals == 0 or not c.dtype.is_float:
        return x if not c.dtype.is_float else c.op("rint", x)
    raise NotLowered


def _where(context: LoweringContext, condition: Node, x: Value, y: Value) -> Node:
    chosen = context.build.cast(condition, DType.BOOL)
    return context.full(context.where(chosen, context.node(x), context.node(y)))


def _test(template: Callable[[LoweringContext, Node], Node]) -> Lowering:
    """A predicate computed in the type of its argument."""

    def lower(context: LoweringContext, x: Node) -> Node:
        return context.full(context.node(template(context, x), DType.BOOL))

    return lower


def _is_infinite(c: LoweringContext, x: Node) -> Node:
    if x.dtype is None or not x.dtype.is_float:
        return c.build.constant(False, DType.BOOL, x.shape)
    return c.op("eq", c.op("abs", x), math.inf)


def _sign_bit(c: LoweringContext, x: Node) -> Node:
    if x.dtype is DType.BOOL or x.dtype is DType.U8:
        return c.build.constant(False, DType.BOOL, x.shape)
    if x.dtype is not None and x.dtype.is_float:
        return c.op("lt", c.op("copysign", c.build.constant(1.0, x.dtype), x), 0)
    return c.op("lt", x, 0)


def _logical(op: str) -> Lowering:
    def lower(context: LoweringContext, *values: Node) -> Node:
        common = context.promoted()  # in which a wider tensor of one number may be zero
        truths = [context.build.cast(context.node(v, common), DType.BOOL) for v in values]
        return context.full(context.op(op, *truths))

    return lower


def _shift(op: str) -> Lowering:
    def template(c: LoweringContext, x: Value, y: Value) -> Node:
        if isinstance(y, Node) or isinstance(x, bool | int):
            raise NotLowered  # a shift by at least the width is eager's business
        bits = c.dtype.row.bytes * 8
        if not 0 <= int(y) < bits:
            raise NotLowered
        return c.op(op, c.node(x), int(y))

    return _same(template)


def _copy_to(context: LoweringContext, x: Node, *args: Any, **kwargs: Any) -> Node:
    device = kwargs.get("device")
    if device is not None and torch.device(device).type != "cpu":
        raise NotLowered
    return context.node(x)


def _copy(context: LoweringContext, x: Node, source: Node, *_: Any) -> Node:
    return context.full(context.node(source))


def _convert(context: LoweringContext, x: Node, dtype: torch.dtype) -> Node:
    return context.node(x, dtype_of(dtype))


def _absolute(c: LoweringContext, x: Node) -> Node:
    return c.op("abs", x) if c.dtype.is_float or c.dtype.is_signed else x


def _clamp_min(c: LoweringContext, x: Node, low: Value) -> Node:
    return c.op("max", x, c.node(low))


def _clamp_max(c: LoweringContext, x: Node, high: Value) -> Node:
    return c.op("min", x, c.node(high))


def _clone(context: LoweringContext, x: Node, *args: Any, **kwargs: Any) -> Node:
    same = _copy_to(context, x, *args, **kwargs)
    return context.build.pointwise("copy", same) if same is x else same


def _fmax(op: str) -> Lowering:
    def template(c: LoweringContext, x: Node, y: Node) -> Node:
        if not c.dtype.is_float:
            return c.op(op, x, y)
        return c.where(c.op("ne", x, x), y, c.where(c.op("ne", y, y), x, c.op(op, x, y)))

    return _same(template)


def _families() -> dict[str, Lowering]:
    rows: dict[str, Lowering] = {f"aten.{n}.default": _unary(n) for n in (*MATHS, "sqrt", "neg")}
    for overload in ("Tensor", "Scalar"):
        rows |= {f"aten.{n}.{overload}": _compare(n) for n in ("eq", "ne", "lt", "le", "gt", "ge")}
        rows |= {f"aten.bitwise_{n}.{overload}": _binary(n) for n in ("and", "or", "xor")}
        rows |= {
            f"aten.add.{overload}": _scaled(_add),
            f"aten.sub.{overload}": _scaled(_sub),
            f"aten.mul.{overload}": _by_wide_number(_same(_mul)),
            f"aten.div.{overload}": _by_wide_number(_same(_div_mode)),
            f"aten.div.{overload}_mode": _by_one_number(_same(_div_mode)),
            f"aten.remainder.{overload}": _same(_remainder),
            f"aten.fmod.{overload}": _same(_fmod),
        }
    for overload in ("Tensor_Scalar", "Tensor_Tensor", "Scalar"):
        rows[f"aten.pow.{overload}"] = _powers(_same(_power))
    for overload in ("self", "ScalarSelf", "ScalarOther", "Scalar"):
        rows[f"aten.where.{overload}"] = _where
    return rows


_NAMED: Final[Mapping[str, Lowering]] = {
    "aten.abs.default": _same(_absolute),
    **dict.fromkeys(("aten.sign.default", "aten.sgn.default"), _same(_sign)),
    "aten.square.default": _same(lambda c, x: c.op("mul", x, x)),
    "aten.reciprocal.default": _same(lambda c, x: c.op("div", 1, x)),
    "aten.rsqrt.default": in_float(_same(lambda c, x: c.op("div", 1, c.op("sqrt", x)))),
    **{f"aten.{name}.default": _rounding(name) for name in ("floor", "ceil", "trunc")},
    "aten.round.default": _rounding("rint"),
    "aten.round.decimals": _same(_round_decimals),
    **dict.fromkeys(
        ("aten.floor_divide.default", "aten.floor_divide.Scalar"),
        _by_one_number(_same(_floor_divide)),
    ),
    "aten.atan2.default": _binary("atan2"),
    "aten.copysign.Tensor": _binary("copysign"),
    **{f"aten.{op}imum.default": _binary(op) for op in ("max", "min")},
    **{f"aten.f{op}.default": _fmax(op) for op in ("max", "min")},
    "aten.clamp_min.default": _same(_clamp_min),
    "aten.clamp_max.default": _same(_clamp_max),
    "aten.isnan.default": _test(lambda c, x: c.op("ne", x, x)),
    "aten.isinf.default": _test(_is_infinite),
    "aten.signbit.default": _test(_sign_bit),
    **{f"aten.logical_{op}.default": _logical(op) for op in ("not", "and", "or", "xor")},
    "aten.bitwise_not.default": _unary("not"),
    **dict.fromkeys(
        ("aten.__lshift__.Scalar", "aten.bitwise_left_shift.Tensor_Scalar"), _shift("shl")
    ),
    **dict.fromkeys(
        ("aten.__rshift__.Scalar", "aten.bitwise_right_shift.Tensor_Scalar"), _shift("shr")
    ),
    **dict.fromkeys(("aten.clone.default", "aten._to_copy.default"), _clone),
    **{
        f"aten.{name}.default": _copy_to
        for name in ("contiguous", "positive", "alias", "detach", "real")
    },
    **{
        f"aten.{name}.default": _copy_to
        for name in ("lift_fresh", "lift_fresh_copy", "conj", "_conj", "resolve_conj")
    },
    "aten.copy.default": _copy,
    "prims.convert_element_type.default": _convert,
}

TABLE: Final[Mapping[str, Lowering]] = {**_families(), **_NAMED}
