"""native.codegen.llvm.packing: the kernel that lays out weights as panels (see ``dense``).

In: weights in any strides, a scale and a bias per output channel or none. Out: packed memory.
"""

from __future__ import annotations

from typing import Final

from argand.native.codegen.llvm.control import counted
from argand.native.codegen.llvm.dense import load_sizes
from argand.native.codegen.text import Text

SIZES: Final = (
    *(
        "group_panels",
        "group_outputs",
        "inner",
        "taps_high",
        "taps_wide",
        "panel_floats",
        "first_panel",
        "width",
        "limit",
    ),
    *("stride_output", "stride_inner", "stride_high", "stride_wide", "stride_group", "offset"),
    "zeros",
)


def emit_packing(name: str, scaled: bool, biased: bool, declarations: dict[str, None]) -> str:
    """A function over ranges of panels; buffers: weight, packed, then scale and bias where there are any."""
    text = Text(declarations)
    buffers = []
    for position in range(2 + scaled + biased):
        text.entry.append(f"  %g{position} = getelementptr ptr, ptr %buffers, i64 {position}")
        text.entry.append(f"  %b{position} = load ptr, ptr %g{position}")
        buffers.append(f"%b{position}")
    scale = buffers[2] if scaled else ""
    bias = buffers[-1] if biased else ""
    _Packing(text, buffers[0], buffers[1], scale, bias).run()
    lines = [*text.entry, "  br label %start", "start:", *text.lines, "  ret void", "}"]
    head = f"define void @{name}(ptr %buffers, ptr %sizes, i64 %begin, i64 %end) {{\nentry:"
    return "\n".join([head, *lines])


class _Packing:
    def __init__(self, text: Text, weight: str, packed: str, scale: str, bias: str) -> None:
        self.text, self.weight, self.packed, self.scale, self.bias = (
            text,
            weight,
            packed,
            scale,
            bias,
        )
        self.size = load_sizes(text, SIZES)

    def run(self) -> None:
        text = self.text
        first = text.value("icmp eq i64 %begin, 0")
        zeros = text.value(f"select i1 {first}, i64 {self.size['zeros']}, i64 0")
        counted(text, "0", zeros, 1, lambda place: self._store(place, "0.0"))
        counted(text, "%begin", "%end", 1, self._panel)

    def _store(self, place: str, value: str) -> None:
        at = self.text.value(f"getelementptr float, ptr {self.packed}, i64 {place}")
        self.text.line(f"store float {value}, ptr {at}")

    def _whole(self, operation: str, left: str, right: str) -> str:
        return self.text.value(f"{operation} i64 {left}, {right}")

    def _panel(self, panel: str) -> None:
        text, size = self.text, self.size
        group = text.value(f"udiv i64 {panel}, {size['group_panels']}")
        within = text.value(f"urem i64 {panel}, {size['group_panels']}")
        start = text.value(f"mul i64 {panel}, {size['panel_floats']}")
        start = text.value(f"add i64 {start}, {size['first_panel']}")
        inside = text.intrinsic(
            "smin", "i64", [self._whole("mul", within, size["width"]), size["limit"]]
        )
        base = text.value(f"add i64 {self._whole('mul', group, size['group_outputs'])}, {inside}")
        left = text.value(f"sub i64 {size['group_outputs']}, {inside}")

        origin = self._whole("mul", group, size["stride_group"])
        origin = self._whole("add", origin, size["offset"])

        def channel(number: str) -> None:
            real = text.value(f"icmp slt i64 {number}, {left}")
            output = text.value(f"add i64 {base}, {number}")
            output = text.value(f"select i1 {real}, i64 {output}, i64 {base}")
            factor = "1.0" if not self.scale else self._number(self.scale, output)
            factor = text.value(f"select i1 {real}, float {factor}, float 0.0")
            shift = "0.0" if not self.bias else self._number(self.bias, output)
            shift = text.value(f"select i1 {real}, float {shift}, float 0.0")
            place = text.value(f"add i64 {start}, {number}")
            self._store(place, shift)
            from_ = self._whole("mul", output, size["stride_output"])
            from_ = self._whole("add", from_, origin)
            slot = text.slot("i64")
            text.line(f"store i64 {place}, ptr {slot}")
            self._weights(from_, slot, factor, real)

        counted(text, "0", size["width"], 1, channel)

    def _weights(self, start: str, slot: str, factor: str, real: str) -> None:
        """All weights of one output channel, tap by tap; of none where the panel is wider than the channels."""
        text, size = self.text, self.size

        def one(offset: str, number: str) -> None:
            at = text.value(f"add i64 {offset}, {self._whole('mul', number, size['stride_inner'])}")
            weight = self._number(self.weight, at)
            value = text.value(f"fmul float {weight}, {factor}")
            value = text.value(f"select i1 {real}, float {value}, float 0.0")
            place = text.value(f"add i64 {text.value(f'load i64, ptr {slot}')}, {size['width']}")
            text.line(f"store i64 {place}, ptr {slot}")
            self._store(place, value)

        def high(tap: str) -> None:
            line = text.value(f"add i64 {start}, {self._whole('mul', tap, size['stride_high'])}")

            def wide(other: str) -> None:
                offset = text.value(
                    f"add i64 {line}, {self._whole('mul', other, size['stride_wide'])}"
                )
                counted(text, "0", size["inner"], 1, lambda number: one(offset, number))

            counted(text, "0", size["taps_wide"], 1, wide)

        counted(text, "0", size["taps_high"], 1, high)

    def _number(self, memory: str, index: str) -> str:
        at = self.text.value(f"getelementptr float, ptr {memory}, i64 {index}")
        return self.text.value(f"load float, ptr {at}")
