"""runtime.stance: what compiled functions do when they meet something new, for the whole process.

argand.set_stance("force_eager")                # from now on
with argand.set_stance("fail_on_recompile"):    # in a block
@argand.set_stance("eager_on_recompile")        # while a function runs
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final, Literal, ParamSpec, Self, TypeVar, final, get_args

from argand.runtime import _native
from argand.support.errors import OptionError, guess
from argand.support.locks import make_lock

Stance = Literal[
    "default",  # compile what is new
    "force_eager",  # run everything as it is
    "eager_on_recompile",  # use what is compiled, compile nothing a second time
    "fail_on_recompile",  # raise instead of compiling a second time
    "eager_then_compile",  # the first call of a function runs eagerly, the second compiles
]
STANCES: Final[tuple[str, ...]] = get_args(Stance)

P = ParamSpec("P")
R = TypeVar("R")


@final
class _Process:
    """The stance of the process, behind a lock."""

    def __init__(self) -> None:
        self.lock = make_lock()
        self.stance = "default"

    def change(self, stance: str) -> str:
        with self.lock:
            before, self.stance = self.stance, stance
            _native.set_all_eager(stance == "force_eager")
            return before


_process: Final = _Process()


def current() -> str:
    """The stance now."""
    return _process.stance


@final
class set_stance:
    """Set the stance: at once, for a ``with`` block, or while a decorated function runs."""

    def __init__(self, stance: str) -> None:
        if stance not in STANCES:
            hint = f"{guess(stance, STANCES)}stances: {', '.join(STANCES)}"
            raise OptionError(f"unknown stance {stance!r}", hint=hint)
        self.stance = stance
        self.before = _process.change(stance)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        _process.change(self.before)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate: the stance holds while the function runs, not from now on."""
        _process.change(self.before)
        stance = self.stance

        @functools.wraps(function)
        def with_stance(*args: P.args, **kwargs: P.kwargs) -> R:
            with set_stance(stance):
                return function(*args, **kwargs)

        return with_stance
