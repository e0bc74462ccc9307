"""native.codegen.llvm.convolutions: the convolutions of a graph as functions of its module, and as calls of them.

In: convolution nodes, each with the loop nest that becomes its epilogue or none. Out: ``ConvolutionCall``s. Functions are shared by all
convolutions of a class: tile or window, epilogue.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, Final, NamedTuple, final

from argand.native.codegen.llvm import dense, depthwise, packing, spread
from argand.native.codegen.llvm.control import function
from argand.native.codegen.llvm.epilogue import Epilogue, as_epilogue, plain_epilogue, writer
from argand.native.codegen.llvm.layouts import Layout, layout_of, run_sizes
from argand.native.codegen.target import Target
from argand.native.codegen.text import Text
from argand.native.ir import loops as ir
from argand.native.ir.convolve import Convolve
from argand.native.ir.loops import Literal, walk
from argand.native.ir.strides import source_of
from argand.native.ir.tensor import ExternCall, Node
from argand.native.schedule.nest import LoopNest, LoopNests
from argand.support import events
from argand.support.dataclass import dataclass

_GRAIN: Final = 30_000  # vector instructions that are worth a thread


class UnitsCall(NamedTuple):
    """A call of a function: how many units, of which at least ``grain`` go to a thread, and its sizes."""

    function: str
    total: int
    grain: int
    sizes: tuple[int, ...]


@final
@dataclass(frozen=True, slots=True, eq=False)
class ConvolutionCall:
    """One convolution: weights packed, then the tiles. Buffers of the second: image, packed weights, then ``owners``."""

    node: Node  # the extern
    pack: UnitsCall
    floats: int  # packed
    run: UnitsCall
    owners: tuple[Node, ...]
    origins: tuple[str, ...] = ()  # the user's lines it computes


def is_convolution(node: object) -> bool:
    """Whether an extern node is a convolution of ours."""
    return (
        isinstance(node, Node)
        and isinstance(node.attribute, ExternCall)
        and isinstance(node.attribute.target, Convolve)
    )


def find_epilogues(nests: LoopNests) -> dict[LoopNest, Node]:
    """The nests that can run inside of a convolution: its only readers, element by element."""
    demand, readers = nests.schedule.demand, dict[Node, list[Any]]()
    if demand.writes:
        return {}  # who reads an input before it is overwritten may not move
    for output in demand.outputs:
        if isinstance(output, Node):
            readers.setdefault(source_of(output), []).append(output)
    for item in nests.work:
        read = item.owners if isinstance(item, LoopNest) else map(source_of, demand.inputs(item))
        for owner in dict.fromkeys(read):
            readers.setdefault(owner, []).append(item)
    found: dict[LoopNest, Node] = {}
    for value in demand.nodes:
        if value.op != "item" or not is_convolution(value.inputs[0]):
            continue
        users = readers.get(value, [])
        if (
            len(users) == 1
            and isinstance(users[0], LoopNest)
            and users[0] not in found
            and epilogue_of(users[0], value)
        ):
            found[users[0]] = value.inputs[0]
    return found


def epilogue_of(nest: LoopNest, value: Node) -> Epilogue | None:
    """A nest as the epilogue of the convolution whose result it reads."""
    call: Any = value.inputs[0].attribute
    spec: Convolve = call.target
    return as_epilogue(nest.kernel, nest.owners.index(value), spec.outputs, spec.pixels)


@final
@dataclass(slots=True, eq=False)
class Convolutions:
    """The functions that the convolutions of one module need."""

    target: Target
    declarations: dict[str, None]
    functions: dict[object, tuple[str, str]] = field(default_factory=dict)  # by class: name, text

    def call(self, node: Node, item: Node, nest: LoopNest | None) -> ConvolutionCall:
        """The steps of one convolution; ``item`` is its result."""
        extern: Any = node.attribute
        spec: Convolve = extern.target
        epilogue = epilogue_of(nest, item) if nest else None
        owners = nest.owners if nest else (item, item)
        epilogue = epilogue or plain_epilogue(spec.outputs)
        others = tuple(o for k, o in enumerate(owners) if k != epilogue.source)
        layout = layout_of(spec, self.target)
        widths = _widths(spec, layout.lanes)
        name = self._function(spec, layout, epilogue, widths)
        biased, scaled = extern.args[2:4]
        pack = self._pack(scaled is not None, biased is not None, bool(layout.parts))
        events.count("native.convolution", detail=name)
        return ConvolutionCall(
            node,
            UnitsCall(
                pack,
                layout.panels,
                max(1, _GRAIN // max(layout.panel_floats, 1)),
                layout.pack_sizes,
            ),
            layout.floats,
            UnitsCall(
                name,
                layout.units,
                max(1, _GRAIN // max(layout.work, 1)),
                run_sizes(layout, epilogue.steps),
            ),
            others,
        )

    def _function(
        self, spec: Convolve, layout: Layout, epilogue: Epilogue, widths: tuple[int, ...]
    ) -> str:
        numbers = tuple(repr(s.value) for s in walk(epilogue.kernel.body) if isinstance(s, Literal))
        statements = (epilogue.kernel, epilogue.source, len(epilogue.steps), numbers)
        key = (layout.shape, bool(layout.parts), statements, widths)
        if key not in self.functions:
            operations = dict.fromkeys(
                s.op for s in epilogue.kernel.body if isinstance(s, ir.Compute)
            )
            kind = "depthwise" if spec.depthwise else f"{'up' * spec.transposed}convolution"
            name = "_".join(
                (f"{kind}{len(self.functions)}", *(op for op in operations if op != "cast"))
            )
            self.functions[key] = (name, self._emit(name, layout, epilogue, widths))
        return self.functions[key][0]

    def _emit(self, name: str, layout: Layout, epilogue: Epilogue, widths: tuple[int, ...]) -> str:
        text = Text(self.declarations)
        count = len(epilogue.kernel.buffers) + 1
        for position in range(count):
            text.entry.append(f"  %g{position} = getelementptr ptr, ptr %buffers, i64 {position}")
            text.entry.append(f"  %b{position} = load ptr, ptr %g{position}")
        others = [k for k in range(len(epilogue.kernel.buffers)) if k != epilogue.source]
        pointers = {k: f"%b{2 + place}" for place, k in enumerate(others)}
        steps = tuple(f"step{k}" for k, _ in enumerate(epilogue.steps))
        first = layout.parts[0].sizes if layout.parts else layout.sizes
        dense.load_sizes(text, steps, len(first))
        placed = spread.placing(text) if layout.parts else None
        write = writer(text, epilogue, self.target, pointers, layout.width, widths, placed)
        if isinstance(layout.shape, dense.PixelTile):
            dense.emit_dense(text, layout.shape, "%b0", "%b1", write)
        else:
            depthwise.emit_depthwise(text, layout.shape, "%b0", "%b1", write)
        given = "(ptr %buffers, ptr %sizes, i64 %begin, i64 %end)"
        if not layout.parts:
            return function(text, f"define void @{name}{given}")
        text.declare(function(text, f"define internal void @{name}.part{given}"))
        return spread.emit_ranges(name, f"{name}.part", self.declarations)

    def _pack(self, scaled: bool, biased: bool, in_parts: bool) -> str:
        key = ("pack", scaled, biased, in_parts)
        if key not in self.functions:
            name = f"pack{'_scaled' * scaled}{'_biased' * biased}"
            if in_parts:
                inner = self._pack(scaled, biased, False)
                text = spread.emit_ranges(f"{name}_parts", inner, self.declarations)
                self.functions[key] = (f"{name}_parts", text)
            else:
                text = packing.emit_packing(name, scaled, biased, self.declarations)
                self.functions[key] = (name, text)
        return self.functions[key][0]


def _widths(spec: Convolve, lanes: int) -> tuple[int, ...]:
    """Vectors of an epilogue: whole ones, and what is left of the channels of a group by fewer lanes."""
    if spec.depthwise:
        return (lanes,)
    rest = spec.outputs // spec.groups % lanes
    if not rest:
        return (lanes,)
    return (lanes, lanes // 2) if rest * 2 == lanes else (lanes, max(lanes // 4, 2), 1)
