"""autograd.recording: what every trace of a program does: results in memory of their own, and torch's engine on fakes.

In: a recorder and the fakes that a program has computed under it. Out: nodes of its graph. Used for whole programs
(`trace`) and for the branches inside of them (`bodies`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, final

import torch
from torch.fx import Graph, Node
from torch.overrides import TorchFunctionMode
from typing_extensions import override

from argand.autograd.geometry import aten, dense_order, same_layout
from argand.autograd.graphs import is_view
from argand.autograd.outputs import Untraceable
from argand.autograd.recorder import AtenRecorder
from argand.ops.fakes import DataDependent, check_reads, fake_of


@final
class NoPeeking(TorchFunctionMode):
    """Refuses what reads the memory of a fake without asking the dispatcher.

    Custom backwards and hooks are Python that runs now: ``offsets.tolist()`` there would give noise.
    """

    @override
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _READS_MEMORY:
            raise DataDependent(func.__name__)
        check_reads(getattr(func, "__name__", ""), args, kwargs or {})
        return func(*args, **(kwargs or {}))


_READS_MEMORY: Final = frozenset(
    {torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.__dlpack__}
)


def own_memory(recorder: AtenRecorder, results: Sequence[torch.Tensor], writes: int) -> list[Node]:
    """Nodes of the results (the first ones are written to inputs), each in memory of its own."""
    taken: set[Node] = set()
    nodes: list[Node] = []
    for tensor in results:
        node = recorder.aliasing.read(recorder.region_of(tensor))
        root = _root(node)
        if root.op != "call_function" or root in taken:
            node = root = recorder.copy(node, tensor)
        taken.add(root)
        own = node.meta["val"].stride()
        if (
            len(nodes) >= writes
            and own != tensor.stride()
            and same_layout(tensor.shape, own, tensor.stride())
        ):
            # dimensions of size one, after a write in place
            node = recorder.emit(
                aten.as_strided.default, (node, list(tensor.shape), list(tensor.stride()))
            )
        nodes.append(node)
    return nodes


def record_backward(
    recorder: AtenRecorder,
    results: Sequence[torch.Tensor],
    tangents: Sequence[int],
    wanted: Sequence[torch.Tensor],
    accumulate: bool,
) -> tuple[list[Any], list[torch.Tensor]]:
    """Record the backward; gradients in the order of the differentiable inputs."""
    if not tangents:
        return [], []
    fakes = []
    for number, k in enumerate(tangents):
        fake = _tangent_like(results[k])
        recorder.input(fake, f"tangents_{number + 1}")
        fakes.append(fake)
    recorder.backward = True
    recorder.lines = recorder.line_book.current if recorder.line_book is not None else None
    versions = {
        id(m): m.version for m in recorder.aliasing.memories.values() if m.source == "input"
    }
    torch.set_autocast_enabled("cpu", False)
    with recorder, NoPeeking():
        outputs = [results[k] for k in tangents]
        try:
            if accumulate:
                torch.autograd.backward(outputs, fakes)
                gradients: Sequence[Any] = [leaf.grad for leaf in wanted]
            else:
                gradients = run_engine(outputs, fakes, wanted)
        except RuntimeError as error:
            if "modified by an inplace operation" in str(error) or isinstance(
                error, NotImplementedError
            ):
                raise Untraceable(
                    "eager refuses this backward, and only if it is asked for"
                ) from error
            raise
    for memory in recorder.aliasing.memories.values():
        if memory.version != versions.get(id(memory), memory.version):
            raise Untraceable("the backward writes to an input")
    return _apart(recorder, gradients), fakes


def _apart(recorder: AtenRecorder, gradients: Sequence[torch.Tensor | None]) -> list[Any]:
    """Nodes of gradients; two of them share memory where eager's do, not because their calls are equal and share a node."""
    memories: dict[Node, Any] = {}
    nodes: list[Any] = []
    for gradient in gradients:
        node = None
        if gradient is not None:
            region = recorder.region_of(gradient)
            node = recorder.aliasing.read(region)
            if memories.setdefault(_root(node), region.memory) is not region.memory:
                node = recorder.copy(node, gradient)
        nodes.append(node)
    return nodes


def _root(node: Node) -> Node:
    """What a node is a view of."""
    while is_view(node):
        node = node.all_input_nodes[0]
    return node


def run_engine(
    outputs: Sequence[torch.Tensor],
    tangents: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor],
    *,
    create_graph: bool = False,
) -> Sequence[torch.Tensor | None]:
    """torch.autograd.grad without its Python front, which imports sympy."""
    engine = torch.autograd.Variable._execution_engine
    return engine.run_backward(
        tuple(outputs),
        tuple(tangents),
        create_graph,  # retain_graph
        create_graph,
        tuple(inputs),
        allow_unreachable=True,
        accumulate_grad=False,
    )


def _tangent_like(result: torch.Tensor) -> torch.Tensor:
    plain = result.detach()
    if dense_order(tuple(plain.shape), plain.stride()) is None:
        return torch.empty(plain.shape, dtype=plain.dtype)
    return fake_of(plain)


def drop_history(graph: Graph) -> None:
    """Fakes in ``meta`` let go of the autograd graph of the trace."""
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            if value.requires_grad:
                node.meta["val"] = value.data
        elif isinstance(value, tuple | list):
            node.meta["val"] = tuple(
                item.data if isinstance(item, torch.Tensor) and item.requires_grad else item
                for item in value
            )
