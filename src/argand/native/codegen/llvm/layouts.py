"""native.codegen.llvm.layouts: how convolutions are cut into tiles and panels, for a target.

In: a convolution. Out: ``Layout``: what its kernel is made for, and the numbers that its two functions are called with.

The results of a transposed convolution that meet the same taps are a convolution of stride 1 (``Convolve.phases``). All
of them are one call: a row of sizes each, in this order: what a plain kernel gets, where results lie, which units are its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from argand.native.codegen.llvm import dense, depthwise
from argand.native.codegen.target import Target
from argand.native.ir.convolve import Convolve

# Rows and vectors of a tile, best first where they waste the same; what fits into 32 and into 16 registers. Numbers of
# pixels want registers too: 28 sums and 4 weights leave none, every product then loads its own, and loads are the limit.
_WIDE_TILES: Final = ((10, 2), (6, 4), (8, 3), (8, 2), (12, 2), (12, 1))
_WIDE_POINTS: Final = ((6, 4), (8, 3), (10, 2), (8, 2), (12, 2), (12, 1))
_NARROW_TILES: Final = ((6, 2), (4, 3), (12, 1))
_WASTED: Final = 1.03
_NO_LIMIT: Final = 1 << 40
_ALIGNED: Final = 16


class Layout(NamedTuple):
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
    parts: tuple[Layout, ...] = ()  # of a transposed convolution, one for each phase


def layout_of(spec: Convolve, target: Target) -> Layout:
    """How a convolution is cut for a machine."""
    if spec.transposed:
        return _transposed(spec, target)
    if spec.depthwise:
        return _depthwise(spec, target)
    tile = _tile(spec.point, spec.outputs // spec.groups, [spec.pixels], target)
    zeros = _zeros(spec)
    return _dense(spec, target, tile, zeros, zeros)


def _tile(point: bool, outputs: int, pixels: Sequence[int], target: Target) -> dense.PixelTile:
    """The tile that wastes least at the edges; the first of those that waste little more, since each is a function more to compile."""
    lanes = target.vector_bytes // 4
    wide = _WIDE_POINTS if point else _WIDE_TILES
    tiles = wide if target.vector_bytes == 64 else _NARROW_TILES

    def cost(shape: tuple[int, int]) -> int:
        rows, vectors = shape
        padded = sum(-(-count // rows) * rows for count in pixels)
        return padded * -(-outputs // (vectors * lanes)) * vectors * lanes

    least = min(map(cost, tiles))
    rows, vectors = next(shape for shape in tiles if cost(shape) <= least * _WASTED)
    return dense.PixelTile(rows, vectors, lanes, point)


def _uneven(units: int, threads: int) -> float:
    return -(-units // threads) * threads / units


def _zeros(spec: Convolve) -> int:
    """Floats before the first panel, read where a window leaves the image."""
    inner = spec.inputs // spec.groups
    return -(-inner * spec.taps[1] // _ALIGNED) * _ALIGNED


def _dense(spec: Convolve, target: Target, tile: dense.PixelTile, first: int, zeros: int) -> Layout:
    width, inner, outputs = (
        tile.vectors * tile.lanes,
        spec.inputs // spec.groups,
        spec.outputs // spec.groups,
    )
    group_panels = -(-outputs // width)
    panels, taps = group_panels * spec.groups, spec.taps[0] * spec.taps[1]
    panel_floats = width * (1 + taps * inner)
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
        *spec.weight_place,
        zeros,
    )
    work = tile.rows * tile.vectors * taps * inner * (tiles if by_panels else panels)
    units = panels if by_panels else tiles
    floats = first + panels * panel_floats
    return Layout(
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


def _depthwise(spec: Convolve, target: Target) -> Layout:
    lanes = target.vector_bytes // 4
    while lanes > spec.outputs:
        lanes //= 2
    window = depthwise.Window(lanes, spec.taps[1], spec.stride[1], spec.dilation[1])
    blocks, first = -(-spec.outputs // lanes), _ALIGNED
    panel_floats = lanes * (1 + spec.taps[0] * spec.taps[1])
    high, wide = spec.image
    parts = target.threads if spec.batch < target.threads else 1
    part_lines = -(-spec.result[0] // parts)
    sizes = (
        *(blocks, spec.outputs, panel_floats, first, spec.taps[0], spec.stride[0], *spec.padding),
        *(spec.dilation[0], high, wide, *spec.result, parts, part_lines),
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
        *spec.weight_place,
        first,
    )
    work = spec.result[1] * spec.taps[0] * spec.taps[1]
    units = spec.batch * parts * part_lines * blocks
    floats = first + blocks * panel_floats
    return Layout(
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


def _transposed(spec: Convolve, target: Target) -> Layout:
    """The phases one after the other, in the same tiles, with panels behind each other."""
    phases = spec.phases
    inner = [phase.part for phase in phases]
    tile = _tile(
        all(part.point and part.result == spec.image for part in inner),
        spec.outputs // spec.groups,
        [part.pixels for part in inner],
        target,
    )
    first, parts = max(map(_zeros, inner)), list[Layout]()
    for part in inner:
        parts.append(_dense(part, target, tile, first, 0 if parts else first))
        first = parts[-1].floats
    return parts[0]._replace(
        panels=sum(part.panels for part in parts),
        panel_floats=max(part.panel_floats for part in parts),
        floats=first,
        pack_sizes=_ranges([part.pack_sizes for part in parts], [part.panels for part in parts]),
        units=sum(part.units for part in parts),
        work=max(part.work for part in parts),
        sizes=(),
        parts=tuple(
            part._replace(sizes=(*part.sizes, *phase.first, *phase.step, *spec.result))
            for part, phase in zip(parts, phases, strict=True)
        ),
    )


def run_sizes(layout: Layout, steps: tuple[int, ...]) -> tuple[int, ...]:
    """What the kernel of a layout is called with; ``steps`` of its epilogue come last."""
    if not layout.parts:
        return (*layout.sizes, *steps)
    rows = [(*part.sizes, *steps) for part in layout.parts]
    return _ranges(rows, [part.units for part in layout.parts])


def _ranges(rows: Sequence[tuple[int, ...]], counts: Sequence[int]) -> tuple[int, ...]:
    """Rows of sizes, each with the first of its units and their number behind it, after how many and how long they are."""
    begin, found = 0, list[int]()
    for row, count in zip(rows, counts, strict=True):
        found += (*row, begin, count)
        begin += count
    return (len(rows), len(rows[0]) + 2, *found)
