"""sizes.formulas: sizes of results that are no products of sizes of inputs.

In: an op and its arguments on fakes, with the table of symbols. The table learns the sizes of the
result, and the facts a case distinction relied upon (that a slice ends inside). An op without a row
only has sizes that are products, or its symbols are found out by the second trace and fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

import torch

from argand.sizes.expressions import Expr
from argand.sizes.table import SizeTable

Named = dict[str, Any]  # arguments by name, their integers expressed
_LARGE: Final = 1 << 62  # the end of a slice without one


def explain_sizes(table: SizeTable, func: Any, args: Sequence[Any], kwargs: Named) -> None:
    """Teach the table the sizes of what an op gave."""
    formula = FORMULAS.get(func._opname)
    if formula is not None:
        names, defaults = _signature(func)
        given = {**defaults, **dict(zip(names, args, strict=False)), **kwargs}
        formula(table, {name: table.expressed(value) for name, value in given.items()})


@cache
def _signature(func: Any) -> tuple[tuple[str, ...], Named]:
    rows = func._schema.arguments
    defaults = {row.name: row.default_value for row in rows if row.has_default_value()}
    return tuple(row.name for row in rows), defaults


def _shape(table: SizeTable, tensor: torch.Tensor) -> list[int]:
    return [table.express(n) for n in tensor.shape]


def _each(value: Any, count: int) -> list[int]:
    """One integer per dimension, of one or a list of them."""
    items = list(value) if isinstance(value, list | tuple) else [value]
    return items * count if len(items) == 1 else items


def _slice(table: SizeTable, named: Named) -> None:
    size = _shape(table, named["self"])[named["dim"]]
    learn_slice(table, size, named["start"], named["end"], named["step"])


def learn_slice(
    table: SizeTable, size: int, first: int | None, last: int | None, step: int
) -> None:
    """The size of ``[first:last:step]``, with the facts on which side of the ends they lie."""
    ends = []
    for value, default in ((first, 0), (last, size)):
        if value is None or value >= _LARGE:
            ends.append(default)
            continue
        end = value + size if table.decide("<", value, 0) else value
        if table.decide("<", end, 0):
            end = 0
        ends.append(size if table.decide(">", end, size) else end)
    start, end = map(table.learn, ends)
    by_data = Expr.of(end - start).symbols & table.unbacked  # those may be 0
    if table.decide("<=" if by_data else "<", start, end):
        table.learn((end - start + step - 1) // step)


def _select(table: SizeTable, named: Named) -> None:
    size, index = _shape(table, named["self"])[named["dim"]], named["index"]
    table.decide("<", index if index >= 0 else -index - 1, size)


def _split(table: SizeTable, named: Named) -> None:
    size = _shape(table, named["self"])[named["dim"]]
    part = named["split_size"]
    if table.decide(">", part, 0):
        count = -(-table.real(size) // table.real(part))
        table.decide("==", (size + part - 1) // part, count)
        table.learn(size - part * (count - 1))


def _unfold(table: SizeTable, named: Named) -> None:
    size = _shape(table, named["self"])[named["dimension"]]
    table.learn((size - named["size"]) // named["step"] + 1)


def _diagonal(table: SizeTable, named: Named) -> None:
    shape, offset = _shape(table, named["self"]), named["offset"]
    rows, columns = shape[named["dim1"]], shape[named["dim2"]]
    rows, columns = (rows, columns - offset) if offset >= 0 else (rows + offset, columns)
    table.learn(rows if table.decide("<=", rows, columns) else columns)


def _cat(table: SizeTable, named: Named) -> None:
    tensors = [tensor for tensor in named["tensors"] if tensor.dim() or tensor.numel()]
    if tensors and len({tensor.dim() for tensor in tensors}) == 1:
        table.learn(sum(_shape(table, tensor)[named["dim"]] for tensor in tensors))


def _pad(table: SizeTable, named: Named) -> None:
    padding = named["pad"] if "pad" in named else named["padding"]
    shape = _shape(table, named["self"])[::-1]
    for size, low, high in zip(shape, padding[::2], padding[1::2], strict=False):
        for side in (low, high):  # negative ones cut off
            table.decide(">=", side, 0)
        table.learn(size + low + high)


def _arange(table: SizeTable, named: Named) -> None:
    start, end, step = named.get("start", 0), named["end"], named.get("step", 1)
    if all(isinstance(value, int) for value in (start, end, step)) and step:
        table.learn(-((start - end) // step))


def _convolution(table: SizeTable, named: Named) -> None:
    shape, kernel = _shape(table, named["input"])[2:], _shape(table, named["weight"])[2:]
    names = ("stride", "padding", "dilation", "output_padding")
    options = [_each(named.get(name, 0), len(shape)) for name in names]
    for size, width, stride, padding, dilation, more in zip(shape, kernel, *options, strict=True):
        reach = dilation * (width - 1) + 1
        if named.get("transposed", False):
            table.learn((size - 1) * stride - 2 * padding + reach + more)
        else:
            _learn_windows(table, (size + 2 * padding - reach) // stride + 1)


def _learn_windows(table: SizeTable, count: int) -> None:
    table.decide(">=", count, 1)  # none at all is an error in eager
    table.learn(count)


def _pool(table: SizeTable, named: Named) -> None:
    kernel = named["kernel_size"]
    shape = _shape(table, named["self"])
    count = len(kernel) if isinstance(kernel, list) else 1
    options = [named["stride"] or kernel, named["padding"], named.get("dilation", 1), kernel]
    rows = zip(shape[-count:], *[_each(value, count) for value in options], strict=True)
    ceil = named.get("ceil_mode", False)
    for size, stride, padding, dilation, width in rows:
        reach = dilation * (width - 1) + 1
        out = (size + 2 * padding - reach + (stride - 1 if ceil else 0)) // stride + 1
        if ceil and table.decide(">=", (out - 1) * stride, size + padding):
            out -= 1
        _learn_windows(table, out)


def _im2col(table: SizeTable, named: Named) -> None:
    _convolution(
        table,
        {
            "input": named["self"],
            "weight": torch.empty((0, 0, *map(int, named["kernel_size"])), device="meta"),
            **{name: named[name] for name in ("stride", "padding", "dilation")},
        },
    )


def _upsample(table: SizeTable, named: Named) -> None:
    shape = _shape(table, named["self"])[2:]
    names = ("scales",) if len(shape) == 1 else ("scales_d", "scales_h", "scales_w")[-len(shape) :]
    for size, scale in zip(shape, [named.get(name) for name in names], strict=True):
        if scale and 0 < scale < 1 and (1 / scale).is_integer():
            table.learn(size // int(1 / scale))


def _factorise(table: SizeTable, named: Named) -> None:
    """Results have as many vectors as the matrix has rows or columns, whichever are fewer."""
    rows, columns = _shape(table, named["A"])[-2:]
    table.decide("<=", rows, columns)


def _real_fft(table: SizeTable, named: Named) -> None:
    table.learn(_shape(table, named["self"])[named["dim"][-1]] // 2 + 1)


Formula = Callable[[SizeTable, Named], None]
_PADDED: Final = ("reflection", "replication")
_SCALED: Final = ("upsample_nearest", "_upsample_nearest_exact")
FORMULAS: Final[dict[str, Formula]] = {
    "slice": _slice,
    "select": _select,
    "split": _split,
    "unfold": _unfold,
    "diagonal": _diagonal,
    "cat": _cat,
    "arange": _arange,
    "convolution": _convolution,
    "im2col": _im2col,
    "_fft_r2c": _real_fft,
    "_linalg_svd": _factorise,
    "linalg_qr": _factorise,
    "linalg_lu": _factorise,
    "linalg_lu_factor_ex": _factorise,
    "avg_pool1d": _pool,
    "avg_pool2d": _pool,
    "avg_pool3d": _pool,
    "max_pool2d_with_indices": _pool,
    "max_pool3d_with_indices": _pool,
    "constant_pad_nd": _pad,
    **{f"{kind}_pad{n}d": _pad for kind in _PADDED for n in (1, 2, 3)},
    "upsample_linear1d": _upsample,
    "upsample_bilinear2d": _upsample,
    "upsample_trilinear3d": _upsample,
    "upsample_bicubic2d": _upsample,
    **{f"{kind}{n}d": _upsample for kind in _SCALED for n in (1, 2, 3)},
}
