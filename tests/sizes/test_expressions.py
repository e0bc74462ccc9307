"""Symbolic integers against brute force over small integers."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from argand.sizes.expressions import Expr, SizeInt, Symbol, largest, smallest
from argand.sizes.facts import compare

A, B = Symbol("a", 2, 6), Symbol("b", 1, 5)
SAMPLES = [{A: a, B: b} for a, b in itertools.product(range(2, 7), range(1, 6))]
OPERATORS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}

Pair = tuple[Expr, Any]  # an expression, and its value in each sample

LEAVES = st.one_of(
    st.sampled_from([A, B]).map(lambda s: (Expr.of(s), [v[s] for v in SAMPLES])),
    st.integers(-5, 9).map(lambda n: (Expr.of(n), [n] * len(SAMPLES))),
)


def _combine(children: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    def build(name: str, left: Pair, right: Pair) -> Pair:
        (x, xs), (y, ys) = left, right
        if name in {"//", "%"} and 0 in ys:
            y, ys = y * y + 1, [value * value + 1 for value in ys]
        table: dict[str, tuple[Any, Any]] = {
            "+": (operator.add, operator.add),
            "-": (operator.sub, operator.sub),
            "*": (operator.mul, operator.mul),
            "//": (operator.floordiv, operator.floordiv),
            "%": (operator.mod, operator.mod),
            "min": (Expr.smaller, min),
            "max": (Expr.larger, max),
        }
        symbolic, concrete = table[name]
        return symbolic(x, y), [concrete(a, b) for a, b in zip(xs, ys, strict=True)]

    return st.builds(
        build, st.sampled_from(["+", "-", "*", "//", "%", "min", "max"]), children, children
    )


PAIRS = st.recursive(LEAVES, _combine, max_leaves=6)


@settings(max_examples=120, deadline=None)
@given(PAIRS)
def test_values_and_bounds_agree_with_python(pair: Pair) -> None:
    expr, values = pair
    assert [expr.evaluate(sample) for sample in SAMPLES] == values
    low, high = expr.bounds()
    assert low <= min(values) and max(values) <= high
    if expr.constant is not None:
        assert set(values) == {expr.constant}


@settings(max_examples=120, deadline=None)
@given(PAIRS, PAIRS, st.sampled_from(sorted(OPERATORS)))
def test_what_is_proven_holds_everywhere(left: Pair, right: Pair, name: str) -> None:
    answers = {OPERATORS[name](a, b) for a, b in zip(left[1], right[1], strict=True)}
    proven = compare(name, left[0], right[0])
    assert proven is None or answers == {proven}


@settings(max_examples=60, deadline=None)
@given(PAIRS, PAIRS)
def test_equal_however_written(left: Pair, right: Pair) -> None:
    (x, _), (y, _) = left, right
    assert x + y == y + x and x * y == y * x and hash(x * y) == hash(y * x)
    assert (x + y) - y == x and (x + y) * (x - y) == x * x - y * y


@settings(max_examples=30, deadline=None)
@given(PAIRS, LEAVES)
def test_replacing_is_evaluating(pair: Pair, other: Pair) -> None:
    swapped = pair[0].replace({A: Expr.of(B) + 1})
    for sample in SAMPLES:
        assert swapped.evaluate(sample) == pair[0].evaluate({A: sample[B] + 1, B: sample[B]})


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (lambda s, t: (s * 12) // 4, "3*s"),
        (lambda s, t: (s * t * 6) // (t * 2), "3*s"),
        (lambda s, t: ((s + 1) * t) // (s + 1), "t"),
        (lambda s, t: (s * 4 + 3) // 4, "s"),
        (lambda s, t: (s * 4 + 3) % 4, "3"),
        (lambda s, t: (s - 1) // 2 + 1, "((s + 1) // 2)"),
        (lambda s, t: (s // 2) // 3, "(s // 6)"),
        (lambda s, t: s * t - t * s, "0"),
        (lambda s, t: s.smaller(s + 1), "s"),
        (lambda s, t: (s // 2).larger(0), "(s // 2)"),
        (lambda s, t: s.smaller(t), "min(s, t)"),
    ],
)
def test_simplified(made: Any, text: str) -> None:
    assert str(made(Expr.of(Symbol("s")), Expr.of(Symbol("t")))) == text


def test_proofs_without_upper_bounds() -> None:
    s, t = Expr.of(Symbol("s")), Expr.of(Symbol("t"))
    assert compare("<=", s // 2, s) is True
    assert compare(">", s * t, s) is True
    assert compare("<=", s.smaller(t), t) is True
    assert compare("==", s, t) is None
    assert compare("==", s + 1, s) is False


def test_size_ints_carry_their_expression() -> None:
    symbol = Symbol("s0")
    s = SizeInt(101, Expr.of(symbol))
    assert isinstance(s * 4 + 1, SizeInt) and s * 4 + 1 == 405 and str(s * 4 + 1) == "4*s0 + 1"
    assert str(7 - s) == "-s0 + 7" and str((2 * s) // s) == "2" and type(s - s) is int
    assert str(s**2) == "s0*s0" and s**2 == 101**2 and abs(s) is not None
    assert str(smallest(s, 5)) == "min(5, s0)" and smallest(4, 5) == 4
    assert str(largest(s, 1)) == "s0" and str(divmod(s, 2)) == "((s0 // 2), (s0 % 2))"
    assert (s + s).expr.evaluate({symbol: 7}) == 14
    assert isinstance(s * 0.5, float)
