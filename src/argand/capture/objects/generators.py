"""capture.objects.generators: generators made inside a trace, and Python callbacks handed to native code.

Both are objects that native code can drive (`list(generator)`, `sorted(items, key=callback)`): each step runs
the interpreter. A break below native code cannot be resumed, so it is marked and the trace starts over
with a break at the native call itself.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, Final, Protocol, final

import torch

from argand.bytecode import CLOSE_GIVES_VALUE, Instruction
from argand.capture.attempts import BreakAt
from argand.capture.markers import OfTrace
from argand.capture.objects.parts import StackFrame
from argand.capture.objects.tracer import Tracer
from argand.capture.outside import real
from argand.capture.outside.kinds import HEAP_TYPE
from argand.ops.fakes import DataDependent
from argand.sizes.refusals import Stop
from argand.support.errors import Break, CaptureBreak


class Suspended(StackFrame, Protocol):
    """A frame that can be run until it yields or returns."""

    result: Any
    thrown: BaseException | None
    prefix: str | None
    tracer: Tracer

    def instruction_at(self, index: int) -> Instruction:
        """One of its instructions."""

    def run(self) -> int:
        """Run on; -1 says that the frame has returned."""


@final
class Generator(OfTrace):
    """A suspended interpreter frame with the interface of a generator."""

    def __init__(
        self, frame: Suspended, function: types.FunctionType, args: Any, kwargs: Any, made_at: int
    ) -> None:
        self.frame, self.function, self.args, self.kwargs = frame, function, args, kwargs
        self.made_at = made_at  # number of the instruction that made it
        self.started = self.finished = self.running = False
        self.handled: BaseException | None = None  # where it is suspended

    __class__ = property(lambda self: types.GeneratorType)  # for `isinstance`

    def __iter__(self) -> Generator:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        """Run until the next yield."""
        self._check_idle()
        if self.finished:
            real.raise_(StopIteration())
        if self.started:
            self.frame.index += 1
            self.frame.stack.append(value)
        elif value is not None:
            real.raise_(TypeError("can't send non-None value to a just-started generator"))
        self.started = True
        return self._step(None)

    def throw(self, kind: Any, value: Any = None, trace: Any = None) -> Any:
        """Raise an exception at the yield, or where a generator it delegates to is suspended."""
        self._check_idle()
        return self._throw(_thrown(kind, value, trace))

    def _throw(self, error: BaseException) -> Any:
        if self.finished or not self.started:
            self.finished = True
            real.raise_(error)
        sending = self._delegating()
        if sending is not None and not self._close_delegate(error):
            tracer, receiver = self.frame.tracer, self.frame.stack[-1]
            method = tracer.load_or(receiver, "throw", None)
            if method is not None:
                try:
                    return self._apart(tracer.call, method, (error,), {})
                except StopIteration as stop:
                    self.frame.stack.append(stop.value)
                    self.frame.index = sending
                    return self._step(None)
                except BaseException as other:
                    return self._step(_passing(other))
        return self._step(error)

    def _delegating(self) -> int | None:
        """Where a `yield from` that the generator is suspended in continues when it has ended."""
        before = self.frame.instruction_at(self.frame.index - 1)
        return before.target if before.op == "send" else None

    def _close_delegate(self, error: BaseException) -> bool:
        """`close` ends what is delegated to as well; it is not thrown into."""
        if not isinstance(error, GeneratorExit):
            return False
        tracer = self.frame.tracer
        method = tracer.load_or(self.frame.stack[-1], "close", None)
        if method is not None:
            self._apart(tracer.call, method, (), {})
        return True

    def close(self) -> Any:
        """Run the finally clauses."""
        self._check_idle()
        value = None
        if self.started and not self.finished:
            try:
                self._throw(GeneratorExit())
            except GeneratorExit:
                pass
            except StopIteration as stop:
                value = stop.value if CLOSE_GIVES_VALUE else None
            else:
                real.raise_(RuntimeError("generator ignored GeneratorExit"))
        self.finished = True
        return value

    def _check_idle(self) -> None:
        if self.running:
            real.raise_(ValueError("generator already executing"))

    def _apart(self, function: Callable[..., Any], *args: Any) -> Any:
        """A call while this generator counts as running, with what it handles."""
        handling = self.frame.tracer.exceptions
        self.running = True
        handling.places.append(self.handled)
        try:
            return function(*args)
        except CaptureBreak as cause:
            cause.native = True
            raise
        finally:
            self.handled = handling.places.pop()
            self.running = False

    def _step(self, error: BaseException | None) -> Any:
        frame = self.frame
        frame.prefix = None
        frame.thrown = error
        try:
            step = self._apart(frame.run)
        except CaptureBreak:
            raise
        except StopIteration as stop:
            self.finished = True
            changed = RuntimeError("generator raised StopIteration")
            changed.__cause__ = changed.__context__ = stop
            real.raise_(changed)
        except BaseException:
            self.finished = True
            raise
        if step == -1:
            self.finished = True
            real.raise_(StopIteration() if frame.result is None else StopIteration(frame.result))
        return frame.result

    def is_suspended(self) -> bool:
        """Whether it waits at a yield."""
        return self.started and not self.finished and not self.running

    def delegates(self) -> bool:
        """Whether it waits in a `yield from`, of something that may have code of its own to close it.

        Another generator of the trace is looked at by itself; iterators over containers have no `close`.
        """
        if self._delegating() is None or type(self.frame.stack[-1]) is Generator:
            return False
        kind = type(self.frame.stack[-1])
        return bool(kind.__flags__ & HEAP_TYPE) or hasattr(kind, "close")


def _thrown(kind: Any, value: Any, trace: Any) -> BaseException:
    """The exception that `throw` raises."""
    if isinstance(kind, BaseException):
        if value is not None:
            real.raise_(TypeError("instance exception may not have a separate value"))
        error = kind
    elif isinstance(kind, type) and issubclass(kind, BaseException):
        if isinstance(value, kind):
            error = value
        else:
            args = () if value is None else value if isinstance(value, tuple) else (value,)
            error = real.call(kind, args, {})
    else:
        text = f"exceptions must be classes or instances deriving from BaseException, not {type(kind).__name__}"
        real.raise_(TypeError(text))
    return error if trace is None else error.with_traceback(trace)


def _passing(error: BaseException) -> BaseException:
    """An exception that is raised on in another frame; our own signals end the attempt."""
    if isinstance(error, CaptureBreak) or not isinstance(error, Exception | GeneratorExit):
        raise error
    return error


_METHODS: Final = frozenset({"send", "throw", "close", "__next__", "__iter__", "__class__"})


def attribute(generator: Generator, name: str) -> Any:
    """An attribute of a generator. Its frame cannot be shown: then it has to be one of Python's."""
    if name in _METHODS:
        return getattr(generator, name)
    if name in {"__name__", "__qualname__"}:
        return getattr(generator.function, name)
    if not hasattr(types.GeneratorType, name):
        real.raise_(
            AttributeError(
                f"'generator' object has no attribute {name!r}", name=name, obj=generator
            )
        )
    raise Stop(
        BreakAt(generator.made_at, CaptureBreak(Break.B013, None, what=f"{name} of a generator"))
    )


@final
class Inference(OfTrace):
    """torch._C._InferenceMode: entered for real, and recorded."""

    def __init__(self, tracer: Tracer, mode: bool) -> None:
        self.tracer, self.mode = tracer, mode

    def __enter__(self) -> None:
        self.real = torch._C._InferenceMode(self.mode)
        self.real.__enter__()
        self.tracer.torch.entered.append(self.real)
        enter = torch.autograd.grad_mode._enter_inference_mode
        self.node = self.tracer.recorder.effect(enter, (self.mode,))

    def __exit__(self, *error: object) -> None:
        self.tracer.recorder.effect(torch.autograd.grad_mode._exit_inference_mode, (self.node,))
        self.tracer.torch.entered.remove(self.real)
        self.real.__exit__(*error)


@final
class Callback(OfTrace):
    """A Python function that native code may call."""

    def __init__(self, tracer: Tracer, function: Callable[..., Any]) -> None:
        self.tracer, self.function = tracer, function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Interpret the function."""
        try:
            with self.tracer.seal():
                return self.tracer.call(self.function, args, kwargs)
        except DataDependent as cause:
            broken = CaptureBreak(Break.B008, None, op=cause.op_name)
            broken.native = True
            raise broken from None
        except CaptureBreak as cause:
            cause.native = True
            raise
