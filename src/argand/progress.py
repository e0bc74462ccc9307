"""progress: what a long compile is doing, for somebody who waits for it. From events alone.

In: events. Out: after a second, one line that changes: what is compiled, the stage, graphs done, kernels left. On a terminal
through rich when it is installed, else one line in the logs; a bar in a notebook; nothing in a pipe, and nothing with
``ARGAND_PROGRESS=0``. A compile that takes less than a second shows nothing.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, NamedTuple, final

from typing_extensions import override

from argand.support import events
from argand.support.locks import make_lock
from argand.support.options import read_environment

PATIENCE: Final = 1.0  # seconds before anything is shown
# What a stage is called for people, by the beginning of its name, and how far a graph has come by then.
_STAGES: Final = (
    ("native.llvm", "machine code", 0.6),
    ("native.load", "loading", 0.95),
    ("native", "optimising", 0.45),
    ("autograd", "differentiating", 0.3),
    ("capture.restore", "reading the cache", 0.1),
    ("guards", "guards", 1.0),
    ("", "capturing", 0.1),
)


@final
class Doing(NamedTuple):
    """What is going on."""

    name: str  # of what is compiled
    stage: str
    graphs: int  # that are done
    kernels: int  # that wait for machine code
    seconds: float
    share: float  # of the work on this graph that is done, roughly

    @property
    def text(self) -> str:
        """One line."""
        left = f", {self.kernels} kernels left" if self.kernels else ""
        return f"argand compiles {self.name}: {self.stage}, {self.graphs} graphs done{left} ({self.seconds:.0f} s)"


class Display(ABC):
    """Where it is shown."""

    @abstractmethod
    def show(self, doing: Doing) -> None:
        """Show it in place of what was shown before."""

    @abstractmethod
    def close(self) -> None:
        """The compile is over."""


@final
class Progress:
    """The subscriber."""

    def __init__(self, display: Display, clock: Callable[[], float] = time.monotonic) -> None:
        self.display, self.clock, self._lock = display, clock, make_lock()
        self._open: dict[int, list[str]] = {}  # stages, by thread
        self._begin, self._name, self._graphs, self._kernels, self._is_shown = 0.0, "", 0, 0, False

    def __call__(self, event: events.Event) -> None:
        """Follow one event."""
        with self._lock:
            match event:
                case events.StageStart(stage, detail):
                    self._start(stage, detail)
                case events.StageEnd(stage):
                    self._end(stage)
                case events.Count("capture.graphs", amount):
                    self._graphs += amount
                case events.Count("native.kernels", amount):
                    self._kernels += amount
                case _:
                    pass

    def _start(self, stage: str, detail: str) -> None:
        if not self._open:
            self._begin, self._name, self._graphs, self._kernels = self.clock(), "", 0, 0
        stages = self._open.setdefault(threading.get_ident(), [])
        stages.append(stage)
        if stage == "compile" or not self._name:
            self._name = detail if stage == "compile" else "a backward pass"
        seconds = self.clock() - self._begin
        if seconds >= PATIENCE:
            word, share = next(
                (word, share) for head, word, share in _STAGES if stage.startswith(head)
            )
            self._is_shown = True
            self.display.show(Doing(self._name, word, self._graphs, self._kernels, seconds, share))

    def _end(self, stage: str) -> None:
        if stage == "native.llvm":
            self._kernels = 0
        stages = self._open.get(threading.get_ident())
        if not stages:  # it began before we listened
            return
        stages.pop()
        if not stages:
            del self._open[threading.get_ident()]
        if not self._open and self._is_shown:
            self._is_shown = False
            self.display.close()


@final
class RichLine(Display):
    """A line on a terminal, gone when the compile is over."""

    def __init__(self) -> None:
        self._live: Any = None

    @override
    def show(self, doing: Doing) -> None:
        from rich.console import Console  # noqa: PLC0415  # when there is something to show
        from rich.live import Live  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        line = Text(doing.text, style="dim", no_wrap=True, overflow="ellipsis")
        if self._live is None:
            self._live = Live(
                line, console=Console(stderr=True), auto_refresh=False, transient=True
            )
            self._live.start()
        self._live.update(line, refresh=True)

    @override
    def close(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.stop()


@final
class LogLine(Display):
    """One line in the logs, when a compile begins to take long."""

    def __init__(self) -> None:
        self._told = False

    @override
    def show(self, doing: Doing) -> None:
        if not self._told:
            logging.getLogger("argand").warning("%s", doing.text)
        self._told = True

    @override
    def close(self) -> None:
        self._told = False


@final
class NotebookBar(Display):
    """A bar under the cell."""

    def __init__(self, display: Callable[..., Any]) -> None:
        self._display = display
        self._handle: Any = None

    @override
    def show(self, doing: Doing) -> None:
        from html import escape  # noqa: PLC0415  # with a table of all entities, for notebooks only

        bar = f'<progress value="{doing.share:.2f}" max="1"></progress> {escape(doing.text)}'
        self._put(bar)

    @override
    def close(self) -> None:
        self._put("")
        self._handle = None

    def _put(self, text: str) -> None:
        data = {"text/html": text, "text/plain": ""}
        if self._handle is None:
            self._handle = self._display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


def _in_notebook() -> bool:
    """Whether this process is the kernel of a notebook: others may have imported IPython as well."""
    found = sys.modules.get("IPython")
    shell = None if found is None else found.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


def choose_display(wish: str) -> Display | None:
    """Who shows it; ``wish``: ARGAND_PROGRESS."""
    if wish == "0":
        return None
    if _in_notebook():
        from IPython.display import display  # noqa: PLC0415  # a notebook has it

        return NotebookBar(display)
    if sys.stderr is not None and sys.stderr.isatty():
        return RichLine() if importlib.util.find_spec("rich") else LogLine()
    return LogLine() if wish == "1" else None


@functools.cache
def start_progress() -> None:
    """Listen from now on, once per process, if there is somebody to see it."""
    display = choose_display(read_environment().progress)
    if display is not None:
        events.subscribe(Progress(display))
