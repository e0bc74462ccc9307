"""Runs a program with a world in eager and compiled, each in a world of its own; tells what differs after each call."""

from __future__ import annotations

import collections
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy
import torch

import argand
from tests.programs.checker import SHAKES, OtherNans, Passed, gradients_of, shaken, told_of_both
from tests.programs.world_prelude import WORLD
from tests.programs.worlds import World, change, load
from tools.answers import Answer, observe, tensors_in


def check_world(world: World | str, options: dict[str, Any] | None = None) -> str | None:
    """What differs, or None."""
    text = world if isinstance(world, str) else world.text()
    eager, ours = load(text), load(text)
    compiled = argand.compile(
        ours["program"], backend=ours["BACKEND"], dynamic=ours["DYNAMIC"] or None, options=options
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call in range(len(eager["LENGTHS"])):
            wanted = _call(eager, eager["program"], call)
            found = _call(ours, compiled, call)
            told = _differences(text, call, wanted, found)
            if told:
                return f"call {call}: {'; '.join(told)}"
    return None


def _differences(
    text: str, call: int, wanted: tuple[Answer, Answer], found: tuple[Answer, Answer]
) -> list[str]:
    rows = told_of_both(wanted, found, (None, None), None)
    if not rows:
        return []
    other = unlike(wanted[0].result, found[0].result)
    if other is not None:
        return [other]
    with Passed() as passed:
        _replayed(text, call)
    rows = told_of_both(wanted, found, (None, None), passed.least)
    for near in _nearly(text, call, passed.least) if rows else ():
        rows = [row for row in told_of_both(wanted, found, near, passed.least) if row in rows]
    return rows


def unlike(eager: Any, ours: Any, place: str = "answer") -> str | None:
    """Where two pictures have another structure."""
    if type(eager) is not type(ours) or (isinstance(eager, list) and len(eager) != len(ours)):
        return f"{place}: {_short(ours)} instead of {_short(eager)}"
    if not isinstance(eager, list):
        return None
    names = [item if isinstance(item, str) else str(k) for k, item in enumerate(eager)]
    rows = (unlike(a, b, f"{place}.{name}") for name, a, b in zip(names, eager, ours, strict=True))
    return next((row for row in rows if row is not None), None)


def _short(value: Any) -> str:
    return str(value).replace("\n", " ")[:150]


def _nearly(text: str, last: int, least: torch.dtype | None) -> Iterator[tuple[Answer, Answer]]:
    """Eager's answers to the same calls, where chance decides otherwise."""
    for seed in SHAKES:
        yield _replayed(text, last, lambda x, seed=seed: shaken(x, least, seed))
    with OtherNans():
        yield _replayed(text, last)


def _replayed(
    text: str, last: int, shake: Callable[[torch.Tensor], torch.Tensor] | None = None
) -> tuple[Answer, Answer]:
    """Eager's answer to a call, after all calls before it."""
    space = load(text)
    for call in range(last):
        _call(space, space["program"], call, shake)
    return _call(space, space["program"], last, shake)


def _call(
    space: dict[str, Any],
    function: Callable[..., Any],
    call: int,
    shake: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> tuple[Answer, Answer]:
    """The answer of one call, with what it left of the world; and the gradients."""
    change(space, call)
    torch.default_generator.manual_seed(0)
    inputs = space["inputs"](space["LENGTHS"][call], call)
    if shake is not None:
        inputs = [shake(x) for x in inputs]
    leaves = [x for x in inputs if x.requires_grad and x.is_leaf]
    answer = observe(lambda *given: _outcome(space, function, given), *inputs)
    if answer.error is not None:
        return answer, Answer(None, [], [])
    results = tensors_in(answer.result[0])
    return answer, observe(lambda: gradients_of(results, leaves))


def _outcome(space: dict[str, Any], function: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    """[results, the error, the world], in lists, tensors and texts."""
    result: Any = None
    raised: list[str] = []
    try:
        result = function(*given)
    except Exception as error:
        raised = [type(error).__name__, _text_of(error)]
    picture = Picture()
    world = [[name, picture.of(space[name])] for name in WORLD]
    return [picture.of(result), raised, world, space["io_out"].getvalue()]


def _text_of(error: Exception) -> str:
    """What an error says, where that is Python's or the program's own; torch's texts are up to its version."""
    return "" if isinstance(error, RuntimeError) else str(error)


class Picture:
    """Values as nested lists: what is one object twice is told as such, tensors stay what they are."""

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}
        self.kept: list[Any] = []

    def of(self, value: Any) -> Any:
        """The picture of a value."""
        if isinstance(value, torch.Tensor | bool | int | float | complex | str | None):
            return value if type(value) in _KNOWN else [type(value).__name__, str(value)]
        if id(value) in self.seen:
            return f"object {self.seen[id(value)]}"
        self.seen[id(value)] = len(self.seen)
        self.kept.append(value)
        return [type(value).__name__, *self._parts(value)]

    def _parts(self, value: Any) -> list[Any]:
        if isinstance(value, numpy.ndarray | numpy.generic):
            return [str(value.dtype), list(value.shape), _numbers(value)]
        if isinstance(value, torch.nn.Module):
            return [self.of(dict(value.state_dict(keep_vars=True))), value.training, _plain(value)]
        if isinstance(value, Mapping):
            return [[[self.of(k), self.of(v)] for k, v in value.items()], _plain(value)]
        if isinstance(value, set | frozenset):
            return sorted(map(str, value))
        if isinstance(value, list | tuple | collections.deque):
            return [self.of(item) for item in value]
        if isinstance(value, types.FunctionType | type):
            return [value.__name__]
        if hasattr(value, "__slots__"):
            return [self.of(getattr(value, name)) for name in value.__slots__]
        return [[name, self.of(item)] for name, item in getattr(value, "__dict__", {}).items()]


_KNOWN = (torch.Tensor, torch.nn.Parameter, bool, int, float, complex, str, type(None))


def _plain(value: Any) -> list[Any]:
    """Attributes of a dict or module that are plain values."""
    items = getattr(value, "__dict__", {}).items()
    return [[name, item] for name, item in items if type(item) in (int, float, str, bool)]


def _numbers(value: Any) -> Any:
    return torch.from_numpy(numpy.array(value)) if value.dtype.kind in "fiub" else str(value)
