"""native.lower.table: all lowering rows in one mapping, aten overload name -> row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from argand.native.lower import activations, factories, pointwise, random, reductions, views
from argand.native.lower.context import Lowering

# Composite ops the backend must not decompose: one instruction sequence of ours is better than the
# sum of the parts (gelu), or the whole saves less for the backward pass (dropout's mask is bool).
KEPT: Final = frozenset(
    f"aten.{name}.default"
    for name in [
        "gelu",
        "gelu_backward",
        "silu",
        "silu_backward",
        "softplus",
        "native_dropout",
        "native_dropout_backward",
    ]
)

# The backend takes composite ops apart (``ops.decompositions``) before they come here; a composite op
# that comes all the same, in a graph made by hand, is a call of torch's kernel.
TABLE: Final[Mapping[str, Lowering]] = {
    **pointwise.TABLE,
    **activations.TABLE,
    **views.TABLE,
    **reductions.TABLE,
    **factories.TABLE,
    **random.TABLE,
}
