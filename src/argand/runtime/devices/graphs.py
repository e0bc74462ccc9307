"""runtime.devices.graphs: the launches of a plan recorded once and replayed (``mode="reduce-overhead"``, ``cudagraphs``).

A recording has the addresses of its tensors in it. So each kind of inputs (shapes, strides, types) has its own recording,
with memory for the inputs, which are copied there before a replay; inputs that lie where they lay (parameters) are read in
place. Results are copies.
Programs that cannot be recorded (inputs elsewhere, inputs that are written to, values read on the way) run step by step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any, Final, final

import torch

from argand.protocol import Boxed
from argand.runtime.devices.table import DeviceRow, Replay
from argand.support import events
from argand.support.dataclass import dataclass

WARM_UPS: Final = 2  # calls before a recording: kernels are compiled, libraries make their handles
MOST: Final = 16  # recordings of one plan: each holds memory

InputKind = tuple[Any, ...]


@final
@dataclass(slots=True)
class Recording:
    """Launches of one kind of inputs; ``places`` are their inputs, ``results`` what they write."""

    replay: Replay
    places: list[Any]
    results: Sequence[Any]
    fixed: frozenset[int]  # inputs that are read where they lie


@final
@dataclass(slots=True)
class _Seen:
    calls: int = 0
    pointers: dict[int, int] = field(default_factory=dict)
    moved: set[int] = field(default_factory=set)
    recording: Recording | None = None


@final
class GraphedPlan:
    """A plan whose calls are recorded after some of each kind."""

    def __init__(self, plan: Boxed, device: DeviceRow) -> None:
        self.plan, self.device = plan, device
        self.seen: dict[InputKind, _Seen] = {}
        self.refused = ""  # why nothing is recorded

    def __call__(self, inputs: list[Any]) -> Sequence[Any]:
        """Run, by replay where there is a recording."""
        kind = tuple(map(_kind, inputs))
        seen = self.seen.setdefault(kind, _Seen())
        if seen.recording is not None and self._fits(seen.recording, inputs):
            return self._replay(seen.recording, inputs)
        self._note(seen, inputs)
        if self.refused or seen.calls <= WARM_UPS or len(self.seen) > MOST:
            return self.plan(inputs)
        return self._record(seen, inputs)

    def _note(self, seen: _Seen, inputs: list[Any]) -> None:
        """Which inputs lie where they lay in the calls before."""
        seen.calls += 1
        for number, value in enumerate(inputs):
            if isinstance(value, torch.Tensor):
                if value.device.type != self.device.kind and value.dim():
                    self.refused = self.refused or f"input {number} is on {value.device}"
                if seen.pointers.setdefault(number, value.data_ptr()) != value.data_ptr():
                    seen.moved.add(number)

    def _record(self, seen: _Seen, inputs: list[Any]) -> Sequence[Any]:
        versions = [value._version if isinstance(value, torch.Tensor) else 0 for value in inputs]
        fixed = (
            frozenset(k for k, value in enumerate(inputs) if isinstance(value, torch.Tensor))
            - seen.moved
        )
        places = [_place(value) if k in seen.moved else value for k, value in enumerate(inputs)]
        with self.device.side_stream():
            self.plan(list(places))
        changed = [
            k
            for k, value in enumerate(places)
            if isinstance(value, torch.Tensor) and _written(value, inputs[k], versions[k])
        ]
        if changed:
            self.refused = f"input {changed[0]} is written to"
            events.count("native.graph_refused", detail=self.refused)
            return self.plan(inputs)
        try:
            replay, results = self.device.record(lambda: self.plan(list(places)))
        except RuntimeError as error:
            self.refused = str(error).splitlines()[0]
            events.count("native.graph_refused", detail=self.refused)
            return self.plan(inputs)
        events.count("native.graph_recorded")
        seen.recording = Recording(replay, places, results, fixed)
        return self._replay(seen.recording, inputs)

    @staticmethod
    def _fits(recording: Recording, inputs: list[Any]) -> bool:
        """Whether inputs that are read in place lie there still."""
        return all(recording.places[k].data_ptr() == inputs[k].data_ptr() for k in recording.fixed)

    def _replay(self, recording: Recording, inputs: list[Any]) -> Sequence[Any]:
        for number, (place, value) in enumerate(zip(recording.places, inputs, strict=True)):
            if isinstance(place, torch.Tensor) and number not in recording.fixed:
                place.copy_(value)
        inputs.clear()
        recording.replay.replay()
        events.count("native.graph_replayed")
        return tuple(_copied(result) for result in recording.results)


def _kind(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return (tuple(value.shape), value.stride(), value.dtype, value.device.type)
    return value


def _place(value: Any) -> Any:
    """Memory of a recording for an input."""
    if not isinstance(value, torch.Tensor):
        return value
    place = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    return place.copy_(value)


def _written(place: torch.Tensor, given: Any, version: int) -> bool:
    return place._version != (version if place is given else 1)


def _copied(result: Any) -> Any:
    return result.clone() if isinstance(result, torch.Tensor) else result
