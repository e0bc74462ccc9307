"""capture.explain: what was captured of a program, for people.

In: the captured frames of one run and the events of it. Out: `Explanation`, which prints as the report of
`argand.explain(fn)(*args)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import torch.fx
from typing_extensions import override

from argand.capture.finish.finish import Captured
from argand.runtime.guards import Guard
from argand.support.dataclass import dataclass
from argand.support.errors import CaptureBreak
from argand.support.events import Collector

_LEFT = "(the frame runs in Python)"  # how trace.give_up marks its artefact


@final
@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """The graphs and breaks of one run."""

    frames: tuple[Captured, ...]
    left_to_python: tuple[str, ...]  # frames that could not be captured at all, with the reason
    seconds: float  # of all captures, with the backend
    backend_seconds: float
    result: Any = None  # of the run

    @property
    def graphs(self) -> tuple[torch.fx.GraphModule, ...]:
        """The captured graphs, in the order of capture."""
        return tuple(frame.graph for frame in self.frames if frame.graph is not None)

    @property
    def graph_count(self) -> int:
        """How many graphs there are."""
        return len(self.graphs)

    @property
    def breaks(self) -> tuple[CaptureBreak, ...]:
        """Why the graphs ended, in the order of capture."""
        return tuple(frame.broken for frame in self.frames if frame.broken is not None)

    @property
    def graph_break_count(self) -> int:
        """How often a graph ended before the program did."""
        return len(self.breaks) + len(self.left_to_python)

    @property
    def ops_per_graph(self) -> tuple[tuple[str, ...], ...]:
        """The operations of each graph, as the user called them."""
        return tuple(tuple(_operations(graph)) for graph in self.graphs)

    @property
    def op_count(self) -> int:
        """How many operations were captured."""
        return sum(map(len, self.ops_per_graph))

    @property
    def guards(self) -> tuple[Guard, ...]:
        """What must hold for the compiled frames to be used again."""
        return tuple(guard for frame in self.frames for guard in frame.guards)

    @override
    def __str__(self) -> str:
        """The report."""
        lines = [
            f"{self.graph_count} graphs, {self.graph_break_count} graph breaks, "
            f"{self.op_count} operations, {len(self.guards)} guards; captured in "
            f"{1e3 * self.seconds:.1f} ms, {1e3 * self.backend_seconds:.1f} ms of it in the backend"
        ]
        for number, frame in enumerate(self.frames, 1):
            lines += _describe(number, frame)
        lines += [f"not captured: {reason}" for reason in self.left_to_python]
        return "\n".join(lines)


def explain(frames: Sequence[Captured], seen: Collector, result: Any) -> Explanation:
    """The explanation of a run, of which `seen` heard the events."""
    texts = seen.texts("graph_breaks")
    left = tuple(text.removesuffix(_LEFT).strip() for text in texts if text.endswith(_LEFT))
    seconds = seen.seconds()
    whole, backend = seconds.get("capture", 0.0), seconds.get("capture.backend", 0.0)
    return Explanation(tuple(frames), left, whole, backend, result)


def _operations(graph: torch.fx.GraphModule) -> list[str]:
    """Readable names: `torch.relu`, `Tensor.sum`."""
    names = []
    for node in graph.graph.nodes:
        if node.op == "call_method":
            names.append(f"Tensor.{node.target}")
        elif node.op == "call_function":
            module = getattr(node.target, "__module__", None) or "torch"
            names.append(f"{module.lstrip('_')}.{getattr(node.target, '__name__', node.target)}")
    return names


def _describe(number: int, frame: Captured) -> list[str]:
    operations = [] if frame.graph is None else _operations(frame.graph)
    lines = [f"{number}. {frame.where}: {len(operations)} operations, {len(frame.guards)} guards"]
    lines += [f"     {name}" for name in operations]
    lines += [f"     size {line}" for line in frame.sizes]
    lines += [f"     guard {guard}" for guard in frame.guards]
    if frame.broken is not None:
        lines += [f"   ends by {frame.broken}", f"     hint: {frame.broken.row.hint}"]
        lines += [f"     in {place}" for place in frame.broken.stack[:-1]]
    return lines
