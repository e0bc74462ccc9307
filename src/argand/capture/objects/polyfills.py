"""capture.objects.polyfills: native operations written in Python, to be interpreted in their place.

Each is an ordinary frame of the interpreter, so a graph break inside of what it calls resumes here.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

# Handlers and formatters whose work nobody sees before the frame ends, if they write to a file or a terminal.
PLAIN_HANDLERS = (logging.StreamHandler, logging.FileHandler, logging.NullHandler)
PLAIN_FORMATTERS = (type(None), logging.Formatter)
CHECK = (
    "Expected cond to be True, but got False. (Could this error message be improved? If so, please report an "
    "enhancement request to PyTorch.)"
)


def instantiate(kind: Any, args: Any, kwargs: Any) -> Any:
    """`kind(*args, **kwargs)` of a class with a Python constructor."""
    made = kind.__new__(kind, *args, **kwargs)
    if isinstance(made, kind):
        kind.__init__(made, *args, **kwargs)
    return made


def instantiate_plain(kind: Any, args: Any, kwargs: Any) -> Any:
    """The same for a class with object's `__new__`."""
    made = object.__new__(kind)
    kind.__init__(made, *args, **kwargs)
    return made


def iterate_by_index(items: Any) -> Iterator[Any]:
    """`iter(items)` of a class with `__getitem__` only."""
    index = 0
    while True:
        try:
            item = items[index]
        except IndexError:
            return
        yield item
        index += 1


def drain(iterator: Any) -> Iterator[Any]:
    """An iterator of a Python class, as a generator."""
    yield from iterator


def is_equal(a: Any, b: Any) -> bool:
    """Whether `a == b`, as a lookup asks."""
    return True if a == b else False  # noqa: SIM210  # interpreted: the truth of the answer is asked here


def same_items(a: Any, b: Any) -> bool:
    """`a == b` of two lists or tuples with objects that have `__eq__`."""
    if len(a) != len(b):
        return False
    return all(a[i] is b[i] or a[i] == b[i] for i in range(len(a)))


def same_dict(a: Any, b: Any) -> bool:
    """`a == b` of two dicts with objects that have `__eq__`."""
    if len(a) != len(b):
        return False
    return all(key in b and (a[key] is b[key] or a[key] == b[key]) for key in a)


def holds_item(items: Any, wanted: Any) -> bool:
    """`wanted in items`."""
    return any(item is wanted or item == wanted for item in items)


def greatest(items: Any, key: Any, default: Any) -> Any:
    """`max(items)` of objects that compare themselves; `default` is a list of one or none."""
    best: list[Any] = []
    for item in items:
        mark = item if key is None else key(item)
        if not best or mark > best[1]:
            best = [item, mark]
    if not best and not default:
        raise ValueError("max() arg is an empty sequence")
    return best[0] if best else default[0]


def least(items: Any, key: Any, default: Any) -> Any:
    """`min(items)` of objects that compare themselves."""
    best: list[Any] = []
    for item in items:
        mark = item if key is None else key(item)
        if not best or mark < best[1]:
            best = [item, mark]
    if not best and not default:
        raise ValueError("min() arg is an empty sequence")
    return best[0] if best else default[0]


def in_order(items: Any, key: Any, reverse: Any) -> list[Any]:
    """`sorted(items)` of objects that compare themselves."""
    rows = [(item if key is None else key(item), item) for item in items]
    if reverse:
        rows = rows[::-1]
    done: list[Any] = []
    for row in rows:
        at = len(done)
        while at > 0 and row[0] < done[at - 1][0]:
            at -= 1
        done.insert(at, row)
    found = [row[1] for row in done]
    return found[::-1] if reverse else found


def greater_of(a: Any, b: Any) -> Any:
    """`max(a, b)` of two tensors of one element; a NaN is greater than nothing."""
    return torch.where(b > a, b, a)


def lesser_of(a: Any, b: Any) -> Any:
    """`min(a, b)` of the same."""
    return torch.where(b < a, b, a)


def add_up(items: Any, start: Any) -> Any:
    """`sum(items, start)` with tensors among the items."""
    for item in items:
        start = start + item
    return start


def mapping_to_dict(mapping: Any) -> dict[Any, Any]:
    """`dict(mapping)` of a class with `keys` and `__getitem__`."""
    result = {}
    for key in mapping.keys():  # noqa: SIM118 - iteration may give something else
        result[key] = mapping[key]
    return result


def reduce(function: Any, items: Any, *start: Any) -> Any:
    """`functools.reduce`."""
    iterator = iter(items)
    value = start[0] if start else next(iterator)
    for item in iterator:
        value = function(value, item)
    return value


def checkpoint(function: Any, args: Any, kwargs: Any) -> Any:
    """`torch.utils.checkpoint.checkpoint`: same numbers, without its saving of memory."""
    return function(*args, **kwargs)


def check(condition: Any, message: Any = None) -> None:
    """`torch._check`."""
    if not condition:
        raise RuntimeError(message() if message is not None else CHECK)


def check_is_size(i: Any, message: Any = None, *, max: Any = None) -> None:
    """`torch._check_is_size`."""
    torch._check(i >= 0, message)
    if max is not None:
        torch._check(i <= max, message)


def forward_and_context(forward: Any, setup_context: Any, context: Any, args: Any) -> Any:
    """The forward of an `autograd.Function` that takes no context, and what keeps things for its backward."""
    result = forward(*args)
    setup_context(context, args, result)
    return result


def get_attributes(value: Any, names: Any, named: Any) -> Any:
    """`operator.attrgetter(*names)`."""
    found = []
    for name in names:
        held = value
        for part in name.split("."):
            held = getattr(held, part)
        found.append(held)
    return found[0] if len(found) == 1 else tuple(found)


def get_items(value: Any, keys: Any, named: Any) -> Any:
    """`operator.itemgetter(*keys)`."""
    return value[keys[0]] if len(keys) == 1 else tuple([value[key] for key in keys])


def call_named(value: Any, given: Any, named: Any) -> Any:
    """`operator.methodcaller(name, ...)`."""
    return getattr(value, given[0])(*given[1:], **named)


def tolist(tensor: Any) -> Any:
    """`Tensor.tolist` under `fullgraph`."""
    return [tolist(item) for item in tensor.unbind(0)] if tensor.dim() else tensor.item()


def associative_scan(
    combine_fn: Any, xs: Any, dim: Any, reverse: Any = False, combine_mode: Any = "pointwise"
) -> Any:
    """`torch.associative_scan` of tensors, in log2(n) steps over all of them, in torch's order.

    The function gets many slices at once, along the first dimension, where torch maps it over them: it is elementwise.
    """
    if combine_mode != "generic":
        raise ValueError(
            "For combine_mode='pointwise', all input tensors need to be on CUDA or XPU"
        )
    leaves, structure = pytree.tree_flatten(xs)
    parts = [torch.movedim(part, dim, 0) for part in leaves]
    parts = [part.flip([0]) for part in parts] if reverse else parts

    def combine(left: Any, right: Any) -> Any:
        sides = pytree.tree_unflatten(left, structure), pytree.tree_unflatten(right, structure)
        return pytree.tree_leaves(combine_fn(*sides))

    parts = _associative_steps(combine, parts)
    parts = [part.flip([0]) for part in parts] if reverse else parts
    return pytree.tree_unflatten([torch.movedim(part, 0, dim) for part in parts], structure)


def _associative_steps(combine: Any, parts: Any) -> Any:
    """Neighbours are combined, the half that is left is scanned, and gives what comes between."""
    size = parts[0].shape[0]
    if size < 2:
        return parts
    pairs = combine([part[0:-1:2] for part in parts], [part[1::2] for part in parts])
    odd = _associative_steps(combine, pairs)
    even = [part[:1] for part in parts]
    if size > 2:
        before = [part[:-1] for part in odd] if size % 2 == 0 else odd
        later = combine(before, [part[2::2] for part in parts])
        even = [torch.cat([head, part]) for head, part in zip(even, later)]  # noqa: B905
    return [_interleaved(one, two) for one, two in zip(even, odd)]  # noqa: B905


def _interleaved(even: Any, odd: Any) -> Any:
    """Items of both, by turns; there may be one more of the first."""
    both = torch.stack([even[: odd.shape[0]], odd], 1).flatten(0, 1)
    return torch.cat([both, even[odd.shape[0] :]]) if even.shape[0] > odd.shape[0] else both


def one_hot(tensor: Any, num_classes: Any = -1) -> Any:
    """`torch.nn.functional.one_hot`; its look at the data is left to the graph."""
    if tensor.numel():
        torch._assert_async((tensor >= 0).all(), "Class values must be non-negative.")
        torch._assert_async(
            (tensor < num_classes).all(), "Class values must be smaller than num_classes."
        )
    return (tensor.unsqueeze(-1) == torch.arange(num_classes)).long().contiguous()


def step_of_optimizer(step: Any, args: Any, kwargs: Any) -> Any:
    """A step of an optimizer, with gradients or without as its decorator says."""
    before = torch.is_grad_enabled()
    try:
        torch.set_grad_enabled(args[0].defaults["differentiable"])
        return step(*args, **kwargs)
    finally:
        torch.set_grad_enabled(before)


def drop_gradients(optimizer: Any) -> None:
    """`optimizer.zero_grad(set_to_none=True)`."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None


def drop_gradients_of_module(module: Any) -> None:
    """`module.zero_grad(set_to_none=True)`."""
    for parameter in module.parameters():
        parameter.grad = None


def scaled_add(name: str, x: Any, y: Any, *, factor: Any, **rest: Any) -> Any:
    """`x.add(y, alpha=factor)`."""
    return getattr(torch.Tensor, name)(x, y * factor, **rest)


def scaled_sub(name: str, x: Any, y: Any, *, factor: Any, **rest: Any) -> Any:
    """`x.sub(y, alpha=factor)`."""
    return getattr(torch.Tensor, name)(x, y * factor, **rest)


def scaled_addcmul(name: str, x: Any, y: Any, z: Any, *, factor: Any, **rest: Any) -> Any:
    """`x.addcmul(y, z, value=factor)`."""
    return getattr(torch.Tensor, name)(x, y * factor, z, **rest)


def scaled_addcdiv(name: str, x: Any, y: Any, z: Any, *, factor: Any, **rest: Any) -> Any:
    """`x.addcdiv(y, z, value=factor)`."""
    return getattr(torch.Tensor, name)(x, y * factor, z, **rest)


def value_of_state(x: Any) -> Any:
    """`x.item()` of a number in an optimizer's state, by the graph: as exact, and as it is now."""
    return (
        x.to(torch.float64, copy=True)
        if isinstance(x, torch.Tensor) and x.is_floating_point()
        else x
    )


def gradients(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool = False,
    create_graph: bool = True,
) -> tuple[Any, ...]:
    """Gradients as the transforms of torch.func take them: of outputs with a history, zeros for unused inputs."""
    if grad_outputs is None:
        traced, weights = tuple([out for out in outputs if out.requires_grad]), None
    else:
        rows = [
            (out, weight)
            for out, weight in zip(outputs, grad_outputs, strict=True)
            if out.requires_grad
        ]
        traced, weights = tuple([row[0] for row in rows]), tuple([row[1] for row in rows])
    if not traced:
        return tuple([torch.zeros_like(value) for value in inputs])
    found = torch.autograd.grad(
        traced,
        inputs,
        weights,
        retain_graph=retain_graph,
        create_graph=create_graph,
        allow_unused=True,
    )
    return tuple(
        [
            torch.zeros_like(x) if grad is None else grad
            for grad, x in zip(found, inputs, strict=True)
        ]
    )


def accumulate(rows: Any, create_graph: bool) -> None:
    """What torch's engine does with gradients of leaves: (leaf, its gradient, how a first one is kept)."""
    before = torch.is_grad_enabled()
    torch._C._set_grad_enabled(create_graph)
    for leaf, new, how in rows:
        old = leaf.grad
        if old is None:
            leaf.grad = kept_gradient(leaf, new, how)
        elif create_graph or how == "retained":
            leaf.grad = old + new
        else:
            old.add_(new)
    torch._C._set_grad_enabled(before)


def kept_gradient(leaf: Any, new: Any, how: str) -> Any:
    """A first gradient, in memory of its own."""
    if how == "like":
        return torch.empty_like(leaf.detach()).copy_(new)
    if how == "contiguous":
        return new.clone(memory_format=torch.contiguous_format)
    return new if how == "keep" else new.clone()


def no_context(*args: Any, **kwargs: Any) -> Any:
    """A context manager that says something to torch.compile alone."""
    return contextlib.nullcontext()


def is_heard_at_once(logger: Any, level: int) -> bool:
    """Whether a message may reach code of the user's, or memory that the user reads, while it is logged."""
    if logger.manager._disable >= level or logger.getEffectiveLevel() > level:
        return False
    while logger is not None:
        if logger.filters:
            return True
        for handler in logger.handlers:
            plain = type(handler) in PLAIN_HANDLERS and type(handler.formatter) in PLAIN_FORMATTERS
            if not plain or handler.filters:
                return True
            if type(handler) is not logging.NullHandler and not isinstance(
                handler.stream, io.TextIOWrapper
            ):
                return True
        logger = logger.parent if logger.propagate else None
    return False


def is_shown_plainly() -> bool:
    """Whether `warnings` shows messages itself."""
    return warnings.showwarning is warnings._showwarning_orig  # type: ignore[attr-defined]


def without_gradients(function: Any, args: Any) -> Any:
    """A call with gradients off."""
    with torch.no_grad():
        return function(*args)
