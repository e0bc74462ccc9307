"""differences.worlds: everything a call of a function can see and change, remembered and put back.

In: a function and its arguments. Out: a `Reachable`: tensors with their contents, containers and attributes, reached from
arguments, closures, and the globals that the code names. `restore` puts it back; `changes` compares it with another look.
Modules of Python and objects of C are not entered: what a whole captured frame changes are Python objects and tensors.
"""

from __future__ import annotations

import collections
import functools
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, final

import torch

from argand.differences.values import Difference, compare_metadata, unequal

MOST: Final = 20_000  # objects that are looked at
_LIBRARIES: Final = frozenset({*sys.stdlib_module_names, "torch", "argand", "numpy"})
_PLAIN: Final = (type(None), bool, int, float, complex, str, bytes)


class _Seen(NamedTuple):
    """One object at one look."""

    path: str
    value: Any  # the object, which must stay alive
    content: Any  # a copy of what it holds: a list, a dictionary, or a tensor


def _is_of_library(module: object) -> bool:
    return isinstance(module, str) and module.partition(".")[0] in _LIBRARIES


@final
class Reachable:
    """What can be reached, at one moment."""

    def __init__(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.roots = (function, args, kwargs)
        self.seen: dict[int, _Seen] = {}
        self.names: list[
            tuple[dict[str, Any], str, Any]
        ] = []  # globals the code names: where, name, value
        self.history = False  # whether some tensor was computed from others that want gradients
        self._walk(function, args, kwargs)

    def _walk(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        waiting = collections.deque([("function", function)])
        waiting.extend((f"argument {k}", value) for k, value in enumerate(args))
        waiting.extend((f"argument {name!r}", value) for name, value in kwargs.items())
        while waiting and len(self.seen) < MOST:
            path, value = waiting.popleft()
            if isinstance(value, (*_PLAIN, types.ModuleType, type)) or id(value) in self.seen:
                continue
            content = self._content(value)
            self.seen[id(value)] = _Seen(path, value, content)
            waiting.extend(self._parts(path, value, content))

    def _content(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            self.history = self.history or value.grad_fn is not None
            plain = value.layout is torch.strided and value.device.type == "cpu"
            return value.detach().clone() if plain and not value.is_quantized else None
        if isinstance(value, list | collections.deque):
            return list(value)
        if isinstance(value, dict):
            return dict(value)
        if isinstance(value, set):
            return set(value)
        return dict(vars(value)) if _has_state(value) else None

    def _parts(self, path: str, value: Any, content: Any) -> Iterator[tuple[str, Any]]:
        if isinstance(value, torch.Tensor):
            if value.is_leaf and value.grad is not None:
                yield f"{path}.grad", value.grad
        elif isinstance(value, types.FunctionType):
            yield from self._of_function(path, value)
        elif isinstance(value, types.MethodType):
            yield f"{path}.__self__", value.__self__
            yield path, value.__func__
        elif isinstance(value, types.CellType):
            yield path, _cell(value)
        elif isinstance(value, functools.partial):
            yield from (
                (path, item) for item in (value.func, *value.args, *value.keywords.values())
            )
        elif isinstance(value, tuple | list | collections.deque):
            yield from ((f"{path}[{k}]", item) for k, item in enumerate(value))
        elif isinstance(value, dict):
            yield from ((f"{path}[{key!r}]", item) for key, item in value.items())
        elif content is not None and not isinstance(value, set):
            yield from ((f"{path}.{name}", item) for name, item in content.items())

    def _of_function(self, path: str, function: types.FunctionType) -> Iterator[tuple[str, Any]]:
        if _is_of_library(function.__module__):
            return
        for name, cell in zip(
            function.__code__.co_freevars, function.__closure__ or (), strict=False
        ):
            yield name, cell
        for name in function.__code__.co_names:
            if name in function.__globals__:
                self.names.append((function.__globals__, name, function.__globals__[name]))
                yield name, function.__globals__[name]

    def restore(self) -> None:
        """Put everything back as it was at this look."""
        for names, name, value in self.names:
            if names.get(name, self) is not value:
                names[name] = value
        with torch.no_grad():
            for seen in self.seen.values():
                _put_back(seen)

    def changes(self, before: Reachable) -> dict[str, _Seen]:
        """What is new or changed since another look, by path."""
        found: dict[str, _Seen] = {}
        for key, seen in self.seen.items():
            known = before.seen.get(key)
            if known is None or not _same(known.content, seen.content):
                found[seen.path] = seen
        for names, name, value in self.names:
            old = next((v for n, k, v in before.names if n is names and k == name), self)
            if old is not value:
                found[name] = _Seen(name, value, value)
        return found


def _has_state(value: Any) -> bool:
    """Objects whose attributes are looked at: the user's, modules, optimizers."""
    if isinstance(
        value, types.FunctionType | types.BuiltinFunctionType | types.MethodType | types.CellType
    ):
        return False
    if not isinstance(getattr(value, "__dict__", None), dict):
        return False
    module = type(value).__module__
    return module.startswith(("torch.nn", "torch.optim")) or not _is_of_library(module)


def _cell(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _put_back(seen: _Seen) -> None:
    value, content = seen.value, seen.content
    if content is None:
        return
    if isinstance(value, torch.Tensor):
        _put_back_tensor(value, content)
    elif not _same(_content_now(value), content):
        if isinstance(value, list):
            value[:] = content
        elif isinstance(value, dict | set):
            value.clear()
            value.update(content)
        elif isinstance(value, collections.deque):
            value.clear()
            value.extend(content)
        else:
            vars(value).clear()
            vars(value).update(content)


def _put_back_tensor(tensor: torch.Tensor, content: torch.Tensor) -> None:
    now = tensor.detach()
    if now.shape != content.shape or now.dtype is not content.dtype:
        tensor.data = content.clone()
    elif bool(unequal(now, content).any()):
        version = tensor._version if not tensor.is_inference() else None
        now.copy_(content)
        if version is not None:
            torch._C._autograd._unsafe_set_version_counter((tensor,), (version,))


def _content_now(value: Any) -> Any:
    if isinstance(value, list | collections.deque):
        return list(value)
    return value if isinstance(value, dict | set) else vars(value)


def _same(one: Any, other: Any) -> bool:
    """Whether two contents hold the same objects; tensors: the same numbers."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        alike = one.shape == other.shape and one.dtype is other.dtype
        return alike and not bool(unequal(one, other).any())
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(one[key] is other[key] for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))
    return type(one) is type(other) and (one is other or bool(one == other))


Compare = Callable[[str, torch.Tensor, torch.Tensor], Difference | None]


def compare_exactly(place: str, eager: torch.Tensor, other: torch.Tensor) -> Difference | None:
    """Two tensors that the same kernels computed: their last bit may depend on the number of threads, no more."""
    difference = compare_metadata(place, eager, other)
    if difference is not None:
        return difference
    eager, other = eager.detach(), other.detach()
    if eager.layout is not torch.strided or eager.is_quantized:
        return None
    wrong = unequal(eager, other)
    if eager.dtype.is_floating_point or eager.dtype.is_complex:
        scale = torch.where(torch.isfinite(eager), eager.abs(), 0).amax() if eager.numel() else 0
        wrong &= ~((eager - other).abs() <= 1e-5 * scale)
    places = wrong.nonzero()
    if not len(places):
        return None
    first = tuple(places[0].tolist())
    count = f"{len(places)} of {eager.numel()} elements"
    return Difference(
        place, "values", repr(eager[first].item()), repr(other[first].item()), first, count
    )


def compare_objects(
    place: str, eager: Any, other: Any, compare: Compare, depth: int = 12
) -> Difference | None:
    """The first difference of two results or two contents, by structure."""
    if isinstance(eager, torch.Tensor) and isinstance(other, torch.Tensor):
        return None if eager is other else compare(place, eager, other)
    if type(eager) is not type(other):
        return Difference(place, "types", type(eager).__name__, type(other).__name__)
    if isinstance(eager, _PLAIN):
        same = eager == other or (eager != eager and other != other)
        return None if same else Difference(place, "values", repr(eager), repr(other))
    if eager is other or not depth:
        return None
    if isinstance(eager, set):
        return (
            None
            if len(eager) == len(other)
            else Difference(place, "sizes", str(len(eager)), str(len(other)))
        )
    if isinstance(eager, dict):
        if list(map(repr, eager)) != list(map(repr, other)):
            return Difference(place, "keys", str(list(eager)), str(list(other)))
        pairs = [
            (f"{place}[{k!r}]", a, b)
            for (k, a), b in zip(eager.items(), other.values(), strict=True)
        ]
    elif isinstance(eager, tuple | list | collections.deque):
        if len(eager) != len(other):
            return Difference(place, "lengths", str(len(eager)), str(len(other)))
        pairs = [(f"{place}[{k}]", a, b) for k, (a, b) in enumerate(zip(eager, other, strict=True))]
    elif _has_state(eager) and not isinstance(eager, torch.nn.Module):
        return compare_objects(place, vars(eager), vars(other), compare, depth - 1)
    else:
        return None
    found = (compare_objects(*pair, compare, depth - 1) for pair in pairs)
    return next((difference for difference in found if difference is not None), None)


def compare_changes(
    eager: dict[str, _Seen], other: dict[str, _Seen], compare: Compare
) -> Difference | None:
    """The first difference of what two runs changed."""
    for path, seen in eager.items():
        if path not in other:
            return Difference(path, "side effects", f"changes it to {_shown(seen)}", "leaves it")
        difference = compare_objects(path, seen.content, other[path].content, compare)
        if difference is not None:
            return difference
    for path, seen in other.items():
        if path not in eager:
            return Difference(path, "side effects", "leaves it", f"changes it to {_shown(seen)}")
    return None


def _shown(seen: _Seen) -> str:
    text = f"{type(seen.value).__name__} {seen.content!r}".replace("\n", " ")
    return text if len(text) < 80 else f"{text[:77]}..."
