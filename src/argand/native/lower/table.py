"""native.lower.table: all lowering rows in one mapping, aten overload name -> row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from argand.native.lower import (
    activations,
    attention,
    factories,
    losses,
    pointwise,
    random,
    reductions,
    views,
)
from argand.native.lower.context import Lowering

# Composite ops the backend must not decompose: one instruction sequence of ours is better than the
# sum of the parts (gelu), the whole saves less for the backward pass (dropout's mask is bool), or raises as
# eager does (classes of a loss).
KEPT: Final = frozenset(
    {f"aten.{name}.default" for name in ("softplus", "nll_loss_forward", "nll_loss2d_forward")}
) | {
    f"aten.{name}{end}.default"
    for name in ("gelu", "silu", "native_dropout")
    for end in ("", "_backward")
}

# The backend takes composite ops apart (``ops.decompositions``) before they come here; a composite op
# that comes all the same, in a graph made by hand, is a call of torch's kernel.
TABLE: Final[Mapping[str, Lowering]] = {
    name: row
    for family in (pointwise, activations, attention, views, reductions, factories, losses, random)
    for name, row in family.TABLE.items()
}
