"""native.target: one description of a machine, CPU or GPU, that the scheduler and the code generators read.

The scheduler reads ``limits`` alone, which say in numbers what pays off; which generator writes the kernels is asked
by ``native.codegen`` only. Tests make targets of machines that are not here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Limits(NamedTuple):
    """Numbers that the scheduler goes by; these are a CPU's."""

    # of rows that a kernel needs twice: its stack; on a GPU registers of a block
    row_bytes: int = 1 << 16
    # sums of columns side by side that stay in the nearest caches; 0: none are made
    panel_bytes: int = 1 << 16
    strip: int = 8  # lines that still fit one set of a cache when rows are a power of two apart; 0: no strips
    few_results: int = 16  # reductions with up to so many results are cut for more workers
    long_row: int = 65536  # elements per result below which one worker does it
    own_products: bool = True  # products and convolutions may be kernels of ours


class Gpu(NamedTuple):
    """What Triton and its cost model know of a device."""

    kind: str  # cuda or hip, as Triton says it
    arch: int | str  # 80, 90, gfx942
    warp: int  # threads that run together
    processors: int  # that run blocks side by side
    shared_bytes: int  # of memory that a block may use
    most_warps: int = 16  # of one block
    row_elements: int = 4096  # of a row that a block holds at once

    @property
    def name(self) -> str:
        """As users and caches say it: cuda:90, hip:gfx942."""
        return f"{self.kind}:{self.arch}"


class Target(NamedTuple):
    """What is known of a machine."""

    cpu: str
    features: str  # for LLVM: +name or -name
    vector_bytes: int
    # of torch's pool when the program was compiled: only where work is cut depends on it
    threads: int = 2
    limits: Limits = Limits()
    gpu: Gpu | None = None


CPU_LIMITS: Final = Limits()
GPU_LIMITS: Final = Limits(
    row_bytes=1 << 15, panel_bytes=0, strip=0, few_results=128, long_row=32768, own_products=False
)

_GPUS: Final = (
    Gpu("cuda", 80, 32, 108, 163 << 10),
    Gpu("cuda", 90, 32, 132, 227 << 10),
    Gpu("hip", "gfx942", 64, 304, 64 << 10),
)
GPUS: Final[Mapping[str, Target]] = {
    gpu.name: Target(gpu.name, "", 16, 1, GPU_LIMITS, gpu) for gpu in _GPUS
}
