"""capture.write.checks: `assert` and `if ...: raise` on what only the graph computes.

In: a branch on a tensor or a pending number where one of the two ways raises. The trace takes the other one and
notes what it relied on. Out: a compiled function that looks before anything is changed, and runs its frame in
Python from the beginning when a check fails or the graph raises: so state and exception are those of eager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from argand.capture.generated.target import checked
from argand.capture.objects import operate
from argand.capture.record import pending
from argand.capture.record.pending import Pending
from argand.capture.record.recorder import Recorder, remove_dead
from argand.capture.sizes.values import Claim
from argand.capture.write.reruns import arguments
from argand.runtime import _native
from argand.runtime.guards import FrameFunction

if TYPE_CHECKING:
    from argand.bytecode import Instruction
    from argand.capture.interpret.frame import Frame
    from argand.capture.write.rebuild import Rebuilder


def branch(frame: Frame, ins: Instruction, jumps: bool) -> bool:
    """The truth of the top of the stack, for an instruction that jumps when it is `jumps`."""
    tracer, value = frame.tracer, frame.stack[-1]
    if type(value) in (Claim, Pending, torch.Tensor) and not tracer.entered:
        on, off = _raises(frame, ins.target or 0), _raises(frame, ins.index + 1)
        if on != off:
            number = pending.item(tracer, value) if type(value) is torch.Tensor else value
            tracer.journal.checks.append((number, jumps == off, frame.count))
            return jumps == off
    return operate.truth(tracer, value)


def _raises(frame: Frame, index: int) -> bool:
    """Whether the program, once there, can only raise."""
    for _, ins in frame.program[index:]:
        if ins.op == "raise_varargs":
            return True
        if ins.target is not None or ins.op in ("return_value", "yield_value", "reraise"):
            return False
    return False


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
    wanted = tuple((place, expected) for place, (_, expected, _) in zip(places, checks, strict=True))
    given = "".join(f"{rebuilder.source(known.source)}, " for _, known in inputs)
    again = f"{rebuilder.constant(_native.disabled)}({rebuilder.source(FrameFunction())})({arguments(rebuilder)})"
    look = f"outputs = {rebuilder.constant(checked)}({name}, ({given}), {wanted}, {name == 'graph'})"
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
    return _native.disabled(module.forward), [row for row in recorder.inputs if places[row[0]] in left]
