"""capture.interpret.opcodes.calling: calls, function making, `with`, exceptions, generators."""

from __future__ import annotations

import types
from typing import Any, Final

from argand.bytecode import Instruction
from argand.capture.interpret.frame import Frame
from argand.capture.markers import END, NULL
from argand.capture.objects import attributes, operate
from argand.capture.objects.conversions import as_dict
from argand.capture.objects.handling import set_context
from argand.capture.objects.parts import Caller
from argand.capture.outside import real
from argand.support.errors import Break, CaptureBreak


def call_operands(frame: Frame, ins: Instruction) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Function, arguments and keyword arguments of a CALL, left on the stack."""
    count = ins.arg or 0
    first, second, *args = frame.stack[-count - 2 :]
    if first is NULL:
        function = second
    else:
        function = first
        if second is not NULL:  # an unbound method and its object
            args.insert(0, second)
    names: Any = ins.argval or ()
    if not names:
        return function, tuple(args), {}
    cut = len(args) - len(names)
    return function, tuple(args[:cut]), dict(zip(names, args[cut:], strict=True))


def call(frame: Frame, ins: Instruction) -> None:
    """`f(a, b=c)`."""
    function, args, kwargs = call_operands(frame, ins)
    result = frame.tracer.call(function, args, kwargs)
    frame.stack[-(ins.arg or 0) - 2 :] = (result,)


def call_ex_operands(frame: Frame, ins: Instruction) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Function, arguments and keyword arguments of `f(*a, **b)`, left on the stack."""
    has_keywords = (ins.arg or 0) & 1
    given = frame.stack[-2] if has_keywords else frame.stack[-1]
    keywords = as_dict(frame.tracer, frame.stack[-1]) if has_keywords else {}
    args = (
        tuple(given)
        if type(given) is tuple or type(given) is list
        else tuple(operate.iterate(frame.tracer, given))
    )
    first, second = frame.stack[-4:-2] if has_keywords else frame.stack[-3:-1]
    return second if first is NULL else first, args, dict(keywords)


def call_function_ex(frame: Frame, ins: Instruction) -> None:
    """`f(*a, **b)`."""
    function, args, kwargs = call_ex_operands(frame, ins)
    result = frame.tracer.call(function, args, kwargs)
    frame.stack[-4 if (ins.arg or 0) & 1 else -3 :] = (result,)


def make_function(frame: Frame, ins: Instruction) -> None:
    """`def` and `lambda`."""
    flags, stack = ins.arg or 0, frame.stack
    code = stack.pop()
    closure = stack.pop() if flags & 8 else None
    annotations = stack.pop() if flags & 4 else None
    keyword_defaults = stack.pop() if flags & 2 else None
    defaults = stack.pop() if flags & 1 else None
    function = types.FunctionType(code, frame.globals, code.co_name, defaults, closure)
    function.__kwdefaults__ = keyword_defaults
    if annotations:
        pairs = zip(annotations[::2], annotations[1::2], strict=True)
        function.__annotations__ = dict(pairs) if isinstance(annotations, tuple) else annotations
    for name, cell in zip(code.co_freevars, closure or (), strict=True):
        frame.share_cell(name, cell)
    stack.append(frame.tracer.mark_made(function))


def load_build_class(frame: Frame, ins: Instruction) -> None:
    """`class`: the call that follows is left to Python."""
    frame.stack.append(frame.builtins["__build_class__"])


def before_with(frame: Frame, ins: Instruction) -> None:
    """`with a`: push a.__exit__, then what a.__enter__() gives."""
    tracer, manager = frame.tracer, frame.stack[-1]
    leave = attributes.load(tracer, manager, "__exit__")
    enter = attributes.load(tracer, manager, "__enter__")
    result = tracer.call(enter, (), {})
    frame.stack[-1:] = (leave, result)


def with_except_start(frame: Frame, ins: Instruction) -> None:
    """An exception leaves a `with`: push what __exit__ says."""
    leave, error, tracer = frame.stack[-4], frame.stack[-1], frame.tracer
    frame.stack.append(
        tracer.call(leave, (type(error), error, tracer.exceptions.traceback_of(error)), {})
    )


def push_exc_info(frame: Frame, ins: Instruction) -> None:
    """A handler begins."""
    error = frame.stack[-1]
    frame.stack[-1:] = (frame.tracer.exceptions.begin(error), error)


def pop_except(frame: Frame, ins: Instruction) -> None:
    """A handler ends."""
    frame.tracer.exceptions.end(frame.stack.pop())


def check_exc_match(frame: Frame, ins: Instruction) -> None:
    """`except a`: replace the class by whether it matches."""
    error, kind = frame.stack[-2:]
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if not all(isinstance(k, type) and issubclass(k, BaseException) for k in kinds):
        text = "catching classes that do not inherit from BaseException is not allowed"
        real.raise_(TypeError(text))
    frame.stack[-1] = isinstance(error, kind)


def reraise(frame: Frame, ins: Instruction) -> None:
    """Raise the exception on top again."""
    error = frame.stack[-1]
    if ins.arg:
        at = frame.stack[-ins.arg - 1]
        if isinstance(at, int):
            frame.index = at if frame.program[at][1].handler is ins.handler else frame.index
    real.raise_(error)


def raise_varargs(frame: Frame, ins: Instruction) -> None:
    """`raise`, `raise a`, `raise a from b`."""
    tracer, count = frame.tracer, ins.arg or 0
    if not count:
        if tracer.exceptions.current is None:  # a caller may handle one
            raise CaptureBreak(Break.B013, None, what="a `raise` of what a caller handles")
        real.raise_(tracer.exceptions.current)
    cause: Any = frame.stack[-1] if count == 2 else NULL
    error = frame.stack[-count]
    error = _instance_of(tracer, error, "exceptions must derive from BaseException")
    if cause is not NULL:
        wrong = "exception causes must derive from BaseException"
        error.__cause__ = None if cause is None else _instance_of(tracer, cause, wrong)
    if error.__context__ is not tracer.exceptions.current and tracer.is_outside(error):
        raise CaptureBreak(
            Break.B013, None, what="a `raise` of an exception from outside while another is handled"
        )
    set_context(error, tracer.exceptions.current)
    real.raise_(error)


def _instance_of(caller: Caller, error: Any, wrong: str) -> Any:
    """What `raise error` raises: an instance, made if a class is given."""
    if isinstance(error, type) and issubclass(error, BaseException):
        made = caller.sealed(error, (), {})
        if not isinstance(made, BaseException):
            text = f"calling {error!r} should have returned an instance of BaseException, not {type(made)!r}"
            real.raise_(TypeError(text))
        return made
    if not isinstance(error, BaseException):
        real.raise_(TypeError(wrong))
    return error


def load_assertion_error(frame: Frame, ins: Instruction) -> None:
    """`assert`."""
    frame.stack.append(AssertionError)


def return_generator(frame: Frame, ins: Instruction) -> None:
    """A generator starts; the pop_top that follows drops this."""
    frame.stack.append(None)


def yield_value(frame: Frame, ins: Instruction) -> int:
    """Suspend the frame."""
    frame.result = frame.stack.pop()
    return -2


def send(frame: Frame, ins: Instruction) -> int | None:
    """One step of `yield from`."""
    receiver, value = frame.stack[-2:]
    try:
        if value is None:
            result = operate.advance_or_stop(frame.tracer, receiver)
        else:
            method = attributes.load(frame.tracer, receiver, "send")
            result = frame.tracer.call(method, (value,), {})
    except StopIteration as stop:
        frame.stack[-1] = stop.value
        return ins.target
    if result is END:
        frame.stack[-1] = None
        return ins.target
    frame.stack[-1] = result
    return None


def end_send(frame: Frame, ins: Instruction) -> None:
    """`yield from` has ended: drop the receiver below its value."""
    del frame.stack[-2]


def cleanup_throw(frame: Frame, ins: Instruction) -> None:
    """The receiver of `yield from` raised: StopIteration is its value, anything else is raised on."""
    error = frame.stack[-1]
    if not isinstance(error, StopIteration):
        real.raise_(error)
    frame.stack[-3:] = (None, error.value)


def stop_iteration_error(frame: Frame, ins: Instruction) -> None:
    """StopIteration out of a generator's body is a RuntimeError."""
    error = frame.stack[-1]
    if isinstance(error, StopIteration):
        changed = RuntimeError("generator raised StopIteration")
        changed.__cause__ = changed.__context__ = error
        frame.stack[-1] = changed


# Asynchronous code, exception groups and the making of type parameters are left to Python.
REFUSED: Final = (
    "check_eg_match prep_reraise_star before_async_with end_async_for get_aiter get_anext get_awaitable "
    "async_gen_wrap make_type_parameter make_bound_type_parameter"
)
