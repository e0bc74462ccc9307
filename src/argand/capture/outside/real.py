"""capture.outside.real: the only places where user-level operations run for real in a trace.

An exception whose innermost frame of this room is here was raised by the user's operation; one from
any other module of the room is our bug (`frame.is_internal` tells them apart).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn


def call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """`function(*args, **kwargs)`."""
    return function(*args, **kwargs)


def apply(function: Callable[..., Any], *args: Any) -> Any:
    """`function(*args)`."""
    return function(*args)


def attribute(value: Any, name: str) -> Any:
    """`value.name`."""
    return getattr(value, name)


def raise_(error: BaseException) -> NoReturn:
    """Raise an exception of the user's program. This frame, which its traceback holds, does not hold it in turn."""
    try:
        raise error
    finally:
        del error


def took_items(error: BaseException) -> bool:
    """Whether an operation that ended in an error was given an iterator: it may have taken items of it by then."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in (call.__code__, apply.__code__):
            given = trace.tb_frame.f_locals["args"]
            if any(hasattr(type(value), "__next__") for value in given):
                return True
        trace = trace.tb_next
    return False


def was_raised(error: BaseException) -> bool:
    """Whether `raise_` raised it: then it is no signal from outside."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code is raise_.__code__
