"""native.codegen.llvm.module: the loop nests of a graph as one LLVM module.

In: LoopNests. Out: KernelModule: the text, its functions, and what runs by name. Equal kernels are one function.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final, TypeAlias, final

from argand.native.codegen.llvm.checks import checked
from argand.native.codegen.llvm.contraction import emit_contraction
from argand.native.codegen.llvm.convolutions import (
    ConvolutionCall,
    Convolutions,
    find_epilogues,
    is_convolution,
)
from argand.native.codegen.llvm.emit import Emitted, emit_kernel
from argand.native.codegen.target import Target
from argand.native.ir.loops import Accumulate, Compute, Contraction, Kernel, Literal, walk
from argand.native.ir.tensor import Node
from argand.native.schedule.nest import LoopNest, LoopNests
from argand.native.schedule.order import Schedule
from argand.native.schedule.origins import origins_of
from argand.support import events
from argand.support.dataclass import dataclass, replace
from argand.support.later import later

if TYPE_CHECKING:
    from argand.native.ir import loops_text
else:
    loops_text = later("argand.native.ir.loops_text")


# Vector instructions below which a thread is not worth waking (about 10 us of work).
GRAIN: Final = 30_000
SHOWN: Final = 6  # operations in the name of a kernel


@final
@dataclass(frozen=True, slots=True)
class KernelCall:
    """A kernel to run: its function by name and the nodes behind its buffers."""

    function: str
    owners: tuple[Node, ...]
    total: int
    grain: int
    sizes: tuple[int, ...] = ()
    origins: tuple[str, ...] = ()  # the user's lines it computes


# a kernel, a convolution of ours, or an extern node
Work: TypeAlias = KernelCall | ConvolutionCall | Node


@final
@dataclass(frozen=True, slots=True, eq=False)
class KernelModule:
    """The text of all kernels of a graph, and what runs in which order."""

    schedule: Schedule
    text: str
    functions: tuple[str, ...]
    work: tuple[Work, ...]


def emit_module(nests: LoopNests, target: Target, check: bool = False) -> KernelModule:
    """Loops become LLVM text; ``check``: every load and store looks whether it stays in its buffer."""
    declarations: dict[str, None] = {}
    functions: dict[object, tuple[str, Emitted]] = {}
    work: list[Work] = []
    convolutions = Convolutions(target, declarations)
    epilogues = find_epilogues(nests)
    items = {n.inputs[0]: n for n in nests.schedule.demand.nodes if n.op == "item"}
    moved = set(epilogues.values())
    for item in nests.work:
        if not isinstance(item, LoopNest):
            if is_convolution(item) and item not in moved:
                call = convolutions.call(item, items[item], None)
                work.append(replace(call, origins=tuple(filter(None, [item.trace]))))
            elif item not in moved:
                work.append(item)
            continue
        if item in epilogues:
            call = convolutions.call(epilogues[item], items[epilogues[item]], item)
            work.append(replace(call, origins=origins_of(nests.schedule, item, epilogues[item])))
            continue
        checks = None
        if check:
            item, checks = checked(nests.schedule, item)  # the same nest, with marks
        key = (kernel_key(item.kernel), checks)
        if key not in functions:
            number = len(functions)
            name = kernel_name(number, item.kernel)
            events.artifact("schedule", functools.partial(_print, item.kernel), name)
            if isinstance(item.kernel, Contraction):
                functions[key] = (name, emit_contraction(name, item.kernel, target, declarations))
            else:
                functions[key] = (
                    name,
                    emit_kernel(name, item.kernel, target, declarations, checks, number),
                )
        name, emitted = functions[key]
        grain = max(1, GRAIN // emitted.work)
        origins = origins_of(nests.schedule, item)
        work.append(KernelCall(name, item.owners, emitted.total, grain, emitted.sizes, origins))
    own = tuple(convolutions.functions.values())
    text = "\n".join(
        [*declarations, *(e.text for _, e in functions.values()), *(body for _, body in own)]
    )
    names = (*(name for name, _ in functions.values()), *(name for name, _ in own))
    return KernelModule(nests.schedule, text, names, tuple(work))


def _print(kernel: Kernel | Contraction) -> str:
    return loops_text.print_kernel(kernel)


def kernel_name(number: int, kernel: Kernel | Contraction) -> str:
    """What a profile shows of a kernel: the first of its operations, in order."""
    ops = dict.fromkeys(
        s.op for s in walk(kernel.body) if isinstance(s, Compute | Accumulate) and s.op != "cast"
    )
    shown = [op for op in ops if op.isidentifier()][:SHOWN]
    return "_".join((f"kernel{number}", *(("product",) * isinstance(kernel, Contraction)), *shown))


def kernel_key(kernel: Kernel | Contraction) -> object:
    """What makes two kernels the same function: 0.0 and -0.0, 1 and True are not."""
    numbers = tuple(repr(s.value) for s in walk(kernel.body) if isinstance(s, Literal))
    return kernel, numbers
