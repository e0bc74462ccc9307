"""ops.foreach: rows of ops over lists of tensors (optimizers), made from the rows of single tensors.

``_foreach_add.List(a, b)`` has, element by element, the types of ``add.Tensor(a[i], b[i])``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from torch import Tensor

from argand.ops import pointwise, reductions
from argand.ops.table import Kind, OpDef, TypeRule

UNARY: Final = (
    "abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg "
    "reciprocal round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc"
)
OVERLOADS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("add", "mul", "div"), "List Scalar ScalarList Tensor"),
    **dict.fromkeys(
        ("sub", "maximum", "minimum", "clamp_max", "clamp_min", "pow", "lerp"),
        "List Scalar ScalarList",
    ),
    **dict.fromkeys(("addcmul", "addcdiv"), "Scalar ScalarList"),
}
_SINGLE: Final = {
    "clamp_max": "minimum",
    "clamp_min": "maximum",
    "pow": "pow.Tensor_Tensor",
    "lerp": "lerp.Scalar",
}
_BASE: Final = {
    row.name: row.infer for row in (*pointwise.ROWS, *reductions.ROWS) if row.infer is not None
}


def _each(rule: TypeRule, count: int) -> TypeRule:
    """Apply a rule to the items at the same place of the first ``count`` arguments."""

    def over_lists(*args: Any, **_: Any) -> list[Any]:
        lists = [
            value if isinstance(value, list | tuple) else [value] * len(args[0])
            for value in args[:count]
        ]
        return [rule(*items) for items in zip(*lists, strict=True)]

    return over_lists


def _number_to_each(self: Any, exponent: Sequence[Tensor]) -> list[Tensor]:
    return [_BASE["pow.Scalar"](self, power) for power in exponent]


def _norms(self: Sequence[Tensor], ord: Any = 2, dtype: Any = None) -> list[Any]:
    return [_BASE["linalg_vector_norm"](tensor, ord, dtype=dtype) for tensor in self]


def _row(name: str, rule: TypeRule) -> OpDef:
    return OpDef(name=f"_foreach_{name}", kind=Kind.POINTWISE, infer=rule)


def _rule(name: str) -> TypeRule:
    single = _SINGLE.get(name, name)
    return _each(
        _BASE[single] if single in _BASE else _BASE[f"{single}.Tensor"],
        3 if name.startswith("addc") else 2,
    )


ROWS: Final[tuple[OpDef, ...]] = (
    *(_row(name, _each(_BASE[name], 1)) for name in UNARY.split()),
    *(
        _row(f"{name}.{overload}", _rule(name))
        for name, overloads in OVERLOADS.items()
        for overload in overloads.split()
    ),
    _row("pow.ScalarAndTensor", _number_to_each),
    OpDef(name="_foreach_norm.Scalar", kind=Kind.REDUCE, infer=_norms),
)
