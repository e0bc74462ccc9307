"""A graph's view of its sizes does not change; a stage learns on a table of its own."""

from argand.sizes.expressions import Expr
from argand.sizes.table import SizeTable
from argand.sizes.view import GraphSizes


def test_a_view_is_not_what_a_table_learns_later() -> None:
    table = SizeTable()
    size = table.symbol("s0", 20)
    view = GraphSizes(table)
    table.learn(size + 3)
    table.constrain("<=", size, 512)
    table.symbol("s1", 5)
    assert [str(symbol) for symbol in view.samples] == ["s0"] and view.relied == ()
    assert (
        type(view.express(int(size) + 3)) is int and str(table.express(int(size) + 3)) == "s0 + 3"
    )


def test_tables_of_a_view_are_apart() -> None:
    table = SizeTable()
    size = table.symbol("s0", 20)
    table.learn(size + 3)
    table.constrain("<=", size, 512)
    view = GraphSizes(table)
    one, two = view.table(), view.table()
    one.learn(size + 7)
    one.constrain("<=", size, 300)
    assert str(one.express(int(size) + 7)) == "s0 + 7" and type(two.express(int(size) + 7)) is int
    assert (
        [str(fact) for fact in view.relied] == ["s0 <= 512"] == [str(fact) for fact in two.relied]
    )
    assert view.at(size + 3) == two.at(Expr.of(size) + 3) == int(size) + 3
    assert one.place() is None  # it outlives the trace
