"""Compiled generators, coroutines and asynchronous generators: eager's in all that is done to them, and compiled."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import types
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import argand
from argand.support import events
from argand.support.errors import CaptureError
from tests.runtime import generator_programs as programs


@pytest.fixture
def graphs() -> Iterator[list[int]]:
    """Grows by one with each graph that is captured."""
    seen: list[int] = []

    def hear(event: Any) -> None:
        if isinstance(event, events.Count) and event.counter == "capture.graphs":
            seen.append(event.amount)

    unsubscribe = events.subscribe(hear)
    yield seen
    unsubscribe()


@pytest.mark.parametrize("make", programs.GENERATORS, ids=lambda make: make.__name__)
def test_everything_done_to_a_generator(make: Callable[..., Any]) -> None:
    """Values, exceptions, what is handled, what is logged and in which order: for all scripts, eager's."""
    compiled = argand.compile(make, backend="eager")
    for script in programs.SCRIPTS:
        expected, actual = programs.drive(make, script), programs.drive(compiled, script)
        assert actual == expected, script


class Driven:
    """A coroutine behind the interface of a generator."""

    def __init__(self, coroutine: Any) -> None:
        self.send, self.throw = coroutine.send, coroutine.throw
        self.close = coroutine.close

    def __next__(self) -> Any:
        return self.send(None)


@pytest.mark.parametrize("make", programs.COROUTINES, ids=lambda make: make.__name__)
@pytest.mark.filterwarnings("ignore:coroutine")  # some scripts leave them unfinished
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_everything_done_to_a_coroutine(make: Callable[..., Any]) -> None:
    """The same of coroutines, without an event loop."""
    compiled = argand.compile(make, backend="eager")
    for script in programs.SCRIPTS:
        if script[0] == "send 1" or "exit" in script:
            continue
        expected = programs.drive(lambda *args: Driven(make(*args)), script)
        actual = programs.drive(lambda *args: Driven(compiled(*args)), script)
        assert actual == expected, script


def test_asynchronous_generator_in_python() -> None:
    """Values sent in, exceptions thrown in, and what is awaited in between."""

    async def use(make: Callable[..., Any]) -> Any:
        log: list[Any] = []
        it, seen = make(log, 1), []
        for step in (it.asend(None), it.asend(3), it.athrow(ValueError("v"))):
            try:
                seen.append(await step)
            except ValueError as error:
                seen.append(str(error))
        return seen, log, [item async for item in make(log, 2)]

    async def walk(log: list[Any], x: int) -> AsyncIterator[Any]:
        try:
            for i in range(3):
                await asyncio.sleep(0)
                log.append((yield i * x))
        finally:
            await asyncio.sleep(0)
            log.append("closed")

    assert asyncio.run(use(argand.compile(walk))) == asyncio.run(use(walk))


def test_steps_of_a_loop_are_graphs(graphs: list[int]) -> None:
    """Twenty steps of a loop are two graphs: the first, and all later ones; with `fullgraph` too."""

    def walk(x: Tensor, weights: list[Tensor]) -> Iterator[Tensor]:
        for weight in weights:
            x = torch.sin(x) * weight
            yield x

    weights = [torch.full((2,), i / 10) for i in range(20)]
    expected = list(walk(torch.ones(2), weights))
    for fullgraph in (True, False):
        graphs.clear()
        actual = list(argand.compile(walk, fullgraph=fullgraph)(torch.ones(2), weights))
        torch.testing.assert_close(actual, expected)
        assert len(graphs) <= 2


def test_steps_of_a_coroutine_are_graphs(graphs: list[int]) -> None:
    """What stands between the awaits is compiled, and exceptions of what is awaited come in where it waits."""

    async def failing() -> None:
        await asyncio.sleep(0)
        raise KeyError("awaited")

    async def run(x: Tensor) -> Tensor:
        x = torch.sin(x) * 2
        await asyncio.sleep(0)
        try:
            await failing()
        except KeyError:
            x = torch.cos(x) + 1
        async with asyncio.Lock():
            return x * 3

    expected = asyncio.run(run(torch.ones(2)))
    torch.testing.assert_close(asyncio.run(argand.compile(run)(torch.ones(2))), expected)
    assert graphs


def test_gradients_go_through_the_steps() -> None:
    """Each step is a node of the tape."""

    def walk(x: Tensor) -> Iterator[Tensor]:
        for i in range(3):
            x = (x * 1.5 + i).sin()
            yield x

    x, y = (torch.ones(3, requires_grad=True) for _ in range(2))
    sum(walk(x)).sum().backward()  # type: ignore[union-attr]
    sum(argand.compile(walk)(y)).sum().backward()  # type: ignore[union-attr]
    torch.testing.assert_close(y.grad, x.grad)


def test_inspect_is_answered_as_for_the_function() -> None:
    """Kinds, signatures, names, states."""

    def make(x: Tensor, *, key: int = 3) -> Iterator[Tensor]:
        yield x * key

    async def wait(x: Tensor) -> Tensor:
        return x

    async def both(x: Tensor) -> AsyncIterator[Tensor]:
        yield x

    compiled = argand.compile(make)
    assert inspect.isgeneratorfunction(compiled)
    assert not inspect.iscoroutinefunction(compiled)
    assert inspect.iscoroutinefunction(argand.compile(wait))
    assert inspect.isasyncgenfunction(argand.compile(both))
    assert inspect.signature(compiled) == inspect.signature(make)
    it = compiled(torch.ones(2))
    assert type(it) is types.GeneratorType
    assert (it.__name__, it.__qualname__) == (make.__name__, make.__qualname__)
    assert inspect.getgeneratorstate(it) == "GEN_CREATED"
    next(it)
    assert inspect.getgeneratorstate(it) == "GEN_SUSPENDED"
    with pytest.raises(TypeError, match="make.. got an unexpected keyword argument 'other'"):
        compiled(torch.ones(2), other=3)


def test_an_unfinished_generator_is_closed_when_it_dies() -> None:
    """Its finally clauses run, and it holds what a suspended frame holds, no more."""
    log: list[str] = []

    def walk(x: Tensor) -> Iterator[Tensor]:
        try:
            while True:
                x = x * 2
                yield x + 1
        finally:
            log.append("left")

    it = argand.compile(walk)(torch.ones(2))
    value = weakref.ref(next(it))
    gc.collect()
    assert value() is None
    assert not log
    del it
    assert log == ["left"]


def test_context_managers_are_made_of_them() -> None:
    """`contextlib.contextmanager` over a compiled generator: entered, left, and what is raised inside is caught."""
    log: list[str] = []

    def scaled(x: Tensor) -> Iterator[Tensor]:
        try:
            yield x * 2
        except ValueError:
            log.append("caught")
        finally:
            log.append("left")

    manager = contextlib.contextmanager(argand.compile(scaled))
    with manager(torch.ones(2)) as y:
        torch.testing.assert_close(y, torch.full((2,), 2.0))
        raise ValueError
    assert log == ["caught", "left"]


def test_methods_and_super() -> None:
    """As a decorator in a class, with `super()` after a yield, and bound before it is compiled."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        @argand.compile
        def walk(self, x: Tensor) -> Iterator[Tensor]:
            for _ in range(3):
                x = self.layer(x).relu()
                yield x

    net = Net()
    x = torch.ones(1, 2)
    torch.testing.assert_close(list(net.walk(x)), list(type(net).walk.__wrapped__(net, x)))
    derived = programs.Derived()
    expected = programs.drive(derived.steps, ("next",) * 3)
    assert programs.drive(argand.compile(derived.steps), ("next",) * 3) == expected


def test_inside_of_another_compiled_function_it_is_inlined(graphs: list[int]) -> None:
    """One graph, as of the plain generator function."""

    @argand.compile
    def walk(x: Tensor) -> Iterator[Tensor]:
        yield x
        yield x + 1

    def outer(x: Tensor) -> Tensor:
        return torch.stack(list(walk(x)))

    compiled = argand.compile(outer, fullgraph=True)
    torch.testing.assert_close(compiled(torch.ones(2)), torch.tensor([[1.0, 1.0], [2.0, 2.0]]))
    assert len(graphs) == 1


def test_a_break_in_a_step_continues_the_step() -> None:
    """What comes after a break yields as well; with `fullgraph` it is an error that names the line."""

    def walk(x: Tensor) -> Iterator[Any]:
        total = x.sin()
        if total.sum() > 0:
            total = total + 1
        got = yield total
        print("sent", got)
        yield total * got

    expected, actual = walk(torch.ones(2)), argand.compile(walk)(torch.ones(2))
    torch.testing.assert_close(next(actual), next(expected))
    torch.testing.assert_close(actual.send(3), expected.send(3))
    with pytest.raises(CaptureError, match="B003"):
        next(argand.compile(walk, fullgraph=True)(torch.ones(2)))
