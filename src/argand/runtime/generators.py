"""runtime.generators: compiled generators, coroutines and asynchronous generators, whose steps run in a region.

In: a function that makes generators, and a region.  Out: a function that makes generators of the same kind, which call one
plain function per step (`bytecode.steps`). Python's own generators are around the steps, so that what they are asked
(`close`, `throw` before the first step, collection while suspended, a StopIteration that escapes) is answered by Python.

What is thrown in, and the `finally` clauses that `close` runs, are not for the region: they run whatever it wants of graphs.
"""

from __future__ import annotations

import functools
import types
from collections.abc import AsyncGenerator, Callable, Generator
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_ITERABLE_COROUTINE
from typing import Any, Final, TypeAlias, final

from argand.bytecode import live_locals, make_resume, steps
from argand.bytecode.steps import Exit
from argand.runtime import _native
from argand.runtime._native import Region, Switch

# What a step gives: one value, returned; or index of the yield, value, slots of the stack and variables.
StepResult: TypeAlias = tuple[Any, ...]


def stepping(function: types.FunctionType, region: Region) -> Callable[..., Any] | None:
    """A function that makes generators as `function` does, of steps in the region; None where it has to be Python's."""
    code = function.__code__
    if steps.refusal(code):
        return None
    begin = types.FunctionType(
        _begin_code(code), function.__globals__, function.__name__, None, function.__closure__
    )
    begin.__kwdefaults__ = function.__kwdefaults__
    begin.__defaults__ = function.__defaults__
    drive = _driver(function)

    def make(*args: Any, **kwargs: Any) -> Any:
        cells, *state = begin(*args, **kwargs)
        return drive(Stepped(function, region, cells), state)

    return functools.update_wrapper(make, function)


@functools.lru_cache(maxsize=1024)
def _begin_code(code: types.CodeType) -> types.CodeType:
    begin = steps.begin_code(code)
    _native.mark_code(begin, False)
    return begin


def _driver(function: types.FunctionType) -> Callable[[Stepped, list[Any]], Any]:
    """The function whose generators drive the steps, with the names of the user's."""
    flags = function.__code__.co_flags
    kind: Callable[[Stepped, list[Any]], Any] = drive_generator
    if flags & CO_COROUTINE:
        kind = drive_coroutine
    elif flags & CO_ASYNC_GENERATOR:
        kind = drive_async_generator
    driver: Any = kind
    code = driver.__code__.replace(
        co_flags=driver.__code__.co_flags | (flags & CO_ITERABLE_COROUTINE)
    )
    made = types.FunctionType(code, driver.__globals__, function.__name__)
    made.__qualname__ = function.__qualname__
    return made


def drive_generator(run: Stepped, state: list[Any]) -> Generator[Any, Any, Any]:
    """A generator."""
    run.begin(state)
    while not run.is_over:
        value = run.value
        try:
            run.sent = (yield from value.pop()) if run.why is Exit.FROM else (yield value.pop())
        except BaseException as thrown:
            run.thrown = thrown
        run.step()
    return run.value.pop()


async def drive_coroutine(run: Stepped, state: list[Any]) -> Any:
    """A coroutine."""
    run.begin(state)
    while not run.is_over:
        value = run.value
        try:
            run.sent = await (value.pop() if run.why is Exit.AWAIT else anext(value.pop()))
        except BaseException as thrown:
            run.thrown = thrown
        run.step()
    return run.value.pop()


async def drive_async_generator(run: Stepped, state: list[Any]) -> AsyncGenerator[Any, Any]:
    """An asynchronous generator."""
    run.begin(state)
    while not run.is_over:
        value = run.value
        try:
            if run.why is Exit.YIELD:
                run.sent = yield value.pop()
            else:
                run.sent = await (value.pop() if run.why is Exit.AWAIT else anext(value.pop()))
        except BaseException as thrown:
            run.thrown = thrown
        run.step()


@final
class Stepped:
    """The steps of one generator: what a suspended frame holds, and how it goes on."""

    at: steps.Suspension  # where it is suspended
    is_over = False
    sent: Any = None
    thrown: BaseException | None = None

    def __init__(
        self, function: types.FunctionType, region: Region, cells: tuple[Any, ...]
    ) -> None:
        self.function, self.region, self.cells = function, region, cells
        self.value: list[Any] = []  # what it yields or returns, until somebody has it
        self.state: StepResult = ()  # slots of the stack, then variables

    def begin(self, state: list[Any]) -> None:
        """The first step. What comes in is not kept alive by the caller."""
        arguments = tuple(state)
        state.clear()
        self._run(_first(self.function.__code__), arguments, self.region)
        self._advance()

    def step(self) -> None:
        """Go on with what was sent or thrown."""
        error, self.thrown = self.thrown, None
        sent, self.sent = self.sent, None
        if error is None:
            self._go_on(self.at.goes_on, (sent,))
        else:
            self._raise(error)
        self._advance()

    @property
    def why(self) -> Exit:
        """Why it is suspended."""
        return self.at.why

    def _advance(self) -> None:
        """The next item of each loop that it comes to, until it yields or returns."""
        while not self.is_over and self.at.why is Exit.LOOP:
            self.value.clear()
            error: BaseException | None = None
            try:
                item = Switch(next, self.region)(self.state[sum(self.at.stack) - 1], _ENDED)
            except BaseException as raised:
                error = raised
            if error is not None:
                self._raise(error)
            elif item is _ENDED:
                self._leave_loop(self.at.ends_at)
            else:
                self._go_on(self.at.goes_on, (item,))

    def _leave_loop(self, index: int) -> None:
        slots = sum(self.at.stack)
        self.at = self.at._replace(stack=self.at.stack[:-1])
        self.state = (*self.state[: slots - 1], *self.state[slots:])
        self._go_on(index, ())

    def _go_on(self, index: int, top: tuple[Any, ...]) -> None:
        """Continue at an instruction, with further values on the stack."""
        at, state = self.at, self.state
        self.state = ()
        slots = sum(at.stack)
        code = _later(self.function.__code__, at, index, len(top))
        self._run(code, (*state[:slots], *top, *state[slots:]), self.region)

    def _raise(self, error: BaseException) -> None:
        """Raise an exception where it is suspended."""
        state, self.state = self.state, ()
        code = _raising(self.function.__code__, self.at)
        self._run(code, (error, *state), None)

    def _run(self, code: types.CodeType, arguments: StepResult, region: Region | None) -> None:
        user = self.function
        made = types.FunctionType(code, user.__globals__, user.__name__, None, self.cells)
        outcome = Switch(made, region)(*arguments)
        if len(outcome) == 1:
            self.is_over = True
            self.value.append(outcome[0])
            return
        index, value, *state = outcome
        self.value.append(value)
        self.at, self.state = steps.suspension(user.__code__, index), tuple(state)


_ENDED: Final = object()


@functools.lru_cache(maxsize=1024)
def _first(code: types.CodeType) -> types.CodeType:
    begin = steps.begin_of(code)
    bound = live_locals(code, begin)
    return _wanted(make_resume(code, begin, stack=(), bound=bound, step=True))


@functools.lru_cache(maxsize=4096)
def _later(code: types.CodeType, at: steps.Suspension, index: int, added: int) -> types.CodeType:
    stack = (*at.stack, *(True,) * added)
    return _wanted(make_resume(code, index, stack=stack, bound=at.bound, step=True))


@functools.lru_cache(maxsize=1024)
def _raising(code: types.CodeType, at: steps.Suspension) -> types.CodeType:
    made = make_resume(code, at.at, stack=at.stack, bound=at.bound, raises=True, step=True)
    return _wanted(made)


def _wanted(code: types.CodeType) -> types.CodeType:
    """The user named the function, whatever file it is in."""
    _native.mark_code(code, True)
    return code
