"""native.lower.table: all lowering rows in one mapping, aten overload name -> row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from argand.native.lower import activations, factories, norms, pointwise, random, reductions, views
from argand.native.lower.context import Lowering

TABLE: Final[Mapping[str, Lowering]] = {
    **pointwise.TABLE,
    **activations.TABLE,
    **views.TABLE,
    **reductions.TABLE,
    **norms.TABLE,
    **factories.TABLE,
    **random.TABLE,
}
