"""capture.objects.handling: the exceptions of a trace: which one is being handled, how a raised one refers to it.

In: handlers that begin and end, generators that start and stop, exceptions that are raised.  Out: what a bare `raise`
would raise, and `__context__` as CPython sets it: by the statement that raises, not by the handler that catches.
"""

from __future__ import annotations

from types import CodeType, TracebackType
from typing import Any, final


@final
class Exceptions:
    """The state of exceptions in one trace."""

    def __init__(self) -> None:
        # those being handled: one place for all frames, and one more for each generator that runs
        self.places: list[BaseException | None] = [None]
        self.leaving: BaseException | None = None  # on its way out of a frame: it has its context
        self.raised: set[int] = set()  # made inside, their traceback is of the user's lines
        self.before: dict[
            int, tuple[BaseException, Any]
        ] = {}  # from outside, their tracebacks at the start
        self.passed: list[
            tuple[BaseException, CodeType, int]
        ] = []  # one from outside, a place it was raised at
        self._tracebacks: dict[
            int, tuple[BaseException, TracebackType]
        ] = {}  # that the program got

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

    def traceback_of(self, error: BaseException) -> TracebackType | None:
        """What the program gets as the traceback of an exception; it can be made again for what comes after the trace."""
        trace = error.__traceback__
        if trace is not None:
            self._tracebacks[id(trace)] = error, trace
        return trace

    def owner_of(self, trace: object) -> BaseException | None:
        """The exception that a traceback the program got is of."""
        found = self._tracebacks.get(id(trace))
        return None if found is None else found[0]


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
