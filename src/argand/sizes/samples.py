"""sizes.samples: which integer stands for a symbol in the fakes.

In: a symbol, the facts its sample has to satisfy, and the integers that are taken. Out: a prime and a
factor whose product is the sample. Each symbol has a prime of its own, so that products of sizes can
be read back; the factor is there for sizes that must be divisible.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from argand.sizes.expressions import Expr, Symbol
from argand.sizes.facts import Fact

# Small, so that fakes with four symbolic dimensions still fit the address space the system grants;
# not near the sizes programs have. Then smaller ones and larger ones, for sizes with bounds.
_START: Final = 101
_FEW: Final = 22  # sizes that cannot be larger have small samples too
_SPREAD: Final = (23, 29, 47, 101, 113, 191, 397, 4999)  # some of all that are larger
_TURNED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_TIMES: Final = (1, 2, 4, 8, 16, 32, 64, 3, 5, 6, 7, 9, 10, 12, 14, 20, 24, 28, 48, 56)


def find_sample(
    symbol: Symbol,
    about: Sequence[Fact],
    samples: Mapping[Symbol, int],
    taken: Collection[int],
    known: Collection[int],
    divided: Sequence[int],
) -> tuple[int, int] | None:
    """A prime and a factor that satisfy the facts about a symbol, given other samples; None: none.

    The prime is not `taken` and divides none of `divided`; the sample is none of `known`.
    """
    low, high = _range(symbol, about, samples)
    candidates = _candidates() if high > _FEW else (*_candidates(), 7, 5, 3, 2)
    for times in _TIMES if about else (1,):
        for prime in candidates:
            sample = prime * times
            if not low <= sample <= high or prime in taken or sample in known:
                continue
            if any(other % prime == 0 for other in divided):
                continue
            values = {**samples, symbol: sample}
            if all(fact.holds(values) for fact in about if fact.symbols <= values.keys()):
                return prime, times
    return None


def has_large_sample(fact: Fact, samples: Mapping[Symbol, int]) -> bool:
    """Whether another sample of one symbol satisfies a fact, and is not as small as constants are."""
    return any(
        fact.holds({**samples, symbol: prime * times})
        for symbol in fact.symbols
        for times in _TIMES
        for prime in _SPREAD
    )


def _range(
    symbol: Symbol, about: Sequence[Fact], samples: Mapping[Symbol, int]
) -> tuple[float, float]:
    """Between which integers the facts about a symbol that are as simple as that leave it."""
    low, high = symbol.minimum, math.inf if symbol.maximum is None else symbol.maximum
    for fact in about:
        operator, left, right = fact.operator, fact.left, fact.right
        if right == Expr.of(symbol):
            operator, left, right = _TURNED.get(operator, operator), right, left
        if left == Expr.of(symbol) and right.symbols <= samples.keys():
            limit = right.evaluate(samples)
            low = max(low, limit) if operator in (">", ">=") else low
            high = min(high, limit) if operator in ("<", "<=") else high
    return low, high


def _primes(low: int, high: int) -> list[int]:
    return [n for n in range(low, high) if all(n % k for k in range(2, int(n**0.5) + 1))]


@functools.cache
def _candidates() -> tuple[int, ...]:
    # The first ones at uneven distances: with 101, 103 and then 107, 109 no twin would tell a - 2
    # from b.
    first = (101, 113, 137, 109, 163, 127, 191, 149)
    return (*first, *_primes(_START, 400), *reversed(_primes(11, _START)), *_primes(400, 5000))
