"""Questions about the group of processes: numbers of the trace, asked for again at each call."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import torch
import torch.distributed as dist
import argand

graphs = []

def backend(graph, inputs):
    graphs.append(graph)
    return graph.forward

def run(x):
    return x * (2 + dist.get_rank()) + dist.get_world_size()

def enter(rank):
    dist.init_process_group("fake", store=dist.HashStore(), rank=rank, world_size=3)

from torch.testing._internal.distributed import fake_pg
compiled, x = argand.compile(run, backend=backend, fullgraph=True), torch.randn(3)
for rank in (0, 0, 2):
    enter(rank)
    assert torch.equal(compiled(x), run(x)), rank
    dist.destroy_process_group()
print(len(graphs))
try:
    argand.compile(run)(x)
except ValueError as error:
    print("no group:", "has not been initialized" in str(error))
"""


def test_rank_and_size_are_asked_for_at_each_call() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == ["2", "no group: True"], done.stderr[-2000:]
