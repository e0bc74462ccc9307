"""capture.sizes.relations: facts about sizes as guards.

In: a fact over symbols, and where each symbol is found in the frame. Out: a RELATION guard, whose text
names the places as the user would write them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from argand.runtime.guards import Guard, GuardKind, Relation
from argand.runtime.sources import Source
from argand.sizes.expressions import Apply, Expr, Symbol
from argand.sizes.facts import Fact


def relation(fact: Fact, sources: Mapping[Symbol, Source]) -> Guard:
    """The guard that checks a fact."""
    first = min(fact.symbols, key=lambda symbol: symbol.name)
    written = {
        symbol: Expr.of(Symbol(str(sources[symbol]), symbol.minimum, symbol.maximum))
        for symbol in fact.symbols
    }
    row = Relation(
        fact.operator,
        _side(fact.left, sources),
        _side(fact.right, sources),
        str(fact.replace(written)),
    )
    return Guard(GuardKind.RELATION, sources[first], row, fact.where)


def _side(expr: Expr, sources: Mapping[Symbol, Source]) -> Any:
    return tuple(
        (times, tuple(_factor(atom, sources) for atom in product)) for product, times in expr.terms
    )


def _factor(atom: Symbol | Apply, sources: Mapping[Symbol, Source]) -> Any:
    if isinstance(atom, Symbol):
        return sources[atom]
    return atom.name, _side(atom.left, sources), _side(atom.right, sources)
