"""support.locks: what threads share while they compile, and what is left of it in the child of a fork.

Tracing runs the user's code and imports modules, and both may wait for what another thread holds. So no lock
of ours is held meanwhile: a thread that would make what another one is making waits for a while (``Turns``) and
then makes it itself; whoever is done first is used. Locks are for a few statements on a table, can be taken
again by their thread (a signal's handler may come in between), and are free again in the child of a fork.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Hashable, Iterator
from typing import Any, Final, final

PATIENCE: Final = 5.0  # seconds to wait for another thread: longer than most compiles, shorter than a user's patience

_alive: Final[weakref.WeakSet[Any]] = weakref.WeakSet()  # every lock and every Turns, for forks


def make_lock() -> Any:
    """A lock for short use: no code of the user's, no imports, nothing slow under it."""
    lock = threading.RLock()
    _alive.add(lock)
    return lock


@final
class Turns:
    """Threads at the same work: one does it, the others wait for it, but never for good."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._working: dict[Hashable, tuple[int, threading.Event]] = {}
        _alive.add(self)

    @contextlib.contextmanager
    def take(self, work: Hashable) -> Iterator[None]:
        """Enter when no other thread is at this work, or none has finished in time. Nothing is promised: look again."""
        mine = (threading.get_ident(), threading.Event())
        until = time.monotonic() + self._patience
        while (now := self._working.setdefault(work, mine)) is not mine:
            if now[0] == mine[0] or not now[1].wait(max(until - time.monotonic(), 0.0)):
                break
        try:
            yield
        finally:
            if now is mine:
                self._working.pop(work, None)
                mine[1].set()

    def _at_fork_reinit(self) -> None:
        self._working.clear()


def _renew() -> None:
    """In a child the threads that held locks are gone, and what they held guards whole tables only."""
    for lock in list(_alive):
        lock._at_fork_reinit()


os.register_at_fork(after_in_child=_renew)
