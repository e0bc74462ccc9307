"""runtime.convolution: a convolution step of an inference plan, with its weight in oneDNN's own format.

In: geometry, from the native compiler or a cache file. Out: a callable step, which also scales the weight
per channel and adds a residual. A packed weight is used as long as the contents of weight and scale have
the same fingerprint: torch's version counters miss writes through ``.data``, numpy and DLPack.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias, final

import torch

from argand.runtime import _native

PATIENCE: Final = 4  # changes of a weight before more than half the calls must find it unchanged
Spec: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int]


@final
class PackedConvolution:
    """A convolution that keeps its weight in oneDNN's format while the contents stay the same."""

    __match_args__ = ("spec",)  # all that a cache stores

    def __init__(self, spec: Spec) -> None:
        self.spec = spec  # stride, padding, dilation, groups
        stride, padding, dilation, groups = map(_listed, spec)
        self._plain = (stride, padding, dilation, False, [0] * len(stride), groups)
        self._packed = (padding, stride, dilation, groups)
        # replaced as one: threads see old or new
        self._state: tuple[Any, Any, Any] = (None, None, None)
        self._last: Any = None  # the sizes of the call before
        self._calls = self._changes = 0
        self._pack = torch.ops.mkldnn._reorder_convolution_weight.default._op
        self._run = torch.ops.mkldnn._convolution_pointwise.default._op
        self._add = torch.ops.mkldnn._convolution_pointwise.binary._op

    def __call__(
        self, x: Any, weight: Any, bias: Any, scale: Any = None, residual: Any = None
    ) -> Any:
        """Convolve; a weight that keeps changing is not packed again, and none is for sizes that come once."""
        self._calls += 1
        sizes, (packed_for, known, packed) = x.shape, self._state
        again, self._last = sizes == self._last, sizes
        if not (again or sizes == packed_for) or (
            self._changes > PATIENCE and self._changes * 2 > self._calls
        ):
            plain = torch.ops.aten.convolution.default._op(
                x, _scaled(weight, scale), bias, *self._plain
            )
            return plain if residual is None else plain.add_(residual)
        mark = _mark(weight, scale)
        # oneDNN chooses the format by the sizes: for others it may be slow
        if known != mark or sizes != packed_for:
            self._changes += known != mark
            packed = self._pack(_scaled(weight.detach(), scale), *self._packed, list(sizes))
            if _mark(weight, scale) == mark:  # or another thread wrote while it was packed
                self._state = (sizes, mark, packed)
        if residual is None:
            return self._run(x, packed, bias, *self._packed, "none", [], "")
        return self._add(x, residual, packed, bias, *self._packed, "add", 1.0, None, [], None)


def _mark(weight: Any, scale: Any) -> tuple[int, ...]:
    return tuple(_native.fingerprint(t, t.nbytes) for t in (weight, scale) if t is not None)


def _scaled(weight: Any, scale: Any) -> Any:
    return weight if scale is None else weight * scale.view(-1, 1, 1, 1)


def _listed(value: Any) -> Any:
    return value if isinstance(value, int) else list(value)
