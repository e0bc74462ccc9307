"""The table that finds expressions of integers in fakes."""

from __future__ import annotations

import pytest

from argand.sizes.expressions import SizeInt
from argand.sizes.refusals import Stop
from argand.sizes.table import SizeTable


def test_products_of_symbols_are_found() -> None:
    table = SizeTable(avoid=[101, 206])
    batch, length = table.symbol("s0", 8), table.symbol("s1", 20)
    assert not {101, 103} & {int(batch), int(length)}  # they divide sizes of the program
    assert str(table.express(batch * length * 64)) == "64*s0*s1"
    assert str(table.express(int(batch) ** 2)) == "s0*s0"
    assert str(table.express(-int(batch) * 4)) == "-4*s0"
    for number in (0, 1, -1, 768, 30522):
        assert type(table.express(number)) is int
    assert table.real(batch * length + 1) == 161 and table.real(5) == 5


def test_sums_are_found_when_learned() -> None:
    table = SizeTable()
    batch = table.symbol("s0", 8)
    assert type(table.express(int(batch) + 1)) is int
    table.learn(batch + 1)
    assert str(table.express((int(batch) + 1) * 64)) == "64*s0 + 64"
    twin = table.twin()
    other = next(iter(twin.samples.values()))
    assert other != batch and str(twin.express(other + 1)) == "s0 + 1"


def test_facts_choose_the_samples() -> None:
    table = SizeTable()
    size = table.symbol("s0", 20)
    table.constrain("<=", size, 512)
    table.constrain("<=", size, 512)
    assert [str(fact) for fact in table.facts] == ["s0 <= 512"]
    with pytest.raises(Stop, match="the samples need") as caught:
        table.constrain("<", size, 50)
    again = SizeTable(facts=[caught.value.reason.fact])
    assert again.symbol("s0", 20) < 50
    with pytest.raises(Stop, match="false now"):
        again.constrain(">", again.size(size.expr), 50)
    assert isinstance(again.size(size.expr + 1), SizeInt) and again.size(5) == 5


def test_a_sum_is_not_taken_for_another_symbol() -> None:
    table = SizeTable(wishes=())
    batch, length = table.symbol("s0", 8), table.symbol("s1", 30)
    alike = batch + (int(length) - int(batch))
    with pytest.raises(Stop, match="the samples need") as caught:  # s0 + 2, say, is s1 in the fakes
        table.learn(alike)
    again = SizeTable(wishes=[caught.value.reason.fact])
    again.symbol("s0", 8), again.symbol("s1", 30)
    again.learn(again.size(alike.expr))
    assert [str(again.express(n)) for n in (again.at(alike.expr), again.at(length.expr))] == [
        str(alike.expr),
        "s1",
    ]
    with pytest.raises(Stop, match="the samples need"):
        table.learn(batch + (2 * int(length) - int(batch)))
