"""native.ir.convolve: a convolution that we generate ourselves, as the target of an extern node.

Its operands are the image (channels last), the weight in its own strides, then a bias and a scale per output channel, each or none.
One dimension is an image of height 1. The result is channels last.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from typing_extensions import override

Pair: TypeAlias = tuple[int, int]
Strides4: TypeAlias = tuple[int, int, int, int]
LARGEST: Final = 2**31 - 1  # elements of an image that 32 bits can number
NARROWEST: Final = 8  # channels of a group below which vectors are mostly empty


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
    weight_strides: Strides4

    @override
    def __str__(self) -> str:
        return f"convolve {self.taps[0]}x{self.taps[1]}"

    @property
    def pixels(self) -> int:
        """Pixels of all results."""
        return self.batch * self.result[0] * self.result[1]

    @property
    def depthwise(self) -> bool:
        """Whether each channel is convolved by itself."""
        return self.groups == self.inputs == self.outputs > 1

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
        return self.depthwise or self.groups == 1 or self.outputs // self.groups >= NARROWEST
