"""tools.answers: what a program answered, all of it that torch lets one see, and where two answers differ.

In: two runs of one program, eager's and ours, each on inputs of its own. Out: differences as sentences: values, types,
shapes, strides, storage offsets, bits, what shares memory with what (results and inputs), bases of views, version
counters, what requires grad and has a history. One function for tests, sweeps and generators of programs.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

# (relative, absolute): how far results of a few operations in this type may be apart
TOLERANCES = {
    torch.float64: (1e-9, 1e-11),
    torch.float32: (1e-4, 1e-5),
    torch.float16: (1e-2, 1e-2),
    torch.bfloat16: (5e-2, 5e-2),
    torch.complex128: (1e-9, 1e-11),
    torch.complex64: (1e-4, 1e-5),
    torch.complex32: (1e-2, 1e-2),
}


@dataclasses.dataclass
class Answer:
    """One run: what came back, what it did to the inputs."""

    result: Any
    inputs: list[torch.Tensor]
    bumps: list[int | None]  # how much the version counter of each input rose
    error: BaseException | None = None


def observe(function: Callable[..., Any], *inputs: Any) -> Answer:
    """Run a function and keep its answer; an error is an answer too."""
    tensors = tensors_in(inputs)
    before = [_version(tensor) for tensor in tensors]
    result, error = None, None
    try:
        result = function(*inputs)
    except Exception as failure:
        error = failure
    bumps = [
        None if old is None else tensor._version - old
        for tensor, old in zip(tensors, before, strict=True)
    ]
    return Answer(result, tensors, bumps, error)


def tensors_in(tree: Any) -> list[torch.Tensor]:
    """The tensors of a nested value, in order."""
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def differences(
    eager: Answer,
    ours: Answer,
    *,
    strides: bool = True,
    values: bool = True,
    exact: Answer | None = None,
    least: torch.dtype | None = None,
) -> list[str]:
    """What is not as in eager.

    ``exact``: the same program in double precision. Rounding is then no difference as long as we are about as near to
    it as eager is. ``least``: the least precise type of the program; fused code does not round to it in between.
    """
    if eager.error is not None or ours.error is not None:
        return _compare_errors(eager.error, ours.error)
    wanted, spec = pytree.tree_flatten(eager.result)
    found, other = pytree.tree_flatten(ours.result)
    if spec != other:
        return [f"another structure: {other} instead of {spec}"]
    truth = _leaves(exact, len(wanted)) + (
        exact.inputs if exact is not None else [None] * len(eager.inputs)
    )
    pairs = [
        *(
            (f"result {k}", one, two)
            for k, (one, two) in enumerate(zip(wanted, found, strict=True))
        ),
        *(
            (f"input {k}", one, two)
            for k, (one, two) in enumerate(zip(eager.inputs, ours.inputs, strict=True))
        ),
    ]
    told: list[str] = []
    for (name, one, two), right in zip(pairs, truth, strict=True):
        told += (
            f"{name}: {text}"
            for text in _compare(one, two, right, least, strides=strides, values=values)
        )
    told += _compare_sharing(
        [(name, one, two) for name, one, two in pairs if isinstance(one, torch.Tensor)]
    )
    for k, (one, two) in enumerate(zip(eager.bumps, ours.bumps, strict=True)):
        if one != two:
            told.append(f"input {k}: its version rose by {two} instead of {one}")
    return told


def _leaves(answer: Answer | None, count: int) -> list[Any]:
    leaves = [] if answer is None or answer.error is not None else pytree.tree_leaves(answer.result)
    return leaves if len(leaves) == count else [None] * count


def _version(tensor: torch.Tensor) -> int | None:
    return None if tensor.is_inference() else tensor._version


def _compare_errors(eager: BaseException | None, ours: BaseException | None) -> list[str]:
    if eager is None:
        return [f"it raised {type(ours).__name__}: {ours}"]
    if ours is None:
        return [f"it did not raise {type(eager).__name__}: {eager}"]
    if not isinstance(ours, type(eager)):
        return [
            f"it raised {type(ours).__name__}: {ours} instead of {type(eager).__name__}: {eager}"
        ]
    return []


def _facts(tensor: torch.Tensor, strides: bool) -> Iterator[tuple[str, Any]]:
    """What is seen of a tensor besides its values."""
    yield "class", type(tensor)
    yield "dtype", tensor.dtype
    yield "device", tensor.device
    yield "layout", tensor.layout
    yield "shape", tuple(tensor.shape)
    if tensor.layout is torch.strided:
        if strides:
            yield "stride", tensor.stride()
            yield "storage_offset", tensor.storage_offset()
        yield "conjugate bit", tensor.is_conj()
        yield "negative bit", tensor.is_neg()
    yield "requires_grad", tensor.requires_grad
    yield "is_leaf", _is_leaf(tensor)
    if not tensor.is_inference():
        yield "is a view", tensor._base is not None


def _is_leaf(tensor: torch.Tensor) -> bool | str:
    try:
        return tensor.grad_fn is None
    except RuntimeError as refused:  # one of several views of a tensor that was written
        return str(refused).split(" ")[0]


def _compare(
    eager: Any, ours: Any, exact: Any, least: torch.dtype | None, *, strides: bool, values: bool
) -> Iterator[str]:
    if not isinstance(eager, torch.Tensor):
        if type(eager) is not type(ours):
            yield f"{type(ours).__name__} instead of {type(eager).__name__}"
        elif isinstance(
            eager, int | float | complex | str | bytes | type(None)
        ) and not _same_number(eager, ours):
            yield f"{ours!r} instead of {eager!r}"
        return
    if not isinstance(ours, torch.Tensor):
        yield f"{type(ours).__name__} instead of a tensor"
        return
    told = False
    for (name, one), (_, two) in zip(_facts(eager, strides), _facts(ours, strides), strict=False):
        if one != two:
            told = told or name in ("dtype", "shape", "layout")
            yield f"{name} {two} instead of {one}"
    if values and not told:
        yield from compare_values(eager, ours, exact, least)


def _same_number(one: Any, two: Any) -> bool:
    if isinstance(one, float) and isinstance(two, float):
        return one == two or (one != one and two != two) or abs(one - two) <= 1e-5 * abs(one)
    return bool(one == two)


def compare_values(
    eager: torch.Tensor,
    ours: torch.Tensor,
    exact: torch.Tensor | None = None,
    least: torch.dtype | None = None,
) -> list[str]:
    """Whether two tensors of one type and shape hold the same numbers."""
    one, two = _plain(eager), _plain(ours)
    if eager.dtype not in TOLERANCES:
        bad = one != two
    else:
        relative, absolute = max(TOLERANCES[eager.dtype], TOLERANCES[least or eager.dtype])
        # where rounding adds up, eager's own error is the measure
        slack = absolute * max(1.0, _scale(one))
        bad = ~torch.isclose(one, two, rtol=relative, atol=slack, equal_nan=True)
        right = None if exact is None or exact.shape != eager.shape else _plain(exact)
        if right is not None and right.dtype.is_complex == one.dtype.is_complex:
            near = (two - right).abs() <= 16 * (one - right).abs() + slack
            bad &= ~near
    count = int(bad.sum())
    if not count:
        return []
    place = tuple(bad.nonzero()[0].tolist())
    return [
        f"{count} of {bad.numel()} values differ: {two[place]} instead of {one[place]} at {place}"
    ]


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """Values in a type that all comparisons know."""
    value = tensor.detach()
    if value.layout is not torch.strided:
        value = value.to_dense()
    value = _resolved(value.resolve_conj())
    if value.dtype in TOLERANCES:
        return value.to(torch.complex128 if value.dtype.is_complex else torch.float64)
    if value.dtype.is_floating_point:  # the eight-bit ones compare through float32
        return value.float()
    return value if value.dtype is torch.bool else value.to(torch.int64)


def _resolved(value: torch.Tensor) -> torch.Tensor:
    try:
        return value.resolve_neg()
    except NotImplementedError:  # a bit on a type that has no negation: compared for itself
        return torch._neg_view(value)


def _scale(values: torch.Tensor) -> float:
    finite = values[torch.isfinite(values)]
    return float(finite.abs().max()) if finite.numel() else 0.0


def _compare_sharing(pairs: Sequence[tuple[str, Any, Any]]) -> Iterator[str]:
    """Which tensors are one object, lie on one storage, overlap."""
    known = [
        (n, one, two)
        for n, one, two in pairs
        if isinstance(two, torch.Tensor) and _strided(one) and _strided(two)
    ]
    for (name, one, two), (other, three, four) in itertools.combinations(known, 2):
        wanted, found = _relation(one, three), _relation(two, four)
        if wanted != found:
            yield f"{name} and {other}: {found}, in eager {wanted}"


def _strided(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided


def _relation(one: torch.Tensor, two: torch.Tensor) -> str:
    if one is two:
        return "one object"
    if one.untyped_storage()._cdata != two.untyped_storage()._cdata:
        return "memories of their own"
    low, high = _span(one), _span(two)
    return "one storage, overlapping" if low[0] < high[1] and high[0] < low[1] else "one storage"


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """Bytes of its storage from the first to the last element."""
    start = tensor.storage_offset() * tensor.itemsize
    if not tensor.numel():
        return start, start
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (last + 1) * tensor.itemsize
