"""capture.objects.handling: which exception is being handled, and how a raised one refers to it.

In: handlers that begin and end, generators that start and stop, exceptions that are raised.  Out: what a bare `raise`
would raise, and `__context__` as CPython sets it: by the statement that raises, not by the handler that catches.
"""

from __future__ import annotations

from typing import final


@final
class Handling:
    """The exceptions being handled: one place for all frames, and one more for each generator that runs."""

    def __init__(self) -> None:
        self.places: list[BaseException | None] = [None]
        self.leaving: BaseException | None = None  # on its way out of a frame: it has its context

    @property
    def current(self) -> BaseException | None:
        """What `sys.exception()` gives."""
        return next((error for error in reversed(self.places) if error is not None), None)

    def begin(self, error: BaseException) -> BaseException | None:
        """A handler begins; what was handled there before comes back."""
        previous, self.places[-1] = self.places[-1], error
        return previous

    def end(self, previous: BaseException | None) -> None:
        """A handler ends."""
        self.places[-1] = previous


def set_context(error: BaseException, handled: BaseException | None) -> None:
    """What `raise error` does while `handled` is handled: the chain of contexts never gets a cycle."""
    if handled is None or handled is error:
        return
    link, seen = handled, set[int]()
    while link.__context__ is not None and id(link) not in seen:
        seen.add(id(link))
        if link.__context__ is error:
            link.__context__ = None
            break
        link = link.__context__
    error.__context__ = handled


def add_context(error: BaseException, handled: BaseException | None) -> None:
    """The same for what native code raised: it may have a context already, which happened after `handled`."""
    if handled is None:
        return
    last, seen = error, set[int]()
    while last is not handled and id(last) not in seen:
        seen.add(id(last))
        if last.__context__ is None:
            last.__context__ = handled
            return
        last = last.__context__
