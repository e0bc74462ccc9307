"""native.codegen.llvm.spread: functions whose units are those of several rows of sizes, and results that lie apart.

In: a function over ranges of units. Out: one over the units of all rows (see ``layouts``), and where a pixel of a
phase lies among all results of a transposed convolution.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from argand.native.codegen.llvm.control import counted, function
from argand.native.codegen.llvm.dense import SIZES, load_sizes
from argand.native.codegen.text import Text

PLACES: Final = ("first_high", "first_wide", "step_high", "step_wide", "all_high", "all_wide")


def placing(text: Text) -> Callable[[str], str]:
    """Where a pixel of a phase lies among all results; its sizes stand behind those of the convolution.

    Numbers of 32 bits (``Convolve.wanted``): processors divide these in a third of the time.
    """
    size = load_sizes(text, PLACES, len(SIZES))
    own = {name: _loaded(text, name) for name in ("out_high", "out_wide")}

    def do(operation: str, left: str, right: str) -> str:
        return text.value(f"{operation} i32 {left}, {right}")

    def narrow(value: str) -> str:
        return text.value(f"trunc i64 {value} to i32")

    def place(pixel: str) -> str:
        number, high, wide = narrow(pixel), narrow(own["out_high"]), narrow(own["out_wide"])
        line, column = do("udiv", number, wide), do("urem", number, wide)
        image, line = do("udiv", line, high), do("urem", line, high)
        given = {name: narrow(value) for name, value in size.items()}
        line = do("add", do("mul", line, given["step_high"]), given["first_high"])
        line = do("add", do("mul", image, given["all_high"]), line)
        column = do("add", do("mul", column, given["step_wide"]), given["first_wide"])
        found = do("add", do("mul", line, given["all_wide"]), column)
        return text.value(f"zext i32 {found} to i64")

    return place


def _loaded(text: Text, name: str) -> str:
    at = text.value(f"getelementptr i64, ptr %sizes, i64 {SIZES.index(name)}")
    return text.value(f"load i64, ptr {at}")


def emit_ranges(name: str, inner: str, declarations: dict[str, None]) -> str:
    """A function that calls another one with each row of sizes, for those of the units that are the row's."""
    text = Text(declarations)
    rows, length = (_at(text, "%sizes", str(position)) for position in (0, 1))

    def row(number: str) -> None:
        offset = text.value(f"add i64 {text.value(f'mul i64 {number}, {length}')}, 2")
        sizes = text.value(f"getelementptr i64, ptr %sizes, i64 {offset}")
        first = _at(text, sizes, text.value(f"sub i64 {length}, 2"))
        count = _at(text, sizes, text.value(f"sub i64 {length}, 1"))
        begin = text.intrinsic("smax", "i64", [text.value(f"sub i64 %begin, {first}"), "0"])
        end = text.intrinsic("smin", "i64", [text.value(f"sub i64 %end, {first}"), count])
        some, done = text.label("some"), text.label("done")
        any_ = text.value(f"icmp slt i64 {begin}, {end}")
        text.line(f"br i1 {any_}, label %{some}, label %{done}")
        text.begin_block(some)
        text.line(f"call void @{inner}(ptr %buffers, ptr {sizes}, i64 {begin}, i64 {end})")
        text.line(f"br label %{done}")
        text.begin_block(done)

    counted(text, "0", rows, 1, row)
    head = f"define void @{name}(ptr %buffers, ptr %sizes, i64 %begin, i64 %end)"
    return function(text, head)


def _at(text: Text, memory: str, index: str) -> str:
    at = text.value(f"getelementptr i64, ptr {memory}, i64 {index}")
    return text.value(f"load i64, ptr {at}")
