"""native.codegen.llvm.convolutions: the convolutions of a graph as functions of its module, and as calls of them.

In: convolution nodes, each with the loop nest that becomes its epilogue or none. Out: ``ConvolutionCall``s. Functions are shared by all
convolutions of a class: tile or window, epilogue.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, final

from argand.native.codegen.llvm import dense, depthwise, packing
from argand.native.codegen.llvm.control import function
from argand.native.codegen.llvm.epilogue import Epilogue, as_epilogue, plain_epilogue, writer
from argand.native.codegen.target import Target
from argand.native.codegen.text import Text
from argand.native.ir import loops as ir
from argand.native.ir.convolve import Convolve
from argand.native.ir.loops import Literal, walk
from argand.native.ir.strides import source_of
from argand.native.ir.tensor import ExternCall, Node
from argand.native.schedule.nest import LoopNest, LoopNests
from argand.support import events

# Rows and vectors of a tile, best first where they waste the same; what fits into 32 and into 16 registers. Numbers of
# pixels want registers too: 28 sums and 4 weights leave none, every product then loads its own, and loads are the limit.
_WIDE_TILES: Final = ((10, 2), (6, 4), (8, 3), (12, 2), (12, 1))
_WIDE_POINTS: Final = ((6, 4), (8, 3), (10, 2), (12, 2), (12, 1))
_NARROW_TILES: Final = ((6, 2), (4, 3), (12, 1))
_NO_LIMIT: Final = 1 << 40
_GRAIN: Final = 30_000  # vector instructions that are worth a thread
_ALIGNED: Final = 16


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
        layout = _depthwise(spec, self.target) if spec.depthwise else _dense(spec, self.target)
        widths = _widths(spec, layout.lanes)
        name = self._function(spec, layout, epilogue, widths)
        biased, scaled = extern.args[2:4]
        pack = self._pack(scaled is not None, biased is not None)
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
                (*layout.sizes, *epilogue.steps),
            ),
            others,
        )

    def _function(
        self, spec: Convolve, layout: _Layout, epilogue: Epilogue, widths: tuple[int, ...]
    ) -> str:
        numbers = tuple(repr(s.value) for s in walk(epilogue.kernel.body) if isinstance(s, Literal))
        key = (layout.shape, epilogue.kernel, epilogue.source, len(epilogue.steps), numbers, widths)
        if key not in self.functions:
            operations = dict.fromkeys(
                s.op for s in epilogue.kernel.body if isinstance(s, ir.Compute)
            )
            kind = "depthwise" if spec.depthwise else "convolution"
            name = "_".join(
                (f"{kind}{len(self.functions)}", *(op for op in operations if op != "cast"))
            )
            self.functions[key] = (name, self._emit(name, layout, epilogue, widths))
        return self.functions[key][0]

    def _emit(self, name: str, layout: _Layout, epilogue: Epilogue, widths: tuple[int, ...]) -> str:
        text = Text(self.declarations)
        count = len(epilogue.kernel.buffers) + 1
        for position in range(count):
            text.entry.append(f"  %g{position} = getelementptr ptr, ptr %buffers, i64 {position}")
            text.entry.append(f"  %b{position} = load ptr, ptr %g{position}")
        others = [k for k in range(len(epilogue.kernel.buffers)) if k != epilogue.source]
        pointers = {k: f"%b{2 + place}" for place, k in enumerate(others)}
        steps = tuple(f"step{k}" for k, _ in enumerate(epilogue.steps))
        dense.load_sizes(text, steps, len(layout.sizes))
        write = writer(text, epilogue, self.target, pointers, layout.width, widths)
        if isinstance(layout.shape, dense.PixelTile):
            dense.emit_dense(text, layout.shape, "%b0", "%b1", write)
        else:
            depthwise.emit_depthwise(text, layout.shape, "%b0", "%b1", write)
        return function(
            text, f"define void @{name}(ptr %buffers, ptr %sizes, i64 %begin, i64 %end)"
        )

    def _pack(self, scaled: bool, biased: bool) -> str:
        key = ("pack", scaled, biased)
        if key not in self.functions:
            name = f"pack{'_scaled' * scaled}{'_biased' * biased}"
            self.functions[key] = (
                name,
                packing.emit_packing(name, scaled, biased, self.declarations),
            )
        return self.functions[key][0]


class _Layout(NamedTuple):
    """How a convolution is cut: what its kernel is made for, its panels and sizes."""

    shape: dense.PixelTile | depthwise.Window
    lanes: int
    width: int
    panels: int
    panel_floats: int
    floats: int
    pack_sizes: tuple[int, ...]
    sizes: tuple[int, ...]
    units: int
    work: int  # vector instructions of a unit


def _tile(spec: Convolve, target: Target) -> dense.PixelTile:
    """The tile that wastes least at the edges."""
    lanes = target.vector_bytes // 4
    outputs = spec.outputs // spec.groups
    wide = _WIDE_POINTS if spec.point else _WIDE_TILES
    tiles = wide if target.vector_bytes == 64 else _NARROW_TILES

    def cost(shape: tuple[int, int]) -> int:
        rows, vectors = shape
        return -(-spec.pixels // rows) * rows * -(-outputs // (vectors * lanes)) * vectors * lanes

    rows, vectors = min(tiles, key=cost)
    return dense.PixelTile(rows, vectors, lanes, spec.point)


def _uneven(units: int, threads: int) -> float:
    return -(-units // threads) * threads / units


def _dense(spec: Convolve, target: Target) -> _Layout:
    tile = _tile(spec, target)
    width, inner, outputs = (
        tile.vectors * tile.lanes,
        spec.inputs // spec.groups,
        spec.outputs // spec.groups,
    )
    group_panels = -(-outputs // width)
    panels, taps = group_panels * spec.groups, spec.taps[0] * spec.taps[1]
    panel_floats, first = (
        width * (1 + taps * inner),
        -(-inner * spec.taps[1] // _ALIGNED) * _ALIGNED,
    )
    tiles = -(-spec.pixels // tile.rows)
    by_panels = _uneven(panels, target.threads) < _uneven(tiles, target.threads)
    sizes = (
        *(
            spec.pixels,
            panels,
            group_panels,
            inner,
            spec.inputs,
            outputs,
            panel_floats,
            first,
            int(by_panels),
        ),
        *(*spec.taps, *spec.stride, *spec.padding, *spec.dilation, *spec.image, *spec.result),
    )
    pack_sizes = (
        group_panels,
        outputs,
        inner,
        *spec.taps,
        panel_floats,
        first,
        width,
        _NO_LIMIT,
        *spec.weight_strides,
    )
    work = tile.rows * tile.vectors * taps * inner * (tiles if by_panels else panels)
    units = panels if by_panels else tiles
    floats = first + panels * panel_floats
    return _Layout(
        shape=tile,
        lanes=tile.lanes,
        width=width,
        panels=panels,
        panel_floats=panel_floats,
        floats=floats,
        pack_sizes=pack_sizes,
        sizes=sizes,
        units=units,
        work=work,
    )


def _depthwise(spec: Convolve, target: Target) -> _Layout:
    lanes = target.vector_bytes // 4
    while lanes > spec.outputs:
        lanes //= 2
    window = depthwise.Window(lanes, spec.taps[1], spec.stride[1], spec.dilation[1])
    blocks, first = -(-spec.outputs // lanes), _ALIGNED
    panel_floats = lanes * (1 + spec.taps[0] * spec.taps[1])
    high, wide = spec.image
    sizes = (
        *(blocks, spec.outputs, panel_floats, first, spec.taps[0], spec.stride[0], *spec.padding),
        *(spec.dilation[0], high, wide, *spec.result),
    )
    limit = spec.outputs - lanes
    pack_sizes = (
        blocks,
        spec.outputs,
        1,
        *spec.taps,
        panel_floats,
        first,
        lanes,
        limit,
        *spec.weight_strides,
    )
    work = spec.result[1] * spec.taps[0] * spec.taps[1]
    units = spec.batch * spec.result[0] * blocks
    floats = first + blocks * panel_floats
    return _Layout(
        shape=window,
        lanes=lanes,
        width=lanes,
        panels=blocks,
        panel_floats=panel_floats,
        floats=floats,
        pack_sizes=pack_sizes,
        sizes=sizes,
        units=units,
        work=work,
    )


def _widths(spec: Convolve, lanes: int) -> tuple[int, ...]:
    """Vectors of an epilogue: whole ones, and what is left of the channels of a group by fewer lanes."""
    if spec.depthwise:
        return (lanes,)
    rest = spec.outputs // spec.groups % lanes
    if not rest:
        return (lanes,)
    return (lanes, lanes // 2) if rest * 2 == lanes else (lanes, max(lanes // 4, 2), 1)
