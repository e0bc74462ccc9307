"""native.codegen.llvm.control: counted loops in LLVM text.

The counter lives in a stack slot that LLVM turns into a register: nobody here writes phi nodes for it.
"""

from __future__ import annotations

from collections.abc import Callable

from argand.native.codegen.text import Text


def counted(
    text: Text, low: str, high: str, step: int, body: Callable[[str], str | None], slot: str = ""
) -> str:
    """A loop while counter + step <= high, or that far as its body says; gives the slot where the counter ended.

    Without ``low`` it starts where the loop before it, with the same slot, ended.
    """
    slot = slot or text.slot("i64")
    if low:
        text.line(f"store i64 {low}, ptr {slot}")
    head, inside, done = text.label("head"), text.label("body"), text.label("done")
    text.line(f"br label %{head}")
    text.begin_block(head)
    counter = text.value(f"load i64, ptr {slot}")
    after = text.value(f"add nsw i64 {counter}, {step}")
    more = text.value(f"icmp sle i64 {after}, {high}")
    text.line(f"br i1 {more}, label %{inside}, label %{done}")
    text.begin_block(inside)
    reached = body(counter) or after
    text.line(f"store i64 {reached}, ptr {slot}")
    text.line(f"br label %{head}")
    text.begin_block(done)
    return slot


def function(text: Text, head: str) -> str:
    """The text of a whole function without result."""
    return "\n".join(
        [
            f"{head} {{",
            "entry:",
            *text.entry,
            "  br label %start",
            "start:",
            *text.lines,
            "  ret void",
            "}",
        ]
    )
