"""native.codegen.llvm.epilogue: what follows a convolution pixel by pixel, computed on each tile while it is in the cache.

In: a loop nest over the result of a convolution. Out: the same statements in terms of (pixel, channel), or None where they
cannot be: the convolution's result is then stored, and the nest runs after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from argand.native.codegen.llvm.control import counted
from argand.native.codegen.llvm.dense import Finished, Write
from argand.native.codegen.llvm.emit import Emitter
from argand.native.codegen.llvm.scope import Scope
from argand.native.codegen.target import Target
from argand.native.codegen.text import Text
from argand.native.ir import loops as ir
from argand.native.ir.affine import Affine, Var
from argand.native.ir.types import DType
from argand.support.dataclass import replace

PIXEL: Final = 0
CHANNEL: Final = 1
PLACE: Final = 2  # where row and channel meet in the memory of a tile, less the channel
FIRST_STEP: Final = 3  # variables from here on: the pixel times one of the epilogue's steps


class Epilogue(NamedTuple):
    """Statements per pixel and channel; buffer ``source`` is the tile.

    How far apart two pixels are in a buffer is known at run time only, so that convolutions with other channels share the code.
    """

    kernel: ir.Kernel
    source: int
    # elements from pixel to pixel; the kernel's variables FIRST_STEP and so on
    steps: tuple[int, ...]


def plain_epilogue(channels: int) -> Epilogue:
    """The result as it is."""
    index = Affine(0, ((PIXEL, channels), (CHANNEL, 1)))
    body = (ir.Load(0, DType.F32, 0, _place()), ir.Store(DType.F32, 1, index, 0))
    return _with_steps(ir.Kernel((DType.F32, DType.F32), (), body), 0)


def as_epilogue(
    kernel: ir.Kernel | ir.Contraction, source: int, channels: int, pixels: int
) -> Epilogue | None:
    """A nest that reads a convolution's result in buffer ``source`` once for each element, as an epilogue of it."""
    if isinstance(kernel, ir.Contraction):
        return None
    loops = [s for s in kernel.body if isinstance(s, ir.Loop)]
    if (
        len(loops) != 1
        or kernel.scratch
        or kernel.vector is not None
        or not loops[0].vector
        or loops[0].limit
    ):
        return None
    loop, before = loops[0], tuple(s for s in kernel.body if not isinstance(s, ir.Loop))
    if not all(isinstance(s, ir.Literal) for s in before):
        return None
    body = (*before, *loop.body)
    plain = ir.Literal | ir.Load | ir.Compute | ir.Store
    if not all(isinstance(s, plain) and not (isinstance(s, ir.Load) and s.indirect) for s in body):
        return None
    if any(isinstance(s, ir.Compute) and s.op in ("uniform", "normal") for s in body):
        return None
    read = {s.index for s in body if isinstance(s, ir.Load) and s.buffer == source}
    if len(read) != 1 or any(isinstance(s, ir.Store) and s.buffer == source for s in body):
        return None
    rename = _pixel_form(kernel, loop, read.pop(), channels, pixels)
    if rename is None:
        return None
    try:
        return _with_steps(
            ir.Kernel(kernel.buffers, (), tuple(_renamed(s, source, rename) for s in body)), source
        )
    except _NoForm:
        return None


def _with_steps(kernel: ir.Kernel, source: int) -> Epilogue:
    """Multiples of the pixel become variables."""
    steps: dict[int, Var] = {}

    def step(index: Affine) -> Affine:
        factor = index.coefficient(PIXEL)
        if not factor:
            return index
        var = steps.setdefault(factor, FIRST_STEP + len(steps))
        rest = tuple((v, c) for v, c in index.terms if v != PIXEL)
        return Affine(index.constant, (*rest, (var, 1)))

    body = tuple(
        replace(s, index=step(s.index)) if isinstance(s, ir.Load | ir.Store) else s
        for s in kernel.body
    )
    return Epilogue(replace(kernel, body=body), source, tuple(steps))


class _NoForm(Exception):
    """An index that is no sum of multiples of pixel and channel."""


def _place() -> Affine:
    return Affine(0, ((CHANNEL, 1), (PLACE, 1)))


def _pixel_form(
    kernel: ir.Kernel, loop: ir.Loop, read: Affine, channels: int, pixels: int
) -> Callable[[Affine], Affine] | None:
    """From indices of the nest's variables to indices of pixel and channel, by how the result itself is read."""
    extents: dict[Var, int] = {**dict(kernel.outer), loop.var: loop.extent}
    if any(type(n) is not int for n in extents.values()) or read.constant:
        return None
    if set(read.variables()) != {v for v, n in extents.items() if n > 1}:
        return None
    if not kernel.outer and loop.extent == channels * pixels and read.coefficient(loop.var) == 1:
        return lambda index: _split_flat(index, loop.var, channels)
    if loop.extent != channels or read.coefficient(loop.var) != 1:
        return None
    weights: dict[Var, int] = {}
    for var, coefficient in read.terms:
        if var != loop.var:
            if coefficient % channels:
                return None
            weights[var] = coefficient // channels
    reach = 1 + sum((extents[v] - 1) * w for v, w in weights.items())
    return (lambda index: _rows_form(index, loop.var, weights)) if reach == pixels else None


def _split_flat(index: Affine, var: Var, channels: int) -> Affine:
    factor = index.coefficient(var)
    if any(v != var for v in index.variables()):
        raise _NoForm
    return Affine(index.constant, _terms(factor * channels, factor))


def _rows_form(index: Affine, channel: Var, weights: Mapping[Var, int]) -> Affine:
    factors = {index.coefficient(var) / weight for var, weight in weights.items()}
    if len(factors) > 1 or any(v != channel and v not in weights for v in index.variables()):
        raise _NoForm
    factor = factors.pop() if factors else 0
    if factor != int(factor):
        raise _NoForm
    return Affine(index.constant, _terms(int(factor), index.coefficient(channel)))


def _terms(pixel: int, channel: int) -> tuple[tuple[Var, int], ...]:
    return tuple((v, c) for v, c in ((PIXEL, pixel), (CHANNEL, channel)) if c)


def _renamed(
    statement: ir.Statement, source: int, rename: Callable[[Affine], Affine]
) -> ir.Statement:
    if isinstance(statement, ir.Load) and statement.buffer == source:
        return replace(statement, index=_place())
    if isinstance(statement, ir.Load | ir.Store):
        return replace(statement, index=rename(statement.index))
    return statement


def writer(
    text: Text,
    epilogue: Epilogue,
    target: Target,
    pointers: Mapping[int, str],
    width: int,
    lanes: tuple[int, ...],
    placed: Callable[[str], str] | None = None,
) -> Write:
    """What computes the epilogue of a finished tile, ``lanes`` channels at a time, and what is left by fewer.

    The steps are the last of the kernel's sizes: ``%size.step0`` and so on. ``placed``: which of all pixels one of the tile's is.
    """

    def write(tile: Finished) -> None:
        end = text.value(f"add i64 {tile.channel}, {tile.channels}")
        known = {**pointers, epilogue.source: tile.memory}

        def row(number: str) -> None:
            pixel = text.value(f"add i64 {tile.pixel}, {number}")
            pixel = placed(pixel) if placed else pixel
            start = text.value(f"mul i64 {number}, {width}")
            place = text.value(f"sub i64 {start}, {tile.channel}")
            steps = {
                FIRST_STEP + k: text.value(f"mul i64 {pixel}, %size.step{k}")
                for k, _ in enumerate(epilogue.steps)
            }
            outside = Scope({}, {PLACE: place, **steps})
            slot = ""
            for count in lanes:

                def some(channel: str, count: int = count) -> None:
                    scope = outside.inside(CHANNEL, channel, count)
                    emitter = Emitter("", epilogue.kernel, target, text.declarations)
                    emitter.text, emitter.pointers = text, dict(known)
                    emitter._block(epilogue.kernel.body, scope)

                slot = counted(text, "" if slot else tile.channel, end, count, some, slot)

        counted(text, "0", tile.pixels, 1, row)

    return write
