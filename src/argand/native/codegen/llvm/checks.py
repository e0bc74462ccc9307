"""native.codegen.llvm.checks: kernels that check every load and store (``Options.checked_kernels``).

In: the number of elements behind each buffer. Out: instructions that note the first access outside of them in the
marks of the call (runtime/run.h), which then raises with kernel, buffer and element, and that send such an access
to a piece of the stack, so that nothing else is read or written by it. For fuzzers and the hunt for a bad index.
"""

from __future__ import annotations

from typing import Final, final

from argand.native.codegen.text import Text
from argand.native.ir.loops import Kernel
from argand.native.ir.tensor import Node
from argand.native.ir.types import DType
from argand.native.schedule.nest import LoopNest
from argand.native.schedule.order import Schedule
from argand.support.dataclass import dataclass

ASIDE: Final = 512  # words of stack for accesses that went wrong: more than any vector has
_BUFFER, _ELEMENT, _KERNEL = 1, 2, 3  # words of the marks


@final
@dataclass(frozen=True, slots=True)
class Checks:
    """What is known of a kernel's memory: elements of each buffer, and the buffer of the marks."""

    lengths: tuple[int, ...]
    marks: int


def checked(schedule: Schedule, nest: LoopNest) -> tuple[LoopNest, Checks]:
    """The nest with a buffer for the marks, and the lengths of its buffers."""
    owners = nest.owners if schedule.flag in nest.owners else (*nest.owners, schedule.flag)
    buffers = (*nest.kernel.buffers, *(DType.I64 for _ in owners[len(nest.owners) :]))
    kernel = nest.kernel
    assert isinstance(kernel, Kernel)  # contractions are not made when kernels are checked
    whole = Kernel(buffers, kernel.outer, kernel.body, kernel.vector, kernel.scratch)
    lengths = tuple(length_of(schedule, owner) for owner in owners)
    return LoopNest(whole, owners), Checks(lengths, owners.index(schedule.flag))


def length_of(schedule: Schedule, owner: Node) -> int:
    """Elements from the first to the last one of a node's memory."""
    if owner.op in ("flag", "seed"):
        return 1
    if 0 in owner.shape:
        return 0
    strides = schedule.demand.strides(owner) or ()
    return 1 + sum((size - 1) * stride for size, stride in zip(owner.shape, strides, strict=True))


def guarded(
    text: Text,
    pointers: tuple[str, str],
    index: str,
    count: int,
    length: str,
    mark: tuple[int, int],
) -> str:
    """An address that is inside of its buffer, or aside.

    ``pointers``: the address and the marks; ``count`` elements from ``index`` on are touched; ``mark``: the number of
    the buffer and of the kernel.
    """
    address, marks = pointers
    aside = text.once("aside", "i64", ASIDE)
    end = text.value(f"add i64 {index}, {count}")
    past = text.value(f"icmp sgt i64 {end}, {length}")
    before = text.value(f"icmp slt i64 {index}, 0")
    bad = text.value(f"or i1 {past}, {before}")
    wrong, go = text.label("wrong"), text.label("go")
    text.line(f"br i1 {bad}, label %{wrong}, label %{go}")
    text.begin_block(wrong)
    buffer, kernel = mark
    for word, value in ((_BUFFER, str(1 + buffer)), (_ELEMENT, index), (_KERNEL, str(kernel))):
        place = text.value(f"getelementptr i64, ptr {marks}, i64 {word}")
        text.line(f"store i64 {value}, ptr {place}")
    text.line(f"br label %{go}")
    text.begin_block(go)
    return text.value(f"select i1 {bad}, ptr {aside}, ptr {address}")
