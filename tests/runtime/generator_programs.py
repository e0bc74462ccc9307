"""Generators of all kinds, and what is done to them: what must be the same of a compiled one."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import torch

Log = list[Any]


def simple(log: Log, x: Any) -> Iterator[Any]:
    """Values sent in, a value returned."""
    got = yield x + 1
    log.append(got)
    y = x * 2
    got = yield y
    log.append((got, y))
    return y + 1


def in_loop(log: Log, x: Any) -> Iterator[Any]:
    """An iterator stays on the stack."""
    for i in range(3):
        x = x * 2
        log.append((yield x + i))
    for key in {"a": 1, "b": 2}:
        yield key * 2
    return x


def with_finally(log: Log, x: Any) -> Iterator[Any]:
    """Clauses that run when it is closed."""
    try:
        yield x
        x = x + 1
        yield x
    except ValueError as error:
        log.append(("caught", str(error)))
        yield x * 3
    finally:
        log.append("finally")


def in_handler(log: Log, x: Any) -> Iterator[Any]:
    """A yield in a handler: what is handled there is not what is handled outside."""
    try:
        raise KeyError("inner")
    except KeyError:
        try:
            raise ValueError("second")
        except ValueError:
            yield x
            log.append(sys.exc_info()[0])
            try:
                raise TypeError("third")
            except TypeError as third:
                log.append(type(third.__context__))
        log.append(sys.exc_info()[0])
        yield x + 1
        log.append(sys.exc_info()[0])
    log.append(sys.exc_info()[0])
    yield x + 2


def raises_on(log: Log, x: Any) -> Iterator[Any]:
    """A bare raise after a yield in a handler."""
    try:
        raise KeyError("kept")
    except KeyError:
        yield x
        raise


class Managed:
    """A context manager that takes a ValueError."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def __enter__(self) -> int:
        self.log.append("enter")
        return 3

    def __exit__(self, kind: Any, *rest: Any) -> bool:
        self.log.append(("exit", kind))
        return kind is ValueError


def in_with(log: Log, x: Any) -> Iterator[Any]:
    """Yields inside of `with`, two deep."""
    with Managed(log) as three:
        with Managed(log):
            yield x + three
            x = x * 2
        yield x
    yield x - 1


def in_call(log: Log, x: Any) -> Iterator[Any]:
    """A yield among the operands of a call, an attribute and an operator."""
    log.append(max((yield x), 3))
    y = [x, (yield 2), *((yield 3) or ())]
    z = {"a": (yield len(y)), "b": x}
    return f"{(yield sorted(z))!s:>5}"


def delegating(log: Log, x: Any) -> Iterator[Any]:
    """`yield from` generators, iterators and lists."""
    log.append((yield from simple(log, x)))
    log.append((yield from [1, 2]))
    result = yield from with_finally(log, x)
    return result


class Thrower:
    """An iterator with its own throw and close."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def __iter__(self) -> Thrower:
        return self

    def __next__(self) -> str:
        return "next"

    def throw(self, error: BaseException) -> str:
        self.log.append(("thrown", str(error)))
        if str(error) == "stop":
            raise StopIteration("stopped")
        return "thrown"

    def close(self) -> None:
        self.log.append("close")


def to_thrower(log: Log, x: Any) -> Iterator[Any]:
    """`yield from` an object that is no generator."""
    try:
        log.append((yield from Thrower(log)))
        yield x
    finally:
        log.append("out")


def closure(log: Log, x: Any) -> Iterator[Any]:
    """Cells, shared with functions made inside."""
    count = 0

    def more() -> int:
        nonlocal count
        count += 1
        return count

    log.append(more)
    while count < 3:
        yield x + more()
    yield [more() for _ in range(2)]
    return count


def escapes(log: Log, x: Any) -> Iterator[Any]:
    """A StopIteration that leaves it."""
    yield x
    raise StopIteration(1)


def ignores_close(log: Log, x: Any) -> Iterator[Any]:
    """Yields when it is closed."""
    try:
        yield x
    except GeneratorExit:
        yield x + 1


def deletes(log: Log, x: Any) -> Iterator[Any]:
    """A variable deleted, one that is unset on some ways and not read there."""
    y = x + 1
    yield y
    del y
    if log is None:
        z = 3
    yield x
    try:
        log.append(y)  # noqa: F821
    except UnboundLocalError:
        log.append("unset")
    z = 2
    yield z


def maybe_unset(log: Log, x: Any) -> Iterator[Any]:
    """A variable that may be unset at a yield, and is read later: Python's."""
    for last in log:
        yield last
    yield x
    try:
        log.append(last)
    except UnboundLocalError:
        log.append("unset")


def arguments(log: Log, x: Any, *rest: Any, key: int = 3, **named: Any) -> Iterator[Any]:
    """All kinds of arguments."""
    for value in rest:
        yield value + x
    yield key, sorted(named)


class Counter:
    """Methods, and `super()`."""

    def steps(self, log: Log, x: Any) -> Iterator[Any]:
        """The one above."""
        yield x
        log.append("base")


class Derived(Counter):
    """Calls the one above."""

    def steps(self, log: Log, x: Any) -> Iterator[Any]:
        """`super()` after a yield."""
        yield x + 1
        yield from super().steps(log, x)


def nested_loops(log: Log, x: Any) -> Iterator[Any]:
    """Break, continue, else, while."""
    for i in range(4):
        for j in (1, 2, 3):
            if j == i:
                continue
            x = x + j
            got = yield x
            if got == 2:
                break
        else:
            log.append(("else", i))
    while True:
        x = x - 1
        yield x
        if float(x.sum()) < 0 or len(log) > 4:
            return


def nothing(log: Log, x: Any) -> Iterator[Any]:
    """Never yields."""
    return x
    yield


GENERATORS: tuple[Callable[..., Any], ...] = (
    simple, in_loop, with_finally, in_handler, raises_on, in_with, in_call, delegating, to_thrower,
    closure, escapes, ignores_close, deletes, maybe_unset, arguments, nested_loops, nothing,
)  # fmt: skip

SCRIPTS: tuple[tuple[Any, ...], ...] = (
    ("next",) * 12,
    ("send 1",),
    ("next", "send 2", "send 3", "send 2", "send 1", "send 5", "send 6"),
    ("next", "throw", "next", "next", "throw", "next"),
    ("next", "next", "throw", "throw", "next"),
    ("next", "stop", "next", "next"),
    ("throw", "next"),
    ("close", "next"),
    ("next", "close", "next"),
    ("next", "next", "next", "close"),
    ("next", "next", "exit", "next"),
    ("next", "next", "forget"),
    ("next", "in handler", "in handler", "next"),
)


def _plain(value: Any) -> Any:
    """Something to compare by."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, BaseException):
        # raised again in a step, what the caller handles is its context too
        context = value.__context__ if type(value.__context__) is not LookupError else None
        return type(value).__name__, [_plain(arg) for arg in value.args], type(context).__name__
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | dict | None) else str(type(value))


def drive(make: Callable[..., Any], script: tuple[str, ...]) -> list[Any]:
    """What a generator gives when a script is done to it, and what it logs."""
    log: Log = []
    seen: list[Any] = []
    running = [make(log, torch.ones(2))]
    for word in script:
        if not running:
            break
        try:
            seen.append(_plain(_do(running, word)))
        except BaseException as error:
            seen.append(_plain(error))
    return [seen, _plain(log)]


def _do(running: list[Any], word: str) -> Any:
    verb, _, operand = word.partition(" ")
    if verb == "forget":
        running.clear()
        return None
    it = running[0]
    if verb == "send":
        return it.send(int(operand))
    if verb == "in":
        try:
            raise LookupError("outside")
        except LookupError:
            return next(it)
    thrown = {"throw": ValueError("v"), "stop": KeyError("stop"), "exit": GeneratorExit()}
    if verb in thrown:
        return it.throw(thrown[verb])
    return it.close() if verb == "close" else next(it)


class Ask:
    """An awaitable that asks the event loop."""

    def __init__(self, question: Any) -> None:
        self.question = question

    def __await__(self) -> Iterator[Any]:
        return (yield self.question)


async def asked(log: Log, x: Any) -> Any:
    """Awaits in a loop, in `with` and in a handler."""
    for i in range(2):
        x = x + (await Ask(i) or 0)
        log.append(i)
    try:
        with Managed(log):
            await Ask("inside")
        raise KeyError("own")
    except KeyError:
        x = x * (await Ask("handler") or 1)
        log.append(sys.exc_info()[0])
    finally:
        log.append("finally")
    return x


async def outer(log: Log, x: Any) -> Any:
    """Awaits another coroutine, and async context managers and iterators."""
    x = await asked(log, x)

    @contextlib.asynccontextmanager
    async def managed() -> AsyncIterator[int]:
        log.append("in")
        try:
            yield (await Ask("manager")) or 4
        finally:
            log.append("out")

    async with managed() as value:
        x = x + value
        await Ask("in body")
    async for item in counted(log, x):
        x = x + item
    return [x, [item async for item in counted(log, 3)]]


async def counted(log: Log, x: Any) -> AsyncIterator[Any]:
    """An asynchronous generator: values, and awaits between them."""
    try:
        for i in range(3):
            got = await Ask(("count", i))
            log.append((got, (yield i * 2)))
    finally:
        log.append("closed")
        await Ask("at the end")


COROUTINES: tuple[Callable[..., Any], ...] = (asked, outer)
