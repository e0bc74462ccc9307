"""native.codegen.llvm.depthwise: convolutions of each channel by itself, channels last.

In: the shape of a window, and what writes a finished tile. Out: LLVM text of a kernel; sizes are read at run time. A tile is ``ROW`` pixels of
an output row times one vector of channels. Each input column under the windows of a tile is loaded once per line and goes into
all sums that need it; columns outside of the image are read from a row of zeros, lines outside are left out.

Blocks of channels all have full vectors: the last one begins earlier where channels do not divide, and computes some again.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from argand.native.codegen.llvm.control import counted, function
from argand.native.codegen.llvm.dense import Finished, Write, load_sizes
from argand.native.codegen.text import Text

ROW: Final = 7  # divides the sizes of images that networks like, and leaves registers for weights
SIZES: Final = (
    *(
        "blocks",
        "channels",
        "panel_floats",
        "first_panel",
        "taps_high",
        "stride_high",
        "pad_high",
        "pad_wide",
    ),
    *("dilation_high", "high", "wide", "out_high", "out_wide", "parts", "part_lines"),
)


class Window(NamedTuple):
    """What a kernel is made for: lanes of a vector, and the window along a row."""

    lanes: int
    taps: int
    stride: int
    dilation: int

    @property
    def columns(self) -> int:
        """Input columns from the first to the last that a tile reads."""
        return (ROW - 1) * self.stride + (self.taps - 1) * self.dilation + 1


def emit_depthwise(text: Text, window: Window, x: str, weights: str, write: Write) -> None:
    """The body of a kernel over ``%begin`` to ``%end``: lines of output, for each block of channels of each part of each image.

    Lines are the inner loop: those of a block that the next window reads again are still in the cache. Parts are stretches of lines,
    one for each thread: like the pixels of a dense convolution, so that a thread reads what it has written.
    """
    names = []
    for edge in (False, True):
        name = f"argand.depthwise.{window.lanes}.{window.taps}.{window.stride}.{window.dilation}.{'edge' if edge else 'inner'}"
        names.append(name)
        if not any(f"@{name}(" in line for line in text.declarations):
            inner = Text(text.declarations)
            _Row(inner, window, edge).run()
            given = "ptr %x, ptr %weights, ptr %zeros, ptr %memory, ptr %sizes, i64 %line, i64 %column, i64 %first, i64 %last"
            text.declare(function(inner, f"define internal void @{name}({given}) noinline"))
    _Lines(text, window, (names[0], names[1]), x, weights, write).run()


class _Row:
    """The sums of one tile: a function of the first tap's line and column, and of the lines of taps that are inside."""

    def __init__(self, text: Text, window: Window, edge: bool) -> None:
        self.text, self.window, self.edge = text, window, edge
        self.size = load_sizes(text, SIZES)
        self.kind = f"<{window.lanes} x float>"
        self.sums = [text.slot(self.kind) for _ in range(ROW)]

    def run(self) -> None:
        text, lanes = self.text, self.window.lanes
        bias = text.value(f"load {self.kind}, ptr %weights, align 4")
        for slot in self.sums:
            text.line(f"store {self.kind} {bias}, ptr {slot}")
        first = text.value(f"getelementptr float, ptr %weights, i64 {lanes}")
        counted(text, "%first", "%last", 1, lambda tap: self._line(first, tap))
        for row, slot in enumerate(self.sums):
            at = text.value(f"getelementptr float, ptr %memory, i64 {row * lanes}")
            total = text.value(f"load {self.kind}, ptr {slot}")
            text.line(f"store {self.kind} {total}, ptr {at}, align 4")

    def _line(self, weights: str, tap: str) -> None:
        text, size, window = self.text, self.size, self.window
        line = text.value(f"mul i64 {tap}, {size['dilation_high']}")
        line = text.value(f"add i64 {line}, %line")
        start = text.value(f"mul i64 {line}, {size['wide']}")
        start = text.value(f"add i64 {start}, %column")
        start = text.value(f"mul i64 {start}, {size['channels']}")
        row = text.value(f"getelementptr float, ptr %x, i64 {start}")
        offset = text.value(f"mul i64 {tap}, {window.taps * window.lanes}")
        base = text.value(f"getelementptr float, ptr {weights}, i64 {offset}")
        taps = []
        for k in range(window.taps):
            at = text.value(f"getelementptr float, ptr {base}, i64 {k * window.lanes}")
            taps.append(text.value(f"load {self.kind}, ptr {at}, align 4"))
        for column in range(window.columns):
            users = [
                (pixel, k)
                for pixel in range(ROW)
                for k in range(window.taps)
                if pixel * window.stride + k * window.dilation == column
            ]
            if users:
                self._column(row, column, [(self.sums[pixel], taps[k]) for pixel, k in users])

    def _column(self, row: str, column: int, users: list[tuple[str, str]]) -> None:
        text, size = self.text, self.size
        at = row
        if column:
            offset = text.value(f"mul i64 {size['channels']}, {column}")
            at = text.value(f"getelementptr float, ptr {row}, i64 {offset}")
        if self.edge:
            place = text.value(f"add i64 %column, {column}")
            inside = text.value(f"icmp ult i64 {place}, {size['wide']}")
            at = text.value(f"select i1 {inside}, ptr {at}, ptr %zeros")
        value = text.value(f"load {self.kind}, ptr {at}, align 4")
        for slot, weight in users:
            total = text.value(f"load {self.kind}, ptr {slot}")
            total = text.intrinsic("fma", self.kind, [value, weight, total])
            text.line(f"store {self.kind} {total}, ptr {slot}")


class _Lines:
    """The loops around tiles."""

    def __init__(
        self, text: Text, window: Window, names: tuple[str, str], x: str, weights: str, write: Write
    ) -> None:
        self.text, self.window, self.names, self.x, self.weights, self.write = (
            text,
            window,
            names,
            x,
            weights,
            write,
        )
        self.size = load_sizes(text, SIZES)
        self.memory = text.slot("float", ROW * window.lanes)

    def _do(self, operation: str, left: str, right: str | int) -> str:
        return self.text.value(f"{operation} i64 {left}, {right}")

    def run(self) -> None:
        counted(self.text, "%begin", "%end", 1, self._unit)

    def _unit(self, unit: str) -> None:
        text, size, do = self.text, self.size, self._do
        rest, inside = do("udiv", unit, size["part_lines"]), do("urem", unit, size["part_lines"])
        rest, block = do("udiv", rest, size["blocks"]), do("urem", rest, size["blocks"])
        image, part = do("udiv", rest, size["parts"]), do("urem", rest, size["parts"])
        line = do("add", do("mul", part, size["part_lines"]), inside)
        number = do("add", do("mul", image, size["out_high"]), line)
        wanted = do("mul", block, self.window.lanes)
        channel = text.intrinsic(
            "smin", "i64", [wanted, do("sub", size["channels"], self.window.lanes)]
        )
        start = do("mul", do("mul", do("mul", image, size["high"]), size["wide"]), size["channels"])
        x = text.value(f"getelementptr float, ptr {self.x}, i64 {do('add', start, channel)}")
        offset = do("add", do("mul", block, size["panel_floats"]), size["first_panel"])
        weights = text.value(f"getelementptr float, ptr {self.weights}, i64 {offset}")
        top = do("sub", do("mul", line, size["stride_high"]), size["pad_high"])
        first, last = self._lines_inside(top)
        pixel = do("mul", number, size["out_wide"])
        latest = text.intrinsic("smax", "i64", [do("sub", size["out_wide"], ROW), "0"])
        tiles = do("udiv", do("add", size["out_wide"], ROW - 1), ROW)
        past = text.value(f"icmp sge i64 {line}, {size['out_high']}")  # the last part is shorter
        tiles = text.value(f"select i1 {past}, i64 0, i64 {tiles}")

        def tile(position: str) -> None:
            begin = text.intrinsic("smin", "i64", [do("mul", position, ROW), latest])
            column = do("sub", do("mul", begin, self.window.stride), size["pad_wide"])
            count = text.intrinsic("smin", "i64", [do("sub", size["out_wide"], begin), str(ROW)])
            given = f"ptr {x}, ptr {weights}, ptr {self.weights}, ptr {self.memory}, ptr %sizes, i64 {top}, i64 {column}"
            self._call(f"{given}, i64 {first}, i64 {last}", column)
            where = Finished(
                self.memory, do("add", pixel, begin), count, channel, str(self.window.lanes)
            )
            self.write(where)

        counted(text, "0", tiles, 1, tile)

    def _lines_inside(self, top: str) -> tuple[str, str]:
        """The taps, from the first to behind the last, whose lines are inside of the image."""
        text, size, do = self.text, self.size, self._do
        before = do(
            "sdiv", do("sub", do("sub", size["dilation_high"], "1"), top), size["dilation_high"]
        )
        first = text.intrinsic("smax", "i64", [before, "0"])
        below = do("sub", do("add", size["high"], size["dilation_high"]), do("add", top, "1"))
        last = text.intrinsic(
            "smin", "i64", [do("sdiv", below, size["dilation_high"]), size["taps_high"]]
        )
        return first, last

    def _call(self, given: str, column: str) -> None:
        """One tile, by the function without tests where all its columns are inside."""
        text = self.text
        inner, edge, done = text.label("inner"), text.label("edge"), text.label("done")
        end = self._do("add", column, self.window.columns)
        left = text.value(f"icmp sge i64 {column}, 0")
        right = text.value(f"icmp sle i64 {end}, {self.size['wide']}")
        both = text.value(f"and i1 {left}, {right}")
        text.line(f"br i1 {both}, label %{inner}, label %{edge}")
        for label, name in ((inner, self.names[0]), (edge, self.names[1])):
            text.begin_block(label)
            text.line(f"call void @{name}({given})")
            text.line(f"br label %{done}")
        text.begin_block(done)
