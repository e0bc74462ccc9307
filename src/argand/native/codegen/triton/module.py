"""native.codegen.triton.module: the loop nests of a graph as one Python module of Triton functions.

In: LoopNests. Out: KernelModule, as ``codegen.llvm.module`` makes it, with Triton source as text; ``BLOCKS`` at its end
has the ways to cut each kernel's grid, best first. Equal kernels are one function. Refused where a nest has no source.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Final

from argand.native.codegen.llvm.module import (
    KernelCall,
    KernelModule,
    Work,
    kernel_key,
    kernel_name,
)
from argand.native.codegen.triton.emit import KernelSource, emit_kernel
from argand.native.codegen.triton.functions import definitions
from argand.native.codegen.triton.source import Refused
from argand.native.ir.loops import Contraction, Kernel
from argand.native.ir.loops_text import print_kernel
from argand.native.schedule.nest import LoopNest, LoopNests
from argand.native.target import Gpu
from argand.support import events

_HEAD: Final = "import triton\nimport triton.language as tl\n\n"


def emit_triton(nests: LoopNests, gpu: Gpu) -> KernelModule:
    """Loops become Triton source."""
    functions: dict[object, KernelSource] = {}
    work: list[Work] = []
    for item in nests.work:
        if not isinstance(item, LoopNest):
            work.append(item)
            continue
        key = kernel_key(item.kernel)
        if key not in functions:
            functions[key] = emit_nest(item, gpu, len(functions))
        source = functions[key]
        work.append(KernelCall(source.name, item.owners, source.points, 1, source.sizes))
    names = tuple(source.name for source in functions.values())
    return KernelModule(nests.schedule, module_text(functions.values()), names, tuple(work))


def emit_nest(nest: LoopNest, gpu: Gpu, number: int = 0) -> KernelSource:
    """The source of one loop nest."""
    if isinstance(nest.kernel, Contraction):
        raise Refused("a product of our own")
    name = kernel_name(number, nest.kernel)
    kernel: Kernel = nest.kernel
    events.artifact("schedule", functools.partial(print_kernel, kernel), name)
    source = emit_kernel(name, kernel, gpu, nest.traces)
    definitions(source.needed)  # refused here where one of them cannot be written
    return source


def module_text(sources: Iterable[KernelSource]) -> str:
    """A Python module with these kernels and all they call."""
    listed = list(sources)
    if not listed:
        return ""
    needed = dict.fromkeys(name for source in listed for name in source.needed)
    blocks = [
        f'    "{source.name}": {[(dict(block.sizes), block.warps) for block in source.blocks]},'
        for source in listed
    ]
    table = "\n".join(["BLOCKS = {", *blocks, "}", ""])
    return "\n\n".join(
        [_HEAD.rstrip() + "\n", *definitions(needed), *(source.text for source in listed), table]
    )
