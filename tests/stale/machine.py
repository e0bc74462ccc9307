"""The checker: programs whose world changes between calls must do what they do eagerly.

A row is a maker of worlds. Each world has a program and a change of something the program reads. Two equal worlds
are made: in one the program runs compiled, in the other eagerly. Results (values and metadata), errors and what the
programs left behind are compared after every call.

A change that can be undone is made around each call, so that rows may be mixed at random; one that cannot is made once.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

import argand

ROWS: dict[str, Callable[[], World]] = {}


@dataclass
class World:
    """A program of one tensor, and a change of what it reads."""

    program: Callable[..., Any]
    change: Callable[[], Any]
    undo: Callable[[], Any] | None = None
    arguments: Callable[[], tuple[Any, ...]] = lambda: (ramp(),)
    state: Callable[[], Any] = lambda: None  # what the program leaves behind
    applied: list[bool] = field(default_factory=list)


def ramp(*shape: int) -> torch.Tensor:
    """1, 2, 3, ..."""
    sizes = shape or (3,)
    return torch.arange(1.0, 1.0 + torch.Size(sizes).numel()).reshape(sizes)


def row(make: Callable[[], World]) -> Callable[[], World]:
    """Enter a maker of worlds under its name."""
    assert make.__name__ not in ROWS, make.__name__
    ROWS[make.__name__] = make
    return make


def rows(
    name: str, table: dict[str, tuple[Any, ...]]
) -> Callable[[Callable[..., World]], Callable[..., World]]:
    """Enter one maker for each entry of a table."""

    def enter(make: Callable[..., World]) -> Callable[..., World]:
        for key, values in table.items():
            assert f"{name}_{key}" not in ROWS, key
            ROWS[f"{name}_{key}"] = lambda values=values: make(*values)
        return make

    return enter


def outcome(world: World, program: Callable[..., Any], changed: bool) -> tuple[Any, ...]:
    """What a call gives or raises, and what it leaves behind."""
    around = changed and world.undo is not None
    if changed and world.undo is None and not world.applied:
        world.change()
        world.applied.append(True)
    if around:
        world.change()
    try:
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            result = described(program(*world.arguments()))
    except Exception as error:
        result = ("raised", type(error).__name__, str(error))
    finally:
        if around and world.undo is not None:
            world.undo()
    return result, described(world.state())


def described(value: Any) -> Any:
    """A value as data that can be compared: tensors with all their metadata."""
    if isinstance(value, torch.Tensor):
        bits = (
            value.is_conj(),
            value.is_neg(),
            value.requires_grad,
            value.is_leaf,
            type(value).__name__,
        )
        strides = value.stride() if value.layout is torch.strided else None
        about = (str(value.dtype), str(value.device), tuple(value.shape), strides, *bits)
        if value.device.type == "meta":
            return ("tensor", *about)
        return ("tensor", *about, repr(value.detach().resolve_conj().resolve_neg().tolist()))
    if isinstance(value, dict):
        return (
            type(value).__name__,
            [(described(key), described(item)) for key, item in value.items()],
        )
    if isinstance(value, tuple | list):
        return (type(value).__name__, [described(item) for item in value])
    if isinstance(value, set | frozenset):
        return (type(value).__name__, sorted(map(repr, value)))
    return (type(value).__name__, repr(value))


def compiled(program: Callable[..., Any], backend: str = "") -> Callable[..., Any]:
    """The program, compiled; without a backend its graphs are run as they are: what goes wrong is capture's."""
    chosen: Any = backend or (lambda graph, _: graph.forward)
    options = {"strict": True, "recompile_limit": 64}
    if backend == "argand":
        options |= {"measure": False}
    made: Callable[..., Any] = argand.compile(program, backend=chosen, options=options)
    return made


def check(name: str, backend: str = "") -> None:
    """One row: before the change, after it, and (where it can be undone) before it again."""
    ours, theirs = ROWS[name](), ROWS[name]()
    program = compiled(ours.program, backend)
    steps = (False, False, True, True) + ((False, True) if ours.undo is not None else ())
    for step, changed in enumerate(steps):
        expected = outcome(theirs, theirs.program, changed)
        found = outcome(ours, program, changed)
        assert found == expected, (
            f"{name}, call {step}, {'changed' if changed else 'unchanged'}: {found} for {expected}"
        )


def check_random(seed: int, count: int = 4, calls: int = 6, backend: str = "") -> list[str]:
    """Several rows in one program; some of their changes come and go between calls."""
    draw = random.Random(seed)
    names = draw.sample(sorted(name for name, make in ROWS.items() if _mixes(make)), count)
    ours, theirs = [ROWS[name]() for name in names], [ROWS[name]() for name in names]

    def joined(worlds: list[World]) -> Callable[..., Any]:
        parts = [world.program for world in worlds]

        def program(*arguments: Any) -> Any:
            return [part(*given) for part, given in zip(parts, arguments, strict=True)]

        return program

    mine, eager = compiled(joined(ours), backend), joined(theirs)
    on: set[int] = set()
    for step in range(calls):
        place = draw.randrange(count)
        if step:
            on ^= {place} if ours[place].undo is not None or place not in on else set()
        expected, found = (
            _joint(worlds, program, on) for worlds, program in ((theirs, eager), (ours, mine))
        )
        shown = [name for place, name in enumerate(names) if place in on]
        assert found == expected, (
            f"seed {seed}, call {step}, rows {names}, changed {shown}: {found} for {expected}"
        )
    return names


def _mixes(make: Callable[[], World]) -> bool:
    return not getattr(make, "alone", False)


def _joint(worlds: list[World], program: Callable[..., Any], on: set[int]) -> Any:
    changed = [world for place, world in enumerate(worlds) if place in on]
    done = []
    try:
        for world in changed:
            if world.undo is not None or not world.applied:
                world.change()
                world.applied.append(True)
                done += [world] if world.undo is not None else []
        try:
            result = described(program(*[world.arguments() for world in worlds]))
        except Exception as error:
            result = ("raised", type(error).__name__, str(error))
    finally:
        for world in reversed(done):
            world.undo()
    return result, [described(world.state()) for world in worlds]
