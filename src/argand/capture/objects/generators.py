"""capture.objects.generators: generators made inside a trace, and Python callbacks handed to native code.

Both are objects that native code can drive (`list(generator)`, `sorted(items, key=callback)`): each step runs
the interpreter. A break below native code cannot be resumed, so it is marked and the trace starts over
with a break at the native call itself.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, final

import torch

from argand.capture.outside import real
from argand.ops.fakes import DataDependent
from argand.support.errors import Break, CaptureBreak

if TYPE_CHECKING:
    from argand.capture.interpret.frame import Frame
    from argand.capture.interpret.tracer import Tracer


@final
class Generator:
    """A suspended interpreter frame with the interface of a generator."""

    _argand_native = True

    def __init__(self, frame: Frame, function: types.FunctionType, args: Any, kwargs: Any, made_at: int) -> None:
        self.frame, self.function, self.args, self.kwargs = frame, function, args, kwargs
        self.made_at = made_at  # number of the instruction that made it
        self.started = self.finished = self.running = False

    __class__ = property(lambda self: types.GeneratorType)  # for `isinstance`

    def __iter__(self) -> Generator:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        """Go on until the next yield."""
        if self.finished:
            real.raise_(StopIteration())
        if self.started:
            self.frame.index += 1
            self.frame.stack.append(value)
        self.started = True
        return self._step(None)

    def throw(self, kind: Any, value: Any = None, trace: Any = None) -> Any:
        """Raise an exception at the yield."""
        error = kind if isinstance(kind, BaseException) else (value or kind())
        if self.finished or not self.started:
            self.finished = True
            real.raise_(error)
        return self._step(error)

    def close(self) -> None:
        """Run the finally clauses."""
        if self.started and not self.finished:
            with contextlib.suppress(GeneratorExit, StopIteration):
                self.throw(GeneratorExit())
        self.finished = True

    def _step(self, error: BaseException | None) -> Any:
        frame = self.frame
        frame.prefix = None
        frame.thrown = error
        try:
            step = frame.run()
        except CaptureBreak as cause:
            cause.native = True
            raise
        except BaseException:
            self.finished = True
            raise
        if step == -1:
            self.finished = True
            real.raise_(StopIteration(frame.result))
        return frame.result


@final
class Inference:
    """torch._C._InferenceMode: entered for real, and recorded."""

    _argand_native = True

    def __init__(self, tracer: Tracer, mode: bool) -> None:
        self.tracer, self.mode = tracer, mode

    def __enter__(self) -> None:
        self.real = torch._C._InferenceMode(self.mode)
        self.real.__enter__()
        self.tracer.entered.append(self.real)
        enter = torch.autograd.grad_mode._enter_inference_mode
        self.node = self.tracer.recorder.effect(enter, (self.mode,))

    def __exit__(self, *error: object) -> None:
        self.tracer.recorder.effect(torch.autograd.grad_mode._exit_inference_mode, (self.node,))
        self.tracer.entered.remove(self.real)
        self.real.__exit__(*error)


@final
class Callback:
    """A Python function that native code may call."""

    _argand_native = True

    def __init__(self, tracer: Tracer, function: Callable[..., Any]) -> None:
        self.tracer, self.function = tracer, function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Interpret the function."""
        try:
            return self.tracer.call(self.function, args, kwargs)
        except DataDependent as cause:
            broken = CaptureBreak(Break.B008, None, op=cause.op_name)
            broken.native = True
            raise broken from None
        except CaptureBreak as cause:
            cause.native = True
            raise
