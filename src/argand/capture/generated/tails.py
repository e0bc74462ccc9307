"""capture.generated.tails: the chain of resume functions that a call with graph breaks runs through.

A loop with breaks would nest one call per break. So a resume function that is entered by a compiled function returns
its continuation as a `Tail` instead of calling it, and the first compiled function runs the chain.
Restored captures need no more than this and `bytecode`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any, Final, final

from argand.bytecode import make_resume
from argand.capture.generated.tracebacks import raise_at
from argand.capture.markers import END

_ENTERED: Final = "argand: entered by a compiled function"  # in co_consts of such resume code


@final
class Tail:
    """What to call next, instead of having called it."""

    __slots__ = ("args", "function")

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self.function, self.args = function, args


def run_tails(function: Callable[..., Any], *args: Any) -> Any:
    """Run a resume function and all its continuations."""
    result = function(*args)
    while type(result) is Tail:
        result = result.function(*result.args)
    return result


def handling(error: BaseException, operation: Callable[[], Any]) -> Any:
    """Run an operation of an `except` block: `sys.exc_info()` gives the exception, new ones have it as their context."""
    trace, context = error.__traceback__, error.__context__
    try:
        raise error
    except BaseException:
        error.__traceback__, error.__context__ = trace, context
        return operation()


# What the text of a compiled function with a break calls by name.
NAMES: Final = {
    "tail": Tail,
    "run_tails": run_tails,
    "END": END,
    "raise_at": raise_at,
    "handling": handling,
}


@functools.lru_cache(maxsize=4096)
def entered_code(code: CodeType) -> CodeType:
    """Resume code that compiled functions enter."""
    *others, origin = code.co_consts  # `bytecode` finds its origin in the last constant
    return code.replace(co_consts=(*others, _ENTERED, origin))


def is_entered(code: CodeType) -> bool:
    """Whether code is a resume function that compiled functions enter."""
    return len(code.co_consts) > 1 and code.co_consts[-2] == _ENTERED


def resume_again(code: CodeType, request: Sequence[Any], entered: bool) -> CodeType:
    """The resume code that an earlier process made of `code` (`Origin.request`)."""
    index, stack, bound, thunk, raises = request
    made = make_resume(
        code,
        index,
        stack=tuple(stack),
        bound=tuple(bound),
        thunk=thunk,
        raises=raises,
        step=True,  # one of a generator: nothing else of it is kept
    )
    return entered_code(made) if entered else made
