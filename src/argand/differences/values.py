"""differences.values: two tensors that should be equal, and where they first are not.

In: eager's tensor, the other one, and how far rounding can take a result (`Noise`). Out: a `Difference`, or None. A result
is wrong where it is further from the exact one than rounding explains: eager's own distance from a run in double
precision, and what a change of the inputs in their last bit does to eager's results. Metadata are compared first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, final

import torch
from typing_extensions import override

HALVES: Final = (torch.float16, torch.bfloat16)
ULPS: Final = 32  # units in the last place that functions may differ by where eager's are exact
# Without an oracle: of the largest magnitude, by type.
_LOOSE: Final[Mapping[torch.dtype, float]] = {
    torch.float64: 1e-8,
    torch.float32: 1e-4,
} | dict.fromkeys(HALVES, 3e-2)


@final
class Difference(NamedTuple):
    """The first difference of one value."""

    place: str  # which value: "result 0", "gradient of l_x_", "self.count"
    what: str  # what is different: "values", "strides", ...
    expected: str
    found: str
    element: tuple[int, ...] | None = None  # of the first element that differs
    amount: str = ""  # how many do

    @override
    def __str__(self) -> str:
        at = "" if self.element is None else f" at {list(self.element)}"
        more = f" ({self.amount})" if self.amount else ""
        return f"{self.place}: {self.what} differ{at}: eager {self.expected}, compiled {self.found}{more}"


class Noise(NamedTuple):
    """What is known about one value's rounding: the result in double precision, eager's on inputs moved by a bit."""

    exact: torch.Tensor | None = None
    moved: torch.Tensor | None = None


NO_ORACLE: Final = Noise()


def compare_metadata(
    place: str, eager: torch.Tensor, other: torch.Tensor, *, strides: bool = True
) -> Difference | None:
    """The first of a tensor's properties that is not eager's."""
    rows: list[tuple[str, Any, Any]] = [
        ("types of objects", type(eager).__name__, type(other).__name__),
        ("dtypes", eager.dtype, other.dtype),
        ("shapes", tuple(eager.shape), tuple(other.shape)),
        ("devices", eager.device, other.device),
        ("layouts", eager.layout, other.layout),
        ("requires_grad", eager.requires_grad, other.requires_grad),
    ]
    if strides and eager.layout is other.layout is torch.strided and eager.numel():
        rows.append(("strides", _strides(eager), _strides(other)))
    for what, expected, found in rows:
        if expected != found:
            return Difference(place, what, str(expected), str(found))
    return None


def _strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """Strides that mean something: those of dimensions with one element do not."""
    return tuple(
        stride if size > 1 else 0
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )


def unequal(eager: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Where two tensors of one type and shape differ; NaN equals NaN."""
    if eager.dtype.is_floating_point or eager.dtype.is_complex:
        return (eager != other) & ~(torch.isnan(eager) & torch.isnan(other))
    return eager != other


def compare_values(
    place: str, eager: torch.Tensor, other: torch.Tensor, noise: Noise
) -> Difference | None:
    """The first element that rounding does not explain; both have the same type and shape, and no history."""
    if eager.layout is not torch.strided or eager.is_quantized:
        eager, other = _dense(eager), _dense(other)
    wrong = unequal(eager, other)
    if not bool(wrong.any()):
        return None
    wrong &= ~_explained(eager, other, noise)
    places = wrong.nonzero()
    if not len(places):
        return None
    first = tuple(places[0].tolist())
    exact = ""
    if noise.exact is not None and noise.exact.shape == eager.shape:
        exact = f", exactly {noise.exact[first].item()!r}"
    count = f"{len(places)} of {eager.numel()} elements{exact}"
    return Difference(
        place, "values", repr(eager[first].item()), repr(other[first].item()), first, count
    )


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.dequantize() if tensor.is_quantized else tensor.to_dense()


def _explained(eager: torch.Tensor, other: torch.Tensor, noise: Noise) -> torch.Tensor:
    """Where a difference is rounding."""
    exact, moved = (n if n is not None and n.shape == eager.shape else None for n in noise)
    if not (eager.dtype.is_floating_point or eager.dtype.is_complex):
        # an index or a comparison that rounding decides
        return _flips(eager, exact) | _flips(eager, moved)
    if exact is None and moved is None:
        return _is_close(eager, other, _LOOSE.get(eager.dtype, 1e-4))
    wide = torch.complex128 if eager.dtype.is_complex else torch.float64
    e, o = eager.to(wide), other.to(wide)
    x = e if exact is None else exact.to(wide)
    spread = (e - x).abs()
    if moved is not None:
        spread = torch.maximum(spread, (moved.to(wide) - e).abs())
    spread = torch.where(torch.isfinite(spread), spread, 0.0)
    step = torch.finfo(eager.dtype).eps * ULPS
    allowed = 4 * spread + 2 * spread.max() + step * torch.where(torch.isfinite(x), x.abs(), 0.0)
    close = (o - x).abs() <= allowed
    rounded = x.to(eager.dtype)  # where one of them overflows, both may be right
    same = (other == rounded) | (torch.isnan(other) & torch.isnan(rounded))
    return close | same | (unequal_finiteness(eager, x) & ~torch.isfinite(e) & torch.isfinite(o))


def unequal_finiteness(eager: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Where eager overflows or loses a number that double precision has."""
    return torch.isfinite(exact) & ~torch.isfinite(eager)


def _flips(eager: torch.Tensor, other: torch.Tensor | None) -> torch.Tensor:
    """Where another way to round changes eager's own answer."""
    if other is None:
        return torch.zeros_like(eager, dtype=torch.bool)
    return eager != other.to(eager.dtype)


def _is_close(eager: torch.Tensor, other: torch.Tensor, tolerance: float) -> torch.Tensor:
    finite = eager[torch.isfinite(eager)]
    scale = float(finite.abs().max()) if finite.numel() else 0.0
    return (eager - other).abs() <= tolerance * max(scale, 1e-30)
