"""native.codegen.triton.blocks: ways to cut a kernel's grid into blocks, and a model of what each costs.

In: a kernel and its layout. Out: a few ``BlockShape``s, the one that the model expects to be fastest first. Where there is
a device, ``native.choice`` measures them and keeps the times; the model alone decides where there is none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from argand.native.codegen.triton.layout import FlatLayout, KernelLayout, LoopChain
from argand.native.ir import loops as ir
from argand.native.target import Gpu

PER_THREAD: Final = 8  # elements of a value that a thread may hold before registers get scarce
_UNKNOWN: Final = 1 << 20  # points of a grid whose size is open
_LAUNCH: Final = 0.5  # cost of a block, in rounds of a warp


class BlockShape(NamedTuple):
    """Compile-time numbers of a kernel, and its warps."""

    sizes: Mapping[str, int]
    warps: int

    @property
    def label(self) -> str:
        """As caches and logs name it."""
        return ",".join(
            [*(f"{name}={size}" for name, size in self.sizes.items()), f"warps={self.warps}"]
        )


def blocks_for(kernel: ir.Kernel, layout: KernelLayout, gpu: Gpu) -> tuple[BlockShape, ...]:
    """The ways, best first."""
    live = _live(kernel)
    if isinstance(layout, FlatLayout):
        found = [
            BlockShape({"BLOCK": size}, warps)
            for size, warps in ((128, 4), (256, 4), (512, 4), (1024, 8))
        ]
        return _ranked(found, "BLOCK", _points(layout.axis.extent), 1, live, gpu)
    rows = _points(layout.axis.extent)
    if layout.whole:
        length = max(
            _power(part.axis.extent) for part in layout.parts if isinstance(part, LoopChain)
        )
        found = [
            BlockShape({"XBLOCK": size}, _warps(size * length, live, gpu))
            for size in (1, 4, 16, 64)
        ]
        found = [block for block in found if block.sizes["XBLOCK"] * length <= max(4096, length)]
        return _ranked(found, "XBLOCK", rows, length, live, gpu)
    shapes = (
        ((32, 32), (64, 16), (16, 64))
        if kernel.vector is not None
        else ((1, 1024), (1, 2048), (4, 256))
    )
    found = [
        BlockShape({"XBLOCK": size, "RBLOCK": piece}, _warps(size * piece, live, gpu))
        for size, piece in shapes
    ]
    return tuple(found)


def _ranked(
    found: list[BlockShape], name: str, points: int, length: int, live: int, gpu: Gpu
) -> tuple[BlockShape, ...]:
    costs = {
        block.label: _cost(block, block.sizes[name], points, length, live, gpu) for block in found
    }
    return tuple(sorted(found, key=lambda block: costs[block.label])[:3])


def _cost(block: BlockShape, size: int, points: int, length: int, live: int, gpu: Gpu) -> float:
    """Rounds of all processors: blocks wait for each other, lanes without work cost as much as others."""
    count = -(-points // size)
    threads = block.warps * gpu.warp
    held = size * length / threads
    work = max(held, 1.0) * live * block.warps
    spilled = max(0.0, held * live / 200 - 1.0) * work
    few = 1.0 + max(0.0, 1.0 - held / 4)  # with few elements each, threads do not read whole words
    return math.ceil(count / (gpu.processors * 8)) * (work * few + spilled + _LAUNCH * live)


def _warps(elements: int, live: int, gpu: Gpu) -> int:
    """Warps that hold so many elements of each value."""
    each = max(1, min(PER_THREAD, 128 // max(live, 1)))
    wanted = max(1, elements // (gpu.warp * each))
    return max(1, min(gpu.most_warps, 1 << (wanted.bit_length() - 1)))


def _live(kernel: ir.Kernel) -> int:
    """About how many values are alive at once: what is loaded and kept."""
    loads = sum(isinstance(s, ir.Load | ir.Accumulate) for s in ir.walk(kernel.body))
    return max(2, min(32, loads + len(kernel.scratch)))


def _points(extent: int) -> int:
    return extent if type(extent) is int else _UNKNOWN


def _power(extent: int) -> int:
    return 1 << (extent - 1).bit_length()
