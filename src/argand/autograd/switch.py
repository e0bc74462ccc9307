"""autograd.switch: a program whose gradients may get a history, once somebody asks for one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

from argand.runtime import quiet
from argand.support.locks import Turns


@final
class LinkSwitch:
    """Runs a program as it was compiled; from the call after gradients with a history were asked for, linked."""

    def __init__(self, link: Callable[[Sequence[Any]], Callable[..., Any] | None]) -> None:
        self.link, self.turns, self.asked = link, Turns(), False
        self.run: Callable[..., Any]

    def noticing(self, again: Callable[..., Any]) -> Callable[..., Any]:
        """The same function; a call of it is noticed."""

        def noticed(*arguments: Any) -> Any:
            self.asked = True
            return again(*arguments)

        return noticed

    def __call__(self, *inputs: Any) -> Any:
        """Run the program."""
        if self.asked:
            with self.turns.take("link"), quiet.compiling():
                if self.asked:
                    self.run, self.asked = self.link(inputs) or self.run, False
        return self.run(*inputs)
