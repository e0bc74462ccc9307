"""capture.write.checks: a compiled function looks whether the checks of its trace hold before anything is changed.

In: what `interpret.checks` noted. Out: statements. When a check fails or the graph raises, the frame runs in Python from its
beginning: so state and exception are those of eager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from argand.capture.generated.target import checked
from argand.capture.record.recorder import Recorder, remove_dead
from argand.capture.sizes.values import Claim
from argand.capture.write.rebuild import Rebuilder
from argand.capture.write.reruns import arguments
from argand.runtime import _native
from argand.runtime.sources import FrameFunction


def write_checks(rebuilder: Rebuilder, inputs: list[Any], call: str) -> tuple[list[str], str]:
    """Statements that look whether all checks hold, and how to call the graph after them."""
    recorder, checks = rebuilder.tracer.recorder, rebuilder.tracer.journal.checks
    if not checks:
        return [], call
    nodes = [n.node if type(n) is Claim else recorder.node_of(n.tensor) for n, _, _ in checks]
    name, places = "graph", [rebuilder.outputs.index(node) for node in nodes]
    if recorder.changes_inputs():
        name, places = "part", list(range(len(nodes)))
        rebuilder.namespace[name], inputs = _part(recorder, nodes)
    wanted = tuple(
        (place, expected) for place, (_, expected, _) in zip(places, checks, strict=True)
    )
    given = "".join(f"{rebuilder.source(known.source)}, " for _, known in inputs)
    again = f"{rebuilder.constant(_native.disabled)}({rebuilder.source(FrameFunction())})({arguments(rebuilder)})"
    look = (
        f"outputs = {rebuilder.constant(checked)}({name}, ({given}), {wanted}, {name == 'graph'})"
    )
    return [look, f"if outputs is None: return {again}"], "outputs" if name == "graph" else call


def _part(recorder: Recorder, outputs: list[torch.fx.Node]) -> tuple[Callable[..., Any], list[Any]]:
    """What some nodes need, as a graph of its own over copies of the inputs."""
    graph, copies, kept = torch.fx.Graph(), dict[torch.fx.Node, torch.fx.Node](), set()
    places = {node: graph.node_copy(node) for node, _ in recorder.inputs}
    for node in recorder.graph.nodes:
        if node in places:
            tensor = isinstance(node.meta["example_value"], torch.Tensor)
            copies[node] = graph.call_method("clone", (places[node],)) if tensor else places[node]
        elif not copies.keys() >= set(outputs):
            copies[node] = graph.node_copy(node, copies.__getitem__)
            kept |= {copies[node]} if node in recorder.keep else set()
    graph.output(tuple(copies[node] for node in outputs))
    remove_dead(graph, kept)
    left = set(graph.nodes)
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    return _native.disabled(module.forward), [
        row for row in recorder.inputs if places[row[0]] in left
    ]
