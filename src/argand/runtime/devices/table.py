"""runtime.devices.table: what depends on a device, one row for each kind of device that plans run on.

``interpreter`` stands for Triton's interpreter, which runs the kernels of a GPU on CPU tensors: what a machine without a
GPU can try. Tests put rows of their own here, with streams and graphs that only take notes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple, Protocol

import torch

from argand.runtime.marks import OutOfRange


class Replay(Protocol):
    """Launches that were recorded once; ``replay`` runs them again, on the same memory."""

    def replay(self) -> None:
        """Run all of it."""


class DeviceRow(NamedTuple):
    """Choices that depend on a device."""

    kind: str  # torch's name of the device type
    target: Callable[[], str]  # a row of native.target.GPUS
    stream: Callable[[], Any]  # the stream that kernels are launched on
    side_stream: Callable[[], AbstractContextManager[Any]]  # where a graph warms up
    # run once while launches are recorded; what it gave
    record: Callable[[Callable[[], Any]], tuple[Replay, Any]]
    # what kernels marked; an index out of range is eager's error
    check: Callable[[torch.Tensor], None]
    synchronize: Callable[[], None]
    has_graphs: bool  # whether mode="reduce-overhead" records


def _cuda_target() -> str:
    if torch.version.hip:
        return f"hip:{torch.cuda.get_device_properties(0).gcnArchName.split(':')[0]}"
    major, minor = torch.cuda.get_device_capability()
    return f"cuda:{10 * major + minor}"


def _record_cuda(run: Callable[[], Any]) -> tuple[Replay, Any]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = run()
    return graph, result


@contextlib.contextmanager
def _side_stream() -> Any:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield stream
    torch.cuda.current_stream().wait_stream(stream)


def _assert_later(marks: torch.Tensor) -> None:
    """As eager's kernels do it: the device stops, and the next call that waits for it raises."""
    torch._assert_async(marks[0] == 0, "index out of range")


def _raise_now(marks: torch.Tensor) -> None:
    mark, index, size = (int(marks[place]) for place in (0, 4, 5))
    if not mark:
        return
    kind, dim = divmod(mark - 1, 64)
    if kind == OutOfRange.INDEX and index < 0:
        index -= size  # it had been counted from the end
    if kind == OutOfRange.AXIS:
        raise RuntimeError(f"INDICES element is out of DATA bounds, id={index} axis_dim={size}")
    if kind in (OutOfRange.INDEX, OutOfRange.GATHER):
        error = IndexError if kind == OutOfRange.INDEX else RuntimeError
        raise error(f"index {index} is out of bounds for dimension {dim} with size {size}")
    raise IndexError(
        f"Target {index} is out of bounds."
        if kind == OutOfRange.TARGET
        else "index out of range in self"
    )


def _no_graphs(run: Callable[[], Any]) -> tuple[Replay, Any]:
    raise RuntimeError("CPU tensors have no graphs of launches")


CUDA: Final = DeviceRow(
    kind="cuda",
    target=_cuda_target,
    stream=lambda: torch.cuda.current_stream(),
    side_stream=_side_stream,
    record=_record_cuda,
    check=_assert_later,
    synchronize=lambda: torch.cuda.synchronize(),
    has_graphs=True,
)
INTERPRETER: Final = DeviceRow(
    kind="cpu",
    target=lambda: "cuda:90",
    stream=lambda: None,
    side_stream=contextlib.nullcontext,
    record=_no_graphs,
    check=_raise_now,
    synchronize=lambda: None,
    has_graphs=False,
)
DEVICES: Final = {"cuda": CUDA, "interpreter": INTERPRETER}
