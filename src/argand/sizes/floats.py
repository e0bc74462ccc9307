"""sizes.floats: floats that are inputs of a graph.

A float has no expression: it goes into a graph as it is, where it meets a tensor. Two traces of a
program get two values near the real one, so that a float which depends on an open one shows.
In: the float of a call. Out: what stands for it; ops.facts says which operators may take it.
"""

from __future__ import annotations

import math
from typing import Final, final

from argand.sizes.expressions import Symbol

# float16 has no numbers above the first, float32 and bfloat16 few above the second.
LARGEST: Final = (65504.0, 3e38)


@final
class OpenFloat(float):
    """A float that is an input of a graph, made of these symbols; its value is but a sample."""

    symbols: frozenset[Symbol]

    def __new__(cls, value: float, symbols: frozenset[Symbol]) -> OpenFloat:
        """A value with its symbols."""
        made = super().__new__(cls, value)
        made.symbols = symbols
        return made


def sample_pair(place: int, value: OpenFloat) -> tuple[OpenFloat, OpenFloat]:
    """What stands for a float in the two traces: near it, and no number that a program has."""
    near = value if math.isfinite(value) and abs(value) > 1e-300 else 1.0
    one, two = (2 * place + 1, 2 * place + 2)
    return (
        OpenFloat(near * (1 - one * 2**-24), value.symbols),
        OpenFloat(near * (1 - two * 2**-24), value.symbols),
    )
