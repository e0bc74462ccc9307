"""native.codegen.llvm.dense: convolutions as products of packed weights with rows of pixels, channels last.

In: a tile, and what writes a finished tile. Out: LLVM text of a kernel shared by all convolutions of that class: sizes are read
at run time. A tile is ``rows`` output pixels times ``vectors`` vectors of output channels, held in registers. For each tap of the
window every pixel has the address of its input channels, or of a row of zeros where the window reaches over the edge, so padding,
strides, dilation, groups and one dimension are one case. Nothing is copied before. Taps of one line that lie behind each other are one run
where no window of a tile reaches over the edge: images with few channels have short taps. Windows of one pixel have no addresses to find.

Packed weights: a row of zeros, then panels of ``vectors`` vectors of channels: their bias, then for each tap and input channel one weight
per channel. Panels are the outer loop: one stays in the cache while all pixels go by.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from argand.native.codegen.llvm.control import counted, function
from argand.native.codegen.text import Text

# What the kernel finds in its sizes, in this order; the loops around tiles need the first few.
SIZES: Final = (
    *(
        "pixels",
        "panels",
        "group_panels",
        "inner",
        "pixel_stride",
        "group_outputs",
        "panel_floats",
        "first_panel",
    ),
    *("by_panels", "taps_high", "taps_wide", "stride_high", "stride_wide", "pad_high", "pad_wide"),
    *("dilation_high", "dilation_wide", "high", "wide", "out_high", "out_wide"),
)
_OUTER_SIZES: Final = 9
_BATCH: Final = 16  # addresses are computed for so many pixels at once


class PixelTile(NamedTuple):
    """Output pixels and vectors of channels that are computed together."""

    rows: int
    vectors: int
    lanes: int
    point: bool = False  # each pixel is made of the one at its own place: no window, no edges


class Finished(NamedTuple):
    """A computed tile, in memory: where, its first pixel and channel, how many of each are real."""

    memory: str  # rows of vectors * lanes floats
    pixel: str
    pixels: str
    channel: str
    channels: str


Write = Callable[[Finished], None]


def load_sizes(text: Text, names: tuple[str, ...], first: int = 0) -> dict[str, str]:
    """The sizes a kernel was called with, by name."""
    found = {}
    for position, name in enumerate(names, first):
        text.entry.append(f"  %size.{name}.at = getelementptr i64, ptr %sizes, i64 {position}")
        text.entry.append(f"  %size.{name} = load i64, ptr %size.{name}.at")
        found[name] = f"%size.{name}"
    return found


def emit_dense(text: Text, tile: PixelTile, x: str, weights: str, write: Write) -> None:
    """The body of a kernel over ``%begin`` to ``%end``: tiles of pixels, or panels of channels.

    The sums of a tile are a function of their own, shared by the kernels of a module: it is most of the code.
    """
    shared: dict[str, None] = text.declarations
    name = f"argand.tile.{tile.rows}.{tile.vectors}.{tile.lanes}{'.point' * tile.point}"
    if not any(f"@{name}(" in line for line in shared):
        inner = Text(shared)
        _Tile(inner, tile).run()
        head = f"define internal void @{name}(ptr %x, ptr %weights, ptr %zeros, ptr %memory, ptr %sizes, i64 %pixel) noinline"
        text.declare(function(inner, head))
    _Panels(text, tile, name, x, weights, write).run()


class _Panels:
    """The loops around tiles."""

    def __init__(
        self, text: Text, tile: PixelTile, name: str, x: str, weights: str, write: Write
    ) -> None:
        self.text, self.tile, self.name, self.x, self.weights, self.write = (
            text,
            tile,
            name,
            x,
            weights,
            write,
        )
        self.size = load_sizes(text, SIZES[:_OUTER_SIZES])
        self.width = tile.vectors * tile.lanes
        self.memory = text.slot("float", tile.rows * self.width)

    def run(self) -> None:
        text, size = self.text, self.size
        last = text.value(f"add i64 {size['pixels']}, {self.tile.rows - 1}")
        tiles = text.value(f"udiv i64 {last}, {self.tile.rows}")
        split = text.value(f"icmp ne i64 {size['by_panels']}, 0")
        first_panel = text.value(f"select i1 {split}, i64 %begin, i64 0")
        last_panel = text.value(f"select i1 {split}, i64 %end, i64 {size['panels']}")
        first_tile = text.value(f"select i1 {split}, i64 0, i64 %begin")
        last_tile = text.value(f"select i1 {split}, i64 {tiles}, i64 %end")
        counted(
            text,
            first_panel,
            last_panel,
            1,
            lambda panel: self._panel(panel, first_tile, last_tile),
        )

    def _panel(self, panel: str, first: str, last: str) -> None:
        text, size = self.text, self.size
        group = text.value(f"udiv i64 {panel}, {size['group_panels']}")
        within = text.value(f"urem i64 {panel}, {size['group_panels']}")
        offset = text.value(f"mul i64 {panel}, {size['panel_floats']}")
        offset = text.value(f"add i64 {offset}, {size['first_panel']}")
        weights = text.value(f"getelementptr float, ptr {self.weights}, i64 {offset}")
        inputs = text.value(f"mul i64 {group}, {size['inner']}")
        x = text.value(f"getelementptr float, ptr {self.x}, i64 {inputs}")
        inside = text.value(f"mul i64 {within}, {self.width}")
        outputs = text.value(f"mul i64 {group}, {size['group_outputs']}")
        channel = text.value(f"add i64 {outputs}, {inside}")
        left = text.value(f"sub i64 {size['group_outputs']}, {inside}")
        channels = text.intrinsic("smin", "i64", [left, str(self.width)])

        def one(tile: str) -> None:
            pixel = text.value(f"mul i64 {tile}, {self.tile.rows}")
            rest = text.value(f"sub i64 {size['pixels']}, {pixel}")
            pixels = text.intrinsic("smin", "i64", [rest, str(self.tile.rows)])
            sizes = f"ptr {self.memory}, ptr %sizes, i64 {pixel}"
            text.line(
                f"call void @{self.name}(ptr {x}, ptr {weights}, ptr {self.weights}, {sizes})"
            )
            self.write(Finished(self.memory, pixel, pixels, channel, channels))

        counted(text, first, last, 1, one)


class _Tile:
    """The sums of one tile, in registers, then in memory."""

    def __init__(self, text: Text, tile: PixelTile) -> None:
        self.text, self.tile = text, tile
        self.size = load_sizes(text, SIZES)
        self.kind = f"<{tile.lanes} x float>"
        self.width = tile.vectors * tile.lanes
        self.sums = [[text.slot(self.kind) for _ in range(tile.vectors)] for _ in range(tile.rows)]
        self.places = {name: text.slot("i32", _BATCH) for name in ("row", "high", "wide")}

    def _whole(self, operation: str, left: str, right: str) -> str:
        return self.text.value(f"{operation} i64 {left}, {right}")

    def run(self) -> None:
        """Sums of one tile, from the bias on."""
        text, tile, x, weights, pixel = self.text, self.tile, "%x", "%weights", "%pixel"
        for vector in range(tile.vectors):
            at = text.value(f"getelementptr float, ptr {weights}, i64 {vector * tile.lanes}")
            bias = text.value(f"load {self.kind}, ptr {at}, align 4")
            for row in range(tile.rows):
                text.line(f"store {self.kind} {bias}, ptr {self.sums[row][vector]}")
        first = text.value(f"getelementptr float, ptr {weights}, i64 {self.width}")
        slot = text.slot("ptr")
        text.line(f"store ptr {first}, ptr {slot}")
        if tile.point:
            self._tap(self._same_places(x, pixel), slot, self.size["inner"])
        else:
            self._windows(x, pixel, slot)
        self._spill()

    def _same_places(self, x: str, pixel: str) -> list[str]:
        """The input channels at the places of a tile's pixels; past the last one, those of the last."""
        text, size = self.text, self.size
        last = text.value(f"sub i64 {size['pixels']}, 1")
        rows = []
        for row in range(self.tile.rows):
            place = text.intrinsic("smin", "i64", [text.value(f"add i64 {pixel}, {row}"), last])
            rows.append(
                text.value(
                    f"getelementptr float, ptr {x}, i64 {self._whole('mul', place, size['pixel_stride'])}"
                )
            )
        return rows

    def _windows(self, x: str, pixel: str, slot: str) -> None:
        """All taps; those of one line lie behind each other, and are one run where no window of the tile leaves the image.

        Where none leaves it above or below either, each pixel's numbers are found once: taps are as far apart for all of them.
        """
        text, size = self.text, self.size
        self._find_places(pixel)
        line = text.value(f"mul i64 {size['taps_wide']}, {size['inner']}")
        stays = self._stays("wide")
        inside, whole = self._all(self._stays("high"), stays), self._is_whole(stays)
        steps = text.value(f"select i1 {whole}, i64 1, i64 {size['taps_wide']}")
        length = text.value(f"select i1 {whole}, i64 {line}, i64 {size['inner']}")
        found = text.slot("ptr", _BATCH)

        def tap(high: str, wide: str) -> None:
            first = text.value(f"icmp eq i64 {text.value(f'or i64 {high}, {wide}')}, 0")
            known = text.value(f"xor i1 {first}, true")
            known = text.value(f"and i1 {known}, {inside}")
            find, go = text.label("find"), text.label("go")
            text.line(f"br i1 {known}, label %{go}, label %{find}")
            text.begin_block(find)
            text.line(f"store <{_BATCH} x ptr> {self._window(x, high, wide)}, ptr {found}")
            text.line(f"br label %{go}")
            text.begin_block(go)
            self._tap(self._moved(found, inside, high, wide), slot, length)

        def line_of_taps(high: str) -> None:
            counted(text, "0", steps, 1, lambda wide: tap(high, wide))

        counted(text, "0", size["taps_high"], 1, line_of_taps)

    def _moved(self, found: str, inside: str, high: str, wide: str) -> list[str]:
        """Each pixel's numbers under a tap: what was found for it, or for the first one and moved."""
        text, size = self.text, self.size
        line = self._whole("mul", self._whole("mul", high, size["dilation_high"]), size["wide"])
        place = self._whole("add", line, self._whole("mul", wide, size["dilation_wide"]))
        offset = self._whole("mul", place, size["pixel_stride"])
        offset = text.value(f"select i1 {inside}, i64 {offset}, i64 0")
        rows = []
        for row in range(self.tile.rows):
            at = text.value(f"getelementptr ptr, ptr {found}, i64 {row}")
            pointer = text.value(f"load ptr, ptr {at}")
            rows.append(text.value(f"getelementptr float, ptr {pointer}, i64 {offset}"))
        return rows

    def _stays(self, side: str) -> str:
        """Whether no window of the tile leaves the image on this side."""
        text, size, kind = self.text, self.size, f"<{_BATCH} x i32>"
        start = text.value(f"load {kind}, ptr {self.places[side]}, align 64")
        last = self._whole("sub", size[f"taps_{side}"], "1")
        reach = self._whole("mul", last, size[f"dilation_{side}"])
        room = self._whole("sub", self._whole("sub", size[side], "1"), reach)
        # negative ones are large
        over = text.value(f"icmp ugt {kind} {start}, {self._spread(room)}")
        rows = text.value(
            f"shufflevector <{_BATCH} x i1> {over}, <{_BATCH} x i1> poison, <{self.tile.rows} x i32> <"
            + ", ".join(f"i32 {row}" for row in range(self.tile.rows))
            + ">"
        )
        any_over = text.value(
            f"call i1 @llvm.vector.reduce.or.v{self.tile.rows}i1(<{self.tile.rows} x i1> {rows})"
        )
        text.declare(
            f"declare i1 @llvm.vector.reduce.or.v{self.tile.rows}i1(<{self.tile.rows} x i1>)"
        )
        fits = text.value(f"icmp sge i64 {room}, 0")
        return self._all(fits, text.value(f"xor i1 {any_over}, true"))

    def _is_whole(self, stays: str) -> str:
        """Whether the taps of a line are one run of memory for every pixel: neighbours, and none beside the image."""
        text, size = self.text, self.size
        dense = text.value(f"icmp eq i64 {size['inner']}, {size['pixel_stride']}")
        near = text.value(f"icmp eq i64 {size['dilation_wide']}, 1")
        return self._all(dense, near, stays)

    def _all(self, first: str, *others: str) -> str:
        for other in others:
            first = self.text.value(f"and i1 {first}, {other}")
        return first

    def _spread(self, value: str) -> str:
        text, kind = self.text, f"<{_BATCH} x i32>"
        narrow = text.value(f"trunc i64 {value} to i32")
        first = text.value(f"insertelement {kind} poison, i32 {narrow}, i64 0")
        return text.value(
            f"shufflevector {kind} {first}, {kind} poison, <{_BATCH} x i32> zeroinitializer"
        )

    def _find_places(self, pixel: str) -> None:
        """Where the windows of a tile's pixels begin: the row of their image, and coordinates in it."""
        text, size = self.text, self.size
        area = text.value(f"mul i64 {size['out_high']}, {size['out_wide']}")
        image, inside = (
            text.value(f"udiv i64 {pixel}, {area}"),
            text.value(f"urem i64 {pixel}, {area}"),
        )
        y = text.value(f"udiv i64 {inside}, {size['out_wide']}")
        z = text.value(f"urem i64 {inside}, {size['out_wide']}")
        for row in range(self.tile.rows):
            high = text.value(
                f"sub i64 {self._whole('mul', y, size['stride_high'])}, {size['pad_high']}"
            )
            wide = text.value(
                f"sub i64 {self._whole('mul', z, size['stride_wide'])}, {size['pad_wide']}"
            )
            base = text.value(f"mul i64 {image}, {size['high']}")
            for name, value in (("row", base), ("high", high), ("wide", wide)):
                narrow = text.value(f"trunc i64 {value} to i32")
                at = text.value(f"getelementptr i32, ptr {self.places[name]}, i64 {row}")
                text.line(f"store i32 {narrow}, ptr {at}")
            y, z, image = self._next_place(y, z, image)

    def _next_place(self, y: str, z: str, image: str) -> tuple[str, str, str]:
        text, size = self.text, self.size
        z = text.value(f"add i64 {z}, 1")
        over = text.value(f"icmp eq i64 {z}, {size['out_wide']}")
        z = text.value(f"select i1 {over}, i64 0, i64 {z}")
        y = text.value(f"add i64 {y}, {text.value(f'zext i1 {over} to i64')}")
        past = text.value(f"icmp eq i64 {y}, {size['out_high']}")
        y = text.value(f"select i1 {past}, i64 0, i64 {y}")
        image = text.value(f"add i64 {image}, {text.value(f'zext i1 {past} to i64')}")
        more = text.value(
            f"mul i64 {image}, {self._whole('mul', size['out_high'], size['out_wide'])}"
        )
        # past the last pixel: any that exists
        outside = text.value(f"icmp uge i64 {more}, {size['pixels']}")
        return y, z, text.value(f"select i1 {outside}, i64 0, i64 {image}")

    def _window(self, x: str, tap_high: str, tap_wide: str) -> str:
        """The input channels of each pixel under one tap; zeros outside of the image."""
        text, size, kind, spread = self.text, self.size, f"<{_BATCH} x i32>", self._spread
        base, *starts = (
            text.value(f"load {kind}, ptr {self.places[n]}, align 64")
            for n in ("row", "high", "wide")
        )
        moved = []
        for start, tap, name in zip(starts, (tap_high, tap_wide), ("high", "wide"), strict=True):
            step = spread(text.value(f"mul i64 {tap}, {size[f'dilation_{name}']}"))
            moved.append(text.value(f"add {kind} {start}, {step}"))
        tests = [
            text.value(f"icmp ult {kind} {m}, {spread(size[name])}")
            for m, name in zip(moved, ("high", "wide"), strict=True)
        ]
        inside = text.value(f"and <{_BATCH} x i1> {tests[0]}, {tests[1]}")
        line = text.value(f"add {kind} {base}, {moved[0]}")
        rows = text.value(f"mul {kind} {line}, {spread(size['wide'])}")
        place = text.value(f"add {kind} {rows}, {moved[1]}")
        offset = text.value(f"mul {kind} {place}, {spread(size['pixel_stride'])}")
        wide = text.value(f"sext {kind} {offset} to <{_BATCH} x i64>")
        pointers = text.value(f"getelementptr float, ptr {x}, <{_BATCH} x i64> {wide}")
        zeros = text.value(f"insertelement <{_BATCH} x ptr> poison, ptr %zeros, i64 0")
        zeros = text.value(
            f"shufflevector <{_BATCH} x ptr> {zeros}, <{_BATCH} x ptr> poison, <{_BATCH} x i32> zeroinitializer"
        )
        return text.value(
            f"select <{_BATCH} x i1> {inside}, <{_BATCH} x ptr> {pointers}, <{_BATCH} x ptr> {zeros}"
        )

    def _tap(self, rows: list[str], slot: str, length: str) -> None:
        """Add the products of a run of memory: for each input channel, a vector of weights times a number per pixel."""
        text, tile, kind = self.text, self.tile, self.kind

        def channel(number: str) -> None:
            at = text.value(f"load ptr, ptr {slot}")
            weights = []
            for vector in range(tile.vectors):
                place = text.value(f"getelementptr float, ptr {at}, i64 {vector * tile.lanes}")
                weights.append(text.value(f"load {kind}, ptr {place}, align 4"))
            for row, pointer in enumerate(rows):
                place = text.value(f"getelementptr float, ptr {pointer}, i64 {number}")
                one = text.value(f"load float, ptr {place}, align 4")
                first = text.value(f"insertelement {kind} poison, float {one}, i64 0")
                value = text.value(
                    f"shufflevector {kind} {first}, {kind} poison, <{tile.lanes} x i32> zeroinitializer"
                )
                for vector in range(tile.vectors):
                    total = text.value(f"load {kind}, ptr {self.sums[row][vector]}")
                    total = text.intrinsic("fma", kind, [value, weights[vector], total])
                    text.line(f"store {kind} {total}, ptr {self.sums[row][vector]}")
            after = text.value(f"getelementptr float, ptr {at}, i64 {self.width}")
            text.line(f"store ptr {after}, ptr {slot}")

        counted(text, "0", length, 1, channel)

    def _spill(self) -> None:
        text, tile = self.text, self.tile
        for row in range(tile.rows):
            for vector in range(tile.vectors):
                total = text.value(f"load {self.kind}, ptr {self.sums[row][vector]}")
                place = row * self.width + vector * tile.lanes
                at = text.value(f"getelementptr float, ptr %memory, i64 {place}")
                text.line(f"store {self.kind} {total}, ptr {at}, align 4")
