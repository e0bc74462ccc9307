"""support.logs: prints the artefacts a user asks for, with the syntax of TORCH_LOGS.

In: ``ARGAND_LOGS="graph_breaks,recompiles,+guards,-bytecode"`` or ``set_logs(...)``. ``name`` shows an
artefact, ``+name`` shows it with the times and counters of its room, ``-name`` hides it; ``all`` is
every name.
Fails with ``OptionError`` for an unknown name, listing the valid ones.
"""

from __future__ import annotations

import functools
import itertools
import logging
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, final

from argand.support import events
from argand.support.errors import OptionError, guess
from argand.support.options import read_environment

ARTIFACTS: Final[Mapping[str, str]] = {
    "graph_breaks": "why capture stopped, with the user's line",
    "recompiles": "which guard failed and what changed",
    "guards": "the guards of each compiled entry",
    "bytecode": "the code of frames and resume functions",
    "graph": "captured graphs as tables",
    "graph_code": "captured graphs as Python",
    "trace_source": "user lines as they are traced",
    "trace_bytecode": "instructions as they are traced",
    "side_effects": "the journal replayed after a graph",
    "aot_joint_graph": "forward and backward before they are split",
    "aot_graphs": "aten graphs handed to the compiler",
    "ir": "tensor IR after each pass",
    "fusion": "fusion decisions with their reasons",
    "schedule": "loop nests and the memory plan",
    "output_code": "LLVM IR of the kernels",
    "dynamic": "symbols and specialisations",
    "retries": "why a frame was traced again",
    "cache": "cache hits, misses and bypasses with reasons",
    "perf_hints": "what would make this faster",
    "differences": "what verification found: compiled code beside eager",
    "stages": "time of every stage",
}

# Whose times and counters ``+name`` adds: rooms, as stages and counters are called ``room.what``.
ROOMS: Final[Mapping[str, str]] = (
    dict.fromkeys(ARTIFACTS, "capture")
    | dict.fromkeys(("aot_joint_graph", "aot_graphs"), "autograd")
    | dict.fromkeys(("ir", "fusion", "schedule", "output_code", "perf_hints"), "native")
    | {"cache": "cache", "stages": ""}
)

logger: Final = logging.getLogger("argand")


@final
class Printer:
    """Subscriber that writes the chosen artefacts to the logger ``argand``."""

    def __init__(self, shown: frozenset[str], verbose: frozenset[str]) -> None:
        self.shown, self.verbose = shown, verbose
        self.rooms = tuple(sorted({ROOMS[name] for name in verbose}))

    def _follows(self, name: str) -> bool:
        return any(name.startswith(room) for room in self.rooms)

    def _tells(self, counter: str) -> bool:
        """Whether a counter is the news itself: what the cache does has no text."""
        return "cache" in self.shown and counter.startswith("cache.")

    def __call__(self, event: events.Event) -> None:
        """Print the event if it was asked for."""
        match event:
            case events.Artifact(name, render, detail) if name in self.shown:
                head = f"[{name}] {detail}".rstrip()
                logger.info("%s\n%s", head, render())
            case events.StageEnd(stage, seconds) if "stages" in self.shown or self._follows(stage):
                logger.info("[stages] %-28s %8.2f ms", stage, seconds * 1e3)
            case events.Count(counter, amount, detail) if self._tells(counter) or self._follows(
                counter
            ):
                logger.info("[counter] %s +%d %s", counter, amount, detail)
            case _:
                pass


def parse(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """(shown, verbose) artefact names of a log setting."""
    shown: set[str] = set()
    verbose: set[str] = set()
    for item in (part.strip() for part in text.split(",")):
        if not item:
            continue
        sign, name = (item[0], item[1:]) if item[0] in "+-" else ("", item)
        names = set(ARTIFACTS) if name == "all" else {name}
        unknown = names - set(ARTIFACTS)
        if unknown:
            listing = "\n".join(f"    {key:<16} {what}" for key, what in ARTIFACTS.items())
            hint = f"{guess(name, ARTIFACTS)}valid names (or 'all'):\n{listing}"
            raise OptionError(f"unknown log {name!r}", hint=hint)
        if sign == "-":
            shown -= names
            verbose -= names
        else:
            shown |= names
            verbose |= names if sign == "+" else set()
    return frozenset(shown), frozenset(verbose)


def set_logs(text: str) -> Printer:
    """Show the artefacts named in ``text`` from now on, and no others."""
    printer = Printer(*parse(text))
    if not logger.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
    events.unsubscribe_all(Printer)
    if printer.shown:
        events.subscribe(printer, shows=printer.shown)
    return printer


@functools.cache
def write_to(directory: str) -> None:
    """Write the text of every stage, of all that is compiled from now on, to numbered files."""
    folder, numbers = Path(directory), itertools.count()
    folder.mkdir(parents=True, exist_ok=True)

    def write(event: events.Event) -> None:
        if isinstance(event, events.Artifact):
            name = re.sub(r"\W+", "_", f"{event.name} {event.detail}").strip("_")[:80]
            (folder / f"{next(numbers):04d}_{name}.txt").write_text(event.render())

    events.subscribe(write)


@functools.cache
def start_from_environment() -> None:
    """Obey ARGAND_LOGS, once per process."""
    text = read_environment().logs
    if text:
        set_logs(text)
