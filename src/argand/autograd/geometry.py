"""autograd.geometry: where a tensor lies in its storage, and the inverse of every view.

In: view ops as the recorder meets them. Out: ``ViewStep`` rows: one single-output view op with its
constant arguments, which can be replayed on a graph node, on a real tensor, or inverted
(``undo_step``: the parent after its view was given a new value).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import torch

aten: Final = torch.ops.aten

Geometry = tuple[Any, ...]


class ViewStep(NamedTuple):
    """One view op of one result; ``tail`` are the arguments after the tensor."""

    func: Any
    tail: tuple[Any, ...]
    kwargs: dict[str, Any]

    def replay(self, tensor: torch.Tensor) -> torch.Tensor:
        """The view of a real tensor."""
        result = self.func(tensor, *self.tail, **self.kwargs)
        assert isinstance(result, torch.Tensor)
        return result


def geometry_of(tensor: torch.Tensor) -> Geometry:
    """What makes two tensors on one storage the same region of it."""
    return (
        tensor.shape,
        tensor.stride(),
        tensor.storage_offset(),
        tensor.dtype,
        tensor.is_conj(),
        tensor.is_neg(),
    )


def bits_of(tensor: torch.Tensor) -> tuple[bool, bool]:
    """(conjugate bit, negative bit): what a reader of the memory of a tensor must do to its numbers."""
    return tensor.is_conj(), tensor.is_neg()


def bare(tensor: torch.Tensor) -> torch.Tensor:
    """A fake without its bits: the memory as it is."""
    conjugate, negative = bits_of(tensor)
    if not conjugate and not negative:
        return tensor
    with torch._C._DisableTorchDispatch():
        tensor = torch._conj(tensor.detach()) if conjugate else tensor.detach()
        return torch._neg_view(tensor) if negative else tensor


def bit_steps(tensor: torch.Tensor) -> list[ViewStep]:
    """From the memory as it is to the tensor."""
    conjugate, negative = bits_of(tensor)
    steps = [ViewStep(aten._conj.default, (), {})] if conjugate else []
    return [*steps, ViewStep(aten._neg_view.default, (), {})] if negative else steps


def same_layout(shape: tuple[int, ...], one: tuple[int, ...], two: tuple[int, ...]) -> bool:
    """Whether two stride tuples address alike; strides of dimensions of size one say nothing."""
    if one == two or 0 in shape:
        return True
    return all(size == 1 or a == b for size, a, b in zip(shape, one, two, strict=True))


def dense_order(shape: tuple[int, ...], stride: tuple[int, ...]) -> list[int] | None:
    """Dimensions from outermost to innermost if the tensor fills its memory without gaps."""
    order = sorted(range(len(shape)), key=lambda d: (stride[d], shape[d]), reverse=True)
    expected = 1
    for dim in reversed(order):
        if shape[dim] != 1 and stride[dim] != expected:
            return None
        expected *= shape[dim]
    return order


def steps_of(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], count: int
) -> list[ViewStep]:
    """One step per result of a view op; multi-result views become slices and selects."""
    tail = args[1:]
    if func in _SPLITS:
        return _SPLITS[func](args[0], *tail, **kwargs)
    assert count == 1, f"view op {func} with {count} results has no row"
    return [ViewStep(func, tail, kwargs)]


def shifted_view(
    tensor: torch.Tensor, size: list[int], stride: list[int], shift: int
) -> torch.Tensor:
    """as_strided with an offset relative to the tensor's own; for replay on real tensors."""
    return tensor.as_strided(size, stride, tensor.storage_offset() + shift)


def retyped_view(
    tensor: torch.Tensor, size: list[int], stride: list[int], shift: int, dtype: torch.dtype
) -> torch.Tensor:
    """The same as elements of another type, ``shift`` bytes from the tensor's own start; no view to autograd."""
    start = tensor.storage_offset() * tensor.dtype.itemsize + shift
    return torch.empty(0, dtype=dtype).set_(
        tensor.untyped_storage(), start // dtype.itemsize, size, stride
    )


def can_undo(step: ViewStep, view: torch.Tensor, parent: torch.Tensor) -> bool:
    """Whether a write through this view has an inverse op."""
    if step.func is aten.expand.default:
        return view.numel() == parent.numel()  # else elements of the view share memory
    return step.func in _UNDO


def _slices(tensor: torch.Tensor, sizes: list[int], dim: int = 0) -> list[ViewStep]:
    steps, start = [], 0
    for size in sizes:
        steps.append(ViewStep(aten.slice.Tensor, (dim, start, start + size), {}))
        start += size
    return steps


def _split(tensor: torch.Tensor, size: int, dim: int = 0) -> list[ViewStep]:
    total = tensor.shape[dim]
    if size == 0:
        return _slices(tensor, [0], dim)
    sizes = [min(size, total - start) for start in range(0, total, size)] or [0]
    return _slices(tensor, sizes, dim)


_SPLITS: Final[dict[Any, Callable[..., list[ViewStep]]]] = {
    aten.split.Tensor: _split,
    aten.split_with_sizes.default: _slices,
    aten.unbind.int: lambda x, dim=0: [
        ViewStep(aten.select.int, (dim, index), {}) for index in range(x.shape[dim])
    ],
}

# What undo needs: emit(func, args, kwargs) -> node; parent() -> node of the parent's current value.
Emit = Callable[..., Any]


def undo_step(
    step: ViewStep, child: Any, old: torch.Tensor, emit: Emit, parent: Callable[[], Any]
) -> Any:
    """Node of the parent after its view got the value ``child``; ``old`` is a fake of the parent."""
    return _UNDO[step.func](step, child, old, emit, parent)


def _by_view(step: ViewStep, child: Any, old: torch.Tensor, emit: Emit, parent: Any) -> Any:
    shape = list(old.shape)
    try:
        return emit(aten.view.default, (child, shape))
    except RuntimeError:  # the child's strides cannot be merged: the value moves to new memory
        copy = emit(aten.clone.default, (child,), {"memory_format": torch.contiguous_format})
        return emit(aten.view.default, (copy, shape))


def _by_scatter(func: Any) -> Callable[..., Any]:
    return lambda step, child, old, emit, parent: emit(
        func, (parent(), child, *step.tail), step.kwargs
    )


def _by_permute(step: ViewStep, child: Any, old: torch.Tensor, emit: Emit, parent: Any) -> Any:
    rank = old.dim()
    order = [dim % rank for dim in step.tail[0]]
    inverse = [order.index(dim) for dim in range(rank)]
    return emit(aten.permute.default, (child, inverse))


def _by_same(step: ViewStep, child: Any, old: torch.Tensor, emit: Emit, parent: Any) -> Any:
    return emit(step.func, (child, *step.tail), step.kwargs)


def _by_func(func: Any) -> Callable[..., Any]:
    return lambda step, child, old, emit, parent: emit(func, (child,))


_UNDO: Final[dict[Any, Callable[..., Any]]] = {
    **dict.fromkeys(
        (aten.view.default, aten._unsafe_view.default, aten._reshape_alias.default), _by_view
    ),
    **dict.fromkeys((aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims), _by_view),
    **dict.fromkeys((aten.unsqueeze.default, aten.expand.default), _by_view),
    **dict.fromkeys((aten.t.default, aten.transpose.int), _by_same),
    aten.permute.default: _by_permute,
    **dict.fromkeys((aten.alias.default, aten.detach.default), lambda step, child, *_: child),
    aten.select.int: _by_scatter(aten.select_scatter.default),
    aten.slice.Tensor: _by_scatter(aten.slice_scatter.default),
    aten.diagonal.default: _by_scatter(aten.diagonal_scatter.default),
    aten.as_strided.default: _by_scatter(aten.as_strided_scatter.default),
    aten.view_as_real.default: _by_func(aten.view_as_complex.default),
    aten.view_as_complex.default: _by_func(aten.view_as_real.default),
    aten._conj.default: _by_func(aten._conj_physical.default),
    aten._neg_view.default: _by_func(aten.neg.default),
    aten.view.dtype: lambda step, child, old, emit, parent: emit(
        aten.view.dtype, (child, old.dtype)
    ),
}

UNDONE: Final = frozenset(_UNDO)  # views through which a write comes back
