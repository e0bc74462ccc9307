"""Memory: what the user frees goes back to the system, and large results do not fault page by page."""

import os
import pathlib
import resource
import subprocess
import sys

import pytest
import torch

import argand
from argand.runtime import _native

KEPT = """
import gc, torch, argand
def resident():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmRSS")).split()[1]) // 1024
def peak():
    large = [torch.ones(2_000_000) for _ in range(60)]
    small = torch.zeros(1000)
    del large
    gc.collect()
    return resident(), small
before = peak()
argand.compile(lambda x: x * 2, options={"cache": False})(torch.ones(2))
after = peak()
print(after[0] - before[0])
"""


def test_freed_memory_of_the_process_goes_back():
    """Of 480 MB that eager code frees, none stays because something was compiled (about 60 MB are the compiler's code).

    The threshold is fixed: glibc raises it by itself when mappings are freed, and then a small block pins large ones.
    """
    fixed = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "131072"}
    done = subprocess.run(
        [sys.executable, "-c", KEPT], capture_output=True, text=True, check=True, env=fixed
    )
    assert int(done.stdout) < 250


def huge_pages():
    setting = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return setting.exists() and "[never]" not in setting.read_text()


@pytest.mark.skipif(not huge_pages(), reason="this system has no huge pages")
def test_large_results_come_in_large_pages():
    compiled = argand.compile(lambda x: x * 2 + 1, options={"cache": False, "measure": False})
    x = torch.ones(4 << 20)
    compiled(x)

    def faults():
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

    before = faults()
    kept = [compiled(x) for _ in range(8)]
    assert faults() - before < 8 * 2048  # 16 MB are 4096 pages
    assert all(torch.equal(result, x * 3) for result in kept)


def test_large_arenas_are_mappings_that_go():
    from tests.launch.test_plan import F32, Plan, Slot, increment

    _native.release_arenas()
    held = _native.arena_statistics()["bytes_held"]
    for size in (5 << 20, 64, 9 << 20, 4 << 20):
        Plan(1, (Slot(0, (1,), (1,), F32),), (increment(0, 1, 1),), (), arena_bytes=size)(
            [torch.ones(1)]
        )
    # whole huge pages, one block
    assert _native.arena_statistics()["bytes_held"] - held == 10 << 20
    _native.release_arenas()
    assert _native.arena_statistics()["bytes_held"] == 0
