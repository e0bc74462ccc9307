"""benchmarks.partition: min-cut against default partition (``python -m benchmarks.partition``).

In: names of models. Out: for a training step of each, compiled with either partition: the bytes its
forward keeps for the backward, the operators computed again, and the ratio of the step times.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable
from typing import Any

import torch

import argand
from argand.autograd.aot import compile_program
from argand.autograd.graphs import flat_outputs
from argand.autograd.partition import bytes_of, default_partition, min_cut_partition
from argand.backends.argand_backend import make_compilers
from argand.protocol import context_of
from argand.support.options import Options
from benchmarks.child import interleave
from benchmarks.figures import ratio
from benchmarks.models import Program, select

PARTITIONS: dict[str, Callable[..., Any]] = {
    "default": default_partition,
    "min-cut": min_cut_partition,
}


@dataclasses.dataclass
class Watched:
    """A backend with one of the partitions, which notes what the forwards save."""

    name: str
    saved: int = 0
    again: int = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        compilers = dataclasses.replace(make_compilers(Options()), partition=self.partition)
        # sizes are fixed: no refusals
        return compile_program(graph, inputs, context_of(graph), compilers).call

    def partition(self, joint: torch.fx.GraphModule, inputs: Any, **rest: Any) -> Any:
        """Cut, and look at the two graphs."""
        forward, backward = PARTITIONS[self.name](joint, inputs, **rest)
        saved = dict.fromkeys(flat_outputs(forward.graph)[rest["num_fwd_outputs"] :])
        # inputs are there anyway
        self.saved += sum(bytes_of(node) for node in saved if node.op != "placeholder")
        made = [{n.name for n in g.graph.nodes if _computes(n)} for g in (forward, backward)]
        self.again += len(made[0] & made[1])
        return forward, backward


def _computes(node: torch.fx.Node) -> bool:
    """Whether a node is an operator with work to do."""
    view = getattr(node.target, "is_view", True)  # getitem is none either
    return node.op == "call_function" and not view


def compare(build: Callable[[], Program], rounds: int) -> list[str]:
    """The lines about one model."""
    watched = {name: Watched(name) for name in PARTITIONS}
    calls = {}
    for name, backend in watched.items():
        program = build()
        compiled = argand.compile(program.target, backend=backend)
        calls[name] = lambda program=program, compiled=compiled: program.run(compiled)
    samples = interleave(calls, rounds, 0.05)
    faster = ratio(samples["default"], samples["min-cut"])
    lines = [
        f"  {name:<8} saves {backend.saved / 1e6:8.2f} MB, computes {backend.again:4} operators again"
        for name, backend in watched.items()
    ]
    times = f"{faster.middle:.3f} times as fast [{faster.low:.3f}-{faster.high:.3f}]"
    return [*lines, f"  a step with min-cut is {times}"]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.partition", description=__doc__)
    parser.add_argument("--models", default="bert,resnet18", help="names and groups")
    parser.add_argument("--rounds", type=int, default=15, help="interleaved rounds")
    arguments = parser.parse_args()
    for case in select(arguments.models):
        print(f"{case.name}, training step")
        print("\n".join(compare(lambda case=case: case.program("train"), arguments.rounds)))


if __name__ == "__main__":
    main()
