"""runtime.quiet: what the compiler changes of the process while it works, and how it is put back.

Collections of garbage wait: compiling makes many objects that stay. Handlers of signals wait too: they would run
between two steps of a trace, under its modes and in the middle of its tables; an exception of theirs would look
like the user's program's. Python's own handler of SIGINT does not wait, so that Ctrl-C ends a compile.

TorchDynamo's hook, where it is loaded, is off for the thread.

Any number of threads may compile at once: each undoes what it did itself. In the child of a fork what
other threads had changed is undone at once, for they are not there to do it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Set
from typing import Any, Final, final

import torch

from argand.runtime import _native

MOST_WAITING: Final = 5.0  # seconds a fork waits
_OUR_MODULES: Final = ("argand", "llvmlite", "torch")


@final
class _Changes:
    """How to undo what threads have changed of the process."""

    def __init__(self) -> None:
        self.undo: dict[int, list[Callable[[], None]]] = {}

    def after_fork(self) -> None:
        """Undo what threads did that are no more."""
        _native.forget_other_threads()
        for thread in self.undo.keys() - {threading.get_ident()}:
            for undo in reversed(self.undo.pop(thread)):
                undo()


def _wait_for_imports() -> None:
    """Before a fork: let other threads finish importing parts of the compiler, for a while.

    In the child a module that was half imported stays so, and its lock is held for ever. Not for good: the
    forking thread may hold what the other one waits for.
    """
    locks, me = getattr(importlib._bootstrap, "_module_locks", {}), threading.get_ident()
    until = time.monotonic() + MOST_WAITING

    def is_importing() -> bool:
        held = [
            reference() for name, reference in list(locks.items()) if name.startswith(_OUR_MODULES)
        ]
        return any(getattr(lock, "owner", None) not in (None, me) for lock in held)

    while is_importing() and time.monotonic() < until:
        time.sleep(0.001)


def _leave_torch(threads: Set[int]) -> None:
    """Before a fork: take the GIL from threads that compile while they are between two instructions of Python.

    They give it up inside of calls of torch too, which may be setting up what is set up once: the child would
    wait for that for ever. With a short interval of switching they are soon found at one of Python's own places for it.
    """
    interval, until = sys.getswitchinterval(), time.monotonic() + 0.25
    sys.setswitchinterval(1e-6)
    while time.monotonic() < until:
        places = [frame for thread, frame in sys._current_frames().items() if thread in threads]
        if all(_native.at_turn(frame.f_code.co_code, frame.f_lasti) for frame in places):
            break
        time.sleep(0.0001)
    sys.setswitchinterval(interval)


_changes: Final = _Changes()


def _before_fork() -> None:
    _wait_for_imports()
    others = _changes.undo.keys() - {threading.get_ident()}
    if others:
        _leave_torch(others)


os.register_at_fork(before=_before_fork, after_in_child=_changes.after_fork)


@contextlib.contextmanager
def until_done(undo: Callable[[], None]) -> Iterator[None]:
    """Call ``undo`` at the end, or in the child of a fork that comes before it."""
    mine = _changes.undo.setdefault(threading.get_ident(), [])
    mine.append(undo)
    try:
        yield
    finally:
        mine.pop()
        if not mine:
            _changes.undo.pop(threading.get_ident(), None)
        undo()


@final
class _Postponed:
    """The user's handlers of signals, put aside by the main thread, and the signals that came."""

    def __init__(self) -> None:
        self.handlers: dict[int, Any] = {}
        self.came: list[int] = []

    def note(self, number: int, frame: object) -> None:
        """Instead of the user's handler."""
        self.came.append(number)

    def put_aside(self) -> None:
        """Take the place of every handler written in Python but the one that raises KeyboardInterrupt."""
        for number in signal.valid_signals():
            handler = signal.getsignal(number)
            own = isinstance(getattr(handler, "__self__", None), _Postponed)
            if callable(handler) and handler is not signal.default_int_handler and not own:
                self.handlers[number] = handler
                _native.swap_handler(number, self.note, signal.signal)

    def put_back(self) -> None:
        """Give them their places, unless somebody has set others since."""
        for number, handler in self.handlers.items():
            if signal.getsignal(number) == self.note:
                _native.swap_handler(number, handler, signal.signal)
        self.handlers = {}


@contextlib.contextmanager
def _without_handlers() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers run in the main thread only
        return
    postponed = _Postponed()
    with until_done(postponed.put_back):
        postponed.put_aside()
        yield
    for number in dict.fromkeys(postponed.came):
        signal.raise_signal(number)


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Compiling and loading make many objects that stay: looking for garbage among them only takes time."""
    if not gc.isenabled():
        yield
        return
    with until_done(gc.enable):
        gc.disable()
        yield


@contextlib.contextmanager
def _without_dynamo() -> Iterator[None]:
    """A function of ours that torch.compile's code calls: TorchDynamo's hook is on, and would compile the compiler."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    set_hook = torch._C._dynamo.eval_frame.set_eval_frame
    before = set_hook(None)
    try:
        yield
    finally:
        set_hook(before)


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """Around every piece of work of the compiler, in whatever thread; signals that came are handled at the end."""
    with until_done(_nothing), _without_handlers(), without_collections(), _without_dynamo():
        yield


@contextlib.contextmanager
def compiling_aside() -> Iterator[None]:
    """The same for a thread of our own, beside the user's program, whose garbage is collected meanwhile."""
    with until_done(_nothing), _without_dynamo():
        yield


def _nothing() -> None:
    """Nothing to undo: the thread only shows that it compiles."""
