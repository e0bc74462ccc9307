"""ops.pointwise: rows of elementwise ops: arithmetic, comparisons, activations and their gradients."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from argand.ops import layout
from argand.ops.layout import broadcast_shapes, contiguous, new, operand_of, promote, refuse
from argand.ops.table import Kind, OpDef, TypeRule, rows


def over(*places: int, to_float: bool = False, result: torch.dtype | None = None) -> TypeRule:
    """The rule of an elementwise op whose operands are the arguments at these places.

    ``to_float``: integers compute in the default dtype; ``result``: a fixed dtype of the output.
    """
    last = max(places)

    def rule(*args: Any, **_: Any) -> Tensor:
        if len(args) <= last:
            refuse("operands by keyword")
        operands = tuple([operand_of(args[place]) for place in places])
        shape, stride, dtype = layout.elementwise(operands, torch.get_default_dtype(), to_float)
        return new(shape, stride, dtype=result or dtype)

    return rule


def like(layout_of: Tensor, dtype: torch.dtype) -> Tensor:
    """The result of an elementwise op over one tensor."""
    shape, stride = layout.iterator_layout(((layout_of.shape, layout_of.stride()),))
    return new(shape, stride, dtype=dtype)


def empty_like(self: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """A tensor laid out as ``torch.empty_like`` does."""
    shape = self.shape
    return new(shape, layout.preserved(shape, self.stride()), dtype=dtype or self.dtype)


def dense(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A row-major tensor."""
    return new(shape, contiguous(shape), dtype=dtype)


def like_self(self: Tensor, *_: Any, **__: Any) -> Tensor:
    """The rule of an op whose result is laid out as its first argument."""
    return empty_like(self)


def dense_self(self: Tensor, *_: Any, **__: Any) -> Tensor:
    """The rule of an op whose result has the shape of its first argument."""
    return dense(self.shape, self.dtype)


def dense_each(*places: int) -> TypeRule:
    """The rule of an op with several results, shaped like the arguments at these places."""
    return lambda *args, **_: tuple(dense_self(args[place]) for place in places)


def dense_second(_: Any, self: Tensor, *__: Any, **___: Any) -> Tensor:
    """The rule of a gradient that has the shape of the second argument."""
    return dense(self.shape, self.dtype)


_unary: Final = over(0)
_unary_float: Final = over(0, to_float=True)
_unary_bool: Final = over(0, result=torch.bool)
_binary: Final = over(0, 1)
_binary_float: Final = over(0, 1, to_float=True)
_compare: Final = over(0, 1, result=torch.bool)
_ternary: Final = over(0, 1, 2)


def _has_infinity(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _to_real(self: Tensor) -> Tensor:
    dtype = self.dtype
    return empty_like(self, dtype.to_real()) if dtype.is_complex else like(self, dtype)


def _angle(self: Tensor) -> Tensor:
    dtype = self.dtype
    if dtype.is_complex:
        return dense(self.shape, dtype.to_real())
    return like(self, dtype if dtype.is_floating_point else torch.get_default_dtype())


def _no_bool(rule: TypeRule) -> TypeRule:
    """Eager refuses these on booleans."""

    def checked(*args: Any, **kwargs: Any) -> Tensor:
        result: Tensor = rule(*args, **kwargs)
        if result.dtype is torch.bool:
            refuse("booleans")
        return result

    return checked


def _div_mode(self: Any, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    rule = _binary_float if rounding_mode is None else _binary
    return rule(self, other)


def _with_numbers(self: Tensor, *numbers: Any, **named: Any) -> Tensor:
    """Numbers take part in promotion, but not as operands of the loop."""
    return like(self, promote(self, *numbers, *named.values()))


def _clamp_tensor(self: Tensor, min: Tensor | None = None, max: Tensor | None = None) -> Tensor:
    bounds = [bound for bound in (min, max) if bound is not None]
    return over(*range(1 + len(bounds)))(self, *bounds)


def _where(condition: Tensor, self: Any, other: Any) -> Tensor:
    dtype = promote(self, other)
    layouts = []
    for value in (condition, self, other):
        shape, stride, own = operand_of(value)
        is_cast = value is not condition and own is not dtype
        layouts.append((shape, layout.preserved(shape, stride) if is_cast else stride))
    return new(*layout.iterator_layout(tuple(layouts)), dtype=dtype)


def masked(self: Tensor, mask: Tensor, value: Any) -> Tensor:
    """The rule of an op that writes where a mask says."""
    return dense(broadcast_shapes(self.shape, mask.shape), self.dtype)


def _masked_fill(self: Tensor, mask: Tensor, value: Any) -> Tensor:
    if isinstance(value, Tensor) and value.dim():
        refuse("a value that is no single element")
    return masked(self, mask, value)


def _logical(*args: Any) -> Tensor:
    """Logical ops look at each operand in its own dtype: no cast happens."""
    layouts = tuple(operand_of(value)[:2] for value in args)
    return new(*layout.iterator_layout(layouts), dtype=torch.bool)


def _copy(self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    if broadcast_shapes(self.shape, src.shape) != self.shape:
        refuse("does not fit")
    return empty_like(self)


def check_here(layout: Any = None, device: Any = None, **_: Any) -> None:
    """Other devices and layouts are torch's."""
    if layout not in (None, torch.strided) or (device is not None and device.type != "cpu"):
        refuse("another device or layout")


def made_like(
    self: Tensor, *_: Any, dtype: Any = None, memory_format: Any = None, **options: Any
) -> Tensor:
    """The result of a copy, of a conversion, or of a factory that takes another tensor's shape."""
    check_here(**options)
    if memory_format is None or memory_format is torch.preserve_format:
        return empty_like(self, dtype)
    return torch.empty(self.shape, dtype=dtype or self.dtype, memory_format=memory_format)


def _complex(real: Tensor, imag: Tensor) -> Tensor:
    result: Tensor = _binary(real, imag)
    return like(result, result.dtype.to_complex())


def _glu(self: Tensor, dim: int = -1) -> Tensor:
    size = self.shape[dim]
    if size % 2:
        refuse("odd size")
    first = self.narrow(dim, 0, size // 2)
    return _binary(first, self.narrow(dim, size // 2, size // 2))


def _rsub(self: Any, other: Any, alpha: Any = 1) -> Tensor:
    return _binary(other, self)


def _number_power(self: Any, exponent: Tensor) -> Tensor:
    return dense(exponent.shape, promote(self, exponent))


_NAMES: Final[tuple[tuple[TypeRule, str], ...]] = (
    (
        _unary,
        """ceil floor round round.decimals trunc frac sign sgn relu gelu silu mish hardswish hardsigmoid elu celu
        softplus softshrink hardshrink leaky_relu threshold bitwise_not conj_physical _conj_physical""",
    ),
    (like_self, "nan_to_num hardtanh _prelu_kernel"),
    (lambda self: empty_like(self, _unary_float(self).dtype), "deg2rad rad2deg"),
    (_no_bool(_unary), "neg"),
    (
        _unary_float,
        """acos acosh asin asinh atan atanh cos cosh sin sinh tan tanh exp exp2 expm1 log log10 log1p log2 sqrt rsqrt
        reciprocal erf erfc erfinv sigmoid sinc logit digamma lgamma i0 special_entr special_erfcx
        special_i0e special_i1 special_i1e special_log_ndtr special_ndtri special_airy_ai special_bessel_j0
        special_bessel_j1 special_bessel_y0 special_bessel_y1 special_modified_bessel_i0 special_modified_bessel_i1
        special_modified_bessel_k0 special_modified_bessel_k1 special_scaled_modified_bessel_k0
        special_scaled_modified_bessel_k1 special_spherical_bessel_j0""",
    ),
    (over(1, to_float=True), "polygamma"),
    (lambda self: (empty_like(self), empty_like(self, torch.int32)), "frexp.Tensor"),
    (_unary_bool, "isnan isneginf isposinf signbit logical_not"),
    (
        lambda self: (
            _unary_bool(self) if _has_infinity(self.dtype) else empty_like(self, torch.bool)
        ),
        "isinf",
    ),
    (over(1, 0), "threshold_backward"),
    (_to_real, "abs"),
    (_angle, "angle"),
    (
        _binary,
        """add.Tensor add.Scalar mul.Tensor mul.Scalar maximum minimum fmax fmin remainder.Tensor remainder.Scalar
        remainder.Scalar_Tensor fmod.Tensor fmod.Scalar floor_divide floor_divide.Scalar bitwise_and.Tensor
        bitwise_and.Scalar bitwise_and.Scalar_Tensor bitwise_or.Tensor bitwise_or.Scalar bitwise_or.Scalar_Tensor
        bitwise_xor.Tensor bitwise_xor.Scalar bitwise_xor.Scalar_Tensor bitwise_left_shift.Tensor
        bitwise_left_shift.Tensor_Scalar bitwise_left_shift.Scalar_Tensor bitwise_right_shift.Tensor
        bitwise_right_shift.Tensor_Scalar bitwise_right_shift.Scalar_Tensor __lshift__.Tensor __lshift__.Scalar
        __rshift__.Tensor __rshift__.Scalar heaviside _add_relu.Tensor pow.Tensor_Tensor hypot nextafter gcd lcm
        logaddexp logaddexp2 lerp.Scalar tanh_backward sigmoid_backward leaky_relu_backward
        hardtanh_backward hardswish_backward hardsigmoid_backward gelu_backward softplus_backward
        softshrink_backward hardshrink_backward logit_backward silu_backward mish_backward log_sigmoid_backward""",
    ),
    (_no_bool(_binary), "sub.Tensor sub.Scalar"),
    (_no_bool(_rsub), "rsub.Tensor rsub.Scalar"),
    (_number_power, "pow.Scalar"),
    (
        _binary_float,
        """div.Tensor div.Scalar copysign.Tensor copysign.Scalar atan2 xlogy.Tensor xlogy.Scalar_Other
        xlogy.Scalar_Self igamma igammac special_xlog1py special_xlog1py.other_scalar special_xlog1py.self_scalar
        special_zeta special_zeta.other_scalar special_zeta.self_scalar""",
    ),
    (_div_mode, "div.Tensor_mode div.Scalar_mode"),
    (
        _compare,
        """eq.Tensor eq.Scalar ne.Tensor ne.Scalar lt.Tensor lt.Scalar le.Tensor le.Scalar gt.Tensor gt.Scalar
        ge.Tensor ge.Scalar""",
    ),
    (_logical, "logical_and logical_or logical_xor"),
    (_ternary, "addcmul addcdiv lerp.Tensor"),
    (_with_numbers, "pow.Tensor_Scalar clamp clamp_min clamp_max"),
    (_clamp_tensor, "clamp.Tensor clamp_min.Tensor clamp_max.Tensor"),
    (_where, "where.self"),
    (_masked_fill, "masked_fill.Scalar masked_fill.Tensor"),
    (over(0, 5), "elu_backward"),
    (dense_each(0, 0), "log_sigmoid_forward"),
    (
        lambda *args: tuple(_ternary(args[1], args[2], args[0]) for _ in range(2)),
        "_prelu_kernel_backward",
    ),
    (_glu, "glu"),
    (dense_second, "glu_backward"),
    (made_like, "_to_copy clone"),
    (_copy, "copy"),
    (empty_like, "lift_fresh_copy alias_copy detach_copy lift"),
    (_complex, "complex polar"),
)

ROWS: Final[tuple[OpDef, ...]] = tuple(
    row for rule, names in _NAMES for row in rows(Kind.POINTWISE, rule, names)
)
