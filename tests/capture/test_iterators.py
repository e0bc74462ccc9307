"""Iterators that live across a graph break: the rest of them is one graph, and they are left where Python leaves them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import argand
from argand.support import events

Program = Callable[..., Any]


class Counted:
    """A compiled function that counts its graphs."""

    def __init__(self, function: Program) -> None:
        self.graphs = 0
        self.function = argand.compile(function, backend=self._keep, options={"strict": True})

    def _keep(self, module: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        self.graphs += 1
        return module.forward

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)


def _of_tuple(x: torch.Tensor) -> Any:
    numbers = iter((1, 2, 3, 4, 5))
    x = x + next(numbers)
    argand.graph_break()
    for number in numbers:
        x = x * number
    return x, list(numbers)


def _left_over(x: torch.Tensor) -> Any:
    numbers = iter([1, 2, 3, 4])
    argand.graph_break()
    x = x + next(numbers) * next(numbers)
    return x, numbers


def _backwards(x: torch.Tensor) -> Any:
    numbers = reversed([1, 2, 3, 4])
    x = x + next(numbers)
    argand.graph_break()
    x = x * next(numbers)
    return x, numbers


def _of_range(x: torch.Tensor) -> Any:
    numbers = iter(range(2, 9))
    x = x + next(numbers)
    argand.graph_break()
    return x * next(numbers), numbers


def _of_text(x: torch.Tensor) -> Any:
    letters = iter("abc")
    x = x + ord(next(letters))
    argand.graph_break()
    return x * ord(next(letters)), letters


def _enumerated(x: torch.Tensor) -> Any:
    numbers = iter([3, 4, 5, 6])
    pairs = enumerate(numbers, 7)
    x = x + next(pairs)[1]
    argand.graph_break()
    at, number = next(pairs)
    return x * at * number, pairs, numbers


def _taken_from_both(x: torch.Tensor) -> Any:
    numbers = iter([3, 4, 5, 6, 7])
    pairs = enumerate(numbers)
    argand.graph_break()
    x = x + next(numbers)
    x = x * sum(next(pairs))
    return x + next(numbers), pairs, numbers


def _zipped(x: torch.Tensor) -> Any:
    long, short = iter([1, 2, 3, 4]), iter((5, 6))
    pairs = zip(long, short, strict=False)
    x = x + sum(next(pairs))
    argand.graph_break()
    for a, b in pairs:
        x = x * a + b
    return x, long, short


def _of_tensors(x: torch.Tensor) -> Any:
    tensors = iter([x, x + 1, x + 2])
    y = next(tensors) * 2
    argand.graph_break()
    for tensor in tensors:
        y = y + tensor
    return y


def _used_up(x: torch.Tensor) -> Any:
    items = [1, 2]
    numbers = iter(items)
    argand.graph_break()
    for number in numbers:
        x = x + number
    return x, numbers, items


CASES = [
    _of_tuple,
    _left_over,
    _backwards,
    _of_range,
    _of_text,
    _enumerated,
    _taken_from_both,
    _zipped,
    _of_tensors,
    _used_up,
]


def _shown(results: Any) -> list[Any]:
    """Results with what is left of iterators; lists grow then, which one that has ended must not see."""
    results = results if isinstance(results, tuple) else (results,)
    for value in results:
        if type(value) is list:
            value.append(99)
    return [value if isinstance(value, torch.Tensor | list) else list(value) for value in results]


@pytest.mark.parametrize("program", CASES)
def test_the_rest_of_an_iterator_is_one_graph(program: Program) -> None:
    x, compiled = torch.ones(3), Counted(program)
    for _ in range(3):
        got, wanted = _shown(compiled(x)), _shown(program(x))
        assert len(got) == len(wanted)
        for a, b in zip(got, wanted, strict=True):
            assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
    assert compiled.graphs <= 2


def test_a_list_that_changes_while_its_iterator_is_used() -> None:
    def program(x: torch.Tensor) -> Any:
        items = [1, 2, 3]
        numbers = iter(items)
        x = x + next(numbers)
        argand.graph_break()
        x = x + next(numbers)
        items.append(4)
        return x, numbers, items

    x, compiled = torch.ones(3), Counted(program)
    for _ in range(2):
        (got, left, items), (wanted, wanted_left, wanted_items) = compiled(x), program(x)
        assert torch.equal(got, wanted)
        assert (list(left), items) == (list(wanted_left), wanted_items)


def test_a_loop_that_breaks_in_each_pass_is_not_compiled_for_each_place() -> None:
    def program(x: torch.Tensor, items: list[int]) -> torch.Tensor:
        for item in items:
            x = x + item
            argand.graph_break()
        return x

    compiled = Counted(program)
    assert torch.equal(
        compiled(torch.ones(3), list(range(40))), program(torch.ones(3), list(range(40)))
    )
    assert compiled.graphs < 6


def test_an_iterator_of_the_caller_that_is_elsewhere_at_each_call() -> None:
    def program(x: torch.Tensor, numbers: Any) -> torch.Tensor:
        x = x + 1
        argand.graph_break()
        return x * next(numbers)

    compiled, ours, theirs = Counted(program), iter(range(30)), iter(range(30))
    with events.collect() as seen:
        for _ in range(30):
            assert torch.equal(compiled(torch.ones(3), ours), program(torch.ones(3), theirs))
    assert list(ours) == list(theirs)
    assert seen.total("recompiles") <= 4


@pytest.mark.parametrize("wrap", [zip, enumerate, lambda inner: zip(enumerate(inner), "abcdef")])
def test_an_iterator_over_one_that_is_elsewhere_at_each_call(wrap: Any) -> None:
    def program(x: torch.Tensor, pairs: Any) -> Any:
        x = x + 1
        argand.graph_break()
        return [(x * i, pair) for i, pair in enumerate(pairs)]

    compiled, x = Counted(program), torch.ones(3)
    for taken in (0, 1, 3, 2):
        ours, theirs = wrap(iter([4, 5, 6, 7, 8])), wrap(iter([4, 5, 6, 7, 8]))
        for pairs in (ours, theirs):
            for _ in range(taken):
                next(pairs)
        assert str(compiled(x, ours)) == str(program(x, theirs))
        assert list(ours) == list(theirs) == []
