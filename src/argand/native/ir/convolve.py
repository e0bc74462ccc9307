"""native.ir.convolve: a convolution that we generate ourselves, as the target of an extern node.

Its operands are the image (channels last), the weight in its own strides, then a bias and a scale per output channel, each or none.
One dimension is an image of height 1. The result is channels last.

A transposed convolution is several plain ones: a result ``o`` meets the tap ``k`` of the pixel ``i`` where ``o + padding = i * stride + k``, so
results that are ``stride`` apart meet the same taps (a phase), and neighbours among them neighbouring pixels.
"""

from __future__ import annotations

from itertools import product
from typing import Final, NamedTuple, TypeAlias

from typing_extensions import override

Pair: TypeAlias = tuple[int, int]
Strides4: TypeAlias = tuple[int, int, int, int]
LARGEST: Final = 2**31 - 1  # elements of an image that 32 bits can number
NARROWEST: Final = 8  # channels of a group below which vectors are mostly empty
MOST_PHASES: Final = 16  # of a transposed convolution; each has a row of sizes


class Convolve(NamedTuple):
    """All sizes of one convolution; pairs are (high, wide)."""

    batch: int
    inputs: int
    outputs: int
    image: Pair
    result: Pair
    taps: Pair
    stride: Pair
    padding: Pair
    dilation: Pair
    groups: int
    weight_strides: Strides4  # of an output of a group, an input of a group, a line of taps, a tap
    weight_place: Pair = (0, 0)  # from group to group beyond its outputs, and the first number
    transposed: bool = False

    @override
    def __str__(self) -> str:
        return f"convolve{' transposed' * self.transposed} {self.taps[0]}x{self.taps[1]}"

    @property
    def pixels(self) -> int:
        """Pixels of all results."""
        return self.batch * self.result[0] * self.result[1]

    @property
    def depthwise(self) -> bool:
        """Whether each channel is convolved by itself."""
        return self.groups == self.inputs == self.outputs > 1 and not self.transposed

    @property
    def point(self) -> bool:
        """Whether every pixel is made of the one at its own place."""
        return self.taps == self.stride == (1, 1) and self.padding == (0, 0)

    @property
    def wanted(self) -> bool:
        """Whether generated code is good at it."""
        sizes = (self.batch, *self.image, *self.result, self.inputs, self.outputs)
        if min(sizes) < 1 or self.batch * self.inputs * self.image[0] * self.image[1] > LARGEST:
            return False
        if self.transposed and not self._has_phases:
            return False
        return self.depthwise or self.groups == 1 or self.outputs // self.groups >= NARROWEST

    @property
    def _has_phases(self) -> bool:
        lines = list(map(self._stride, (0, 1)))
        near = all(step == 1 or d == 1 for step, d in zip(lines, self.dilation, strict=True))
        return near and lines[0] * lines[1] <= MOST_PHASES and self.pixels <= LARGEST

    def _stride(self, side: int) -> int:
        """Results from one of a phase to the next; where there is one pixel no two meet the same tap."""
        taps = self.taps[side]
        alone = self.image[side] == self.dilation[side] == 1 and taps * taps <= MOST_PHASES
        return taps if alone else self.stride[side]

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The plain convolutions that a transposed one is made of."""
        sides = [[_Side(self, side, r) for r in range(self._stride(side))] for side in (0, 1)]
        kept = [[side for side in found if side.count > 0] for found in sides]
        return tuple(_phase(self, high, wide) for high, wide in product(*kept))


class Phase(NamedTuple):
    """A plain convolution, and where its results lie among all: the first, and how far apart."""

    part: Convolve
    first: Pair
    step: Pair


class _Side:
    """One dimension of the phase of the results ``o`` with ``(o + padding) % stride == rest``."""

    def __init__(self, spec: Convolve, side: int, rest: int) -> None:
        stride, padding, dilation = spec._stride(side), spec.padding[side], spec.dilation[side]
        self.stride, self.rest = stride, rest
        self.first = (rest - padding) % stride
        self.count = -(-(spec.result[side] - self.first) // stride)
        self.taps = max(-(-(spec.taps[side] - rest) // stride), 0)
        # the pixel that the first result meets by the first tap; windows begin at the last one
        pixel = (self.first + padding) // stride
        self.padding = (self.taps - 1) * dilation - pixel


def _phase(spec: Convolve, high: _Side, wide: _Side) -> Phase:
    output, inner, line, tap = spec.weight_strides
    lines, taps = (
        high.rest + (high.taps - 1) * high.stride,
        wide.rest + (wide.taps - 1) * wide.stride,
    )
    own = spec._replace(
        result=(high.count, wide.count),
        taps=(high.taps, wide.taps),
        stride=(1, 1),
        padding=(high.padding, wide.padding),
        weight_strides=(output, inner, -high.stride * line, -wide.stride * tap),
        weight_place=(spec.weight_place[0], spec.weight_place[1] + lines * line + taps * tap),
        transposed=False,
    )
    return Phase(own, (high.first, wide.first), (high.stride, wide.stride))
