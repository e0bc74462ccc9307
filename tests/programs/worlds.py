"""Programs with a world of their own: classes, state, closures and blocks around tensors, called with changed state.

Seeds from ``FIRST`` on. A program is called ``CALLS`` times, at sizes at their borders (0, 1, 2, the first again), and
between the calls its world changes. Each statement is tried in eager as it is made, in all of its calls, so no rule of
ours decides what is legal.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import random
import warnings
from collections.abc import Iterator
from typing import Any, Final

import torch

from tests.programs import world_tables as tables
from tests.programs.generator import namespace, torch_statement
from tests.programs.inputs import COMPLEX, FLOATS, INTEGERS, KINDS
from tests.programs.world_prelude import PRELUDE

FIRST: Final = 5_000_000
_LENGTHS: Final = (
    (3, 3, 3, 3),
    (3, 3, 4, 3),
    (4, 4, 1, 0),
    (3, 2, 1, 3),
    (2, 5, 2, 0),
    (1, 3, 1, 2),
)
_SHAPES: Final = ("(n,)", "(n,)", "(n, 3)", "(n, 3)", "(2, n)", "(n, n)", "(3,)", "()", "(2, n, 3)")
_ALIASES: Final = (
    "a0",
    "a0.detach()",
    "a0[:1]",
    "a0.t()",
    "a0.view(a0.shape)",
    "a0[..., -1:]",
    "a0[1:]",
)


@dataclasses.dataclass(frozen=True)
class World:
    """A program as text, in parts."""

    inputs: tuple[str, ...]
    lengths: tuple[int, ...]
    changes: tuple[str, ...]  # before each call but the first
    lines: tuple[str, ...]
    results: tuple[str, ...]
    backend: str = "argand"
    dynamic: bool = False

    def text(self) -> str:
        """A file that can be read and replayed (after ``PRELUDE``)."""
        made = "".join(f"    a{k} = {text}\n" for k, text in enumerate(self.inputs))
        names = ", ".join(f"a{k}" for k in range(len(self.inputs)))
        body = "".join(f"    {line}\n" for line in self.lines)
        results = "".join(f"{name}, " for name in self.results)
        return (
            f"BACKEND, DYNAMIC, LENGTHS = {self.backend!r}, {self.dynamic!r}, {self.lengths!r}\n"
            f"CHANGES = {list(self.changes)!r}\n\n\n"
            f"def inputs(n, seed):\n{made}    return [{names}]\n\n\n"
            f"def program({names}):\n    global COUNT\n{body}    return ({results})\n"
        )

    def smaller(self) -> Iterator[World]:
        """The same with something left out."""
        for k, line in enumerate(self.lines):
            end = _end_of_block(self.lines, k)
            yield self._with_lines(k, end, ())
            if end > k + 1:
                inner = tuple(text.removeprefix("    ") for text in self.lines[k + 1 : end])
                yield self._with_lines(k, end, inner)
                if line.strip().startswith(("if", "for", "with", "def", "try")):
                    yield self._with_lines(k + 1, end, (_depth(line) * " " + "    pass",))
        if len(self.results) > 1:
            for k in range(len(self.results)):
                yield dataclasses.replace(self, results=self.results[:k] + self.results[k + 1 :])
        for k, change in enumerate(self.changes):
            if change != "pass":
                changes = (*self.changes[:k], "pass", *self.changes[k + 1 :])
                yield dataclasses.replace(self, changes=changes)
        if len(self.lengths) > 1:
            yield dataclasses.replace(
                self, lengths=self.lengths[:-1], changes=self.changes[: len(self.lengths) - 2]
            )

    def _with_lines(self, start: int, end: int, lines: tuple[str, ...]) -> World:
        return dataclasses.replace(self, lines=self.lines[:start] + lines + self.lines[end:])


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def _end_of_block(lines: tuple[str, ...], start: int) -> int:
    end = start + 1
    while end < len(lines) and _depth(lines[end]) > _depth(lines[start]):
        end += 1
    return end


@functools.cache
def _prelude() -> Any:
    return compile(PRELUDE, "<prelude>", "exec", dont_inherit=True)


def load(text: str) -> dict[str, Any]:
    """A fresh world with a program in it."""
    space = {**namespace(), "io_out": io.StringIO(), "__name__": "world"}
    exec(_prelude(), space)
    exec(compile(text, "<program>", "exec", dont_inherit=True), space)
    return space


def change(space: dict[str, Any], call: int) -> None:
    """What happens to the world before a call; a change that cannot be made is none."""
    if call:
        try:
            exec(space["CHANGES"][call - 1], space)
        except Exception:
            space["LOG"].append("no change")


def generate(seed: int) -> World:
    """The program of a seed."""
    draw = random.Random(seed)
    lengths = draw.choice(_LENGTHS)
    inputs: tuple[str, ...] = ()
    for k in range(draw.randint(1, 3)):
        longer = (*inputs, _input(draw, k))
        inputs = longer if _can_be_made(longer, lengths) else inputs
    changes = tuple(
        draw.choice(tables.CHANGES) if draw.random() < 0.6 else "pass" for _ in lengths[1:]
    )
    world = World(
        inputs,
        lengths,
        changes,
        (),
        (),
        draw.choice(["argand"] * 5 + ["aot_eager", "eager", "eager"]),
        draw.random() < 0.25,
    )
    names = _locals_of(world) or {"a0"}
    for _ in range(draw.randint(2, 8)):
        world, names = _extended(draw, world, names)
    live = [name for name in sorted(names) if not name.startswith("a") or draw.random() < 0.3]
    results = tuple(draw.sample(live, min(len(live), draw.randint(1, 5)))) or ("a0",)
    return dataclasses.replace(world, results=results)


def _can_be_made(inputs: tuple[str, ...], lengths: tuple[int, ...]) -> bool:
    """Whether an input that is a view of another one is one at all lengths."""
    space = load(World(inputs, lengths, (), (), ()).text().replace("    return ()", "    return"))
    try:
        for call, length in enumerate(lengths):
            space["inputs"](length, call)
    except (RuntimeError, IndexError):
        return False
    return True


def _input(draw: random.Random, k: int) -> str:
    if k and draw.random() < 0.15:
        return draw.choice(_ALIASES)
    roll = draw.random()
    dtype = draw.choice(
        ("float32",)
        if roll < 0.45
        else FLOATS
        if roll < 0.75
        else INTEGERS
        if roll < 0.93
        else COMPLEX
    )
    kind = draw.choice(KINDS) if draw.random() < 0.5 else "plain"
    grad = draw.random() < 0.4
    return (
        f"tensor({draw.choice(_SHAPES)}, {dtype!r}, {kind!r}, {draw.randrange(100)} + seed, {grad})"
    )


def _extended(draw: random.Random, world: World, names: set[str]) -> tuple[World, set[str]]:
    """One more statement that runs in eager; rarely one that raises."""
    for _ in range(8):
        lines = _block(draw, sorted(names), [len(world.lines)], 0)
        longer = dataclasses.replace(world, lines=(*world.lines, *lines))
        found = _locals_of(longer)
        if found is not None:
            return longer, found
        if draw.random() < 0.01:
            return longer, names
    return world, names


def _locals_of(world: World) -> set[str] | None:
    """Names of the tensors that all calls have at the end; None if all or the first raise."""
    try:
        space = load(world.text().replace("    return ()", "    return locals()"))
    except SyntaxError:
        return None
    names: set[str] | None = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call, length in enumerate(world.lengths):
            change(space, call)
            try:
                found = space["program"](*space["inputs"](length, call))
            except Exception:
                if call == 0:
                    return None
                continue
            if not isinstance(found, dict):
                continue
            live = {k for k, v in found.items() if _usable(v)}
            names = live if names is None else names & live
    return names if names is not None else {f"a{k}" for k in range(len(world.inputs))}


def _usable(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.numel() <= 512


def _block(draw: random.Random, names: list[str], serial: list[int], depth: int) -> list[str]:
    """The lines of a statement."""
    target = f"v{serial[0]}"
    serial[0] += 1
    roll = draw.random()
    if roll < 0.25:
        return [torch_statement(draw, names, target)]
    table = (
        tables.PLAIN
        if roll < 0.5
        else tables.STATEFUL
        if roll < 0.7 or depth > 1
        else tables.BLOCKS
    )
    lines: list[str] = []
    for line in draw.choice(table).split("\n"):
        indent = " " * _depth(line)
        if line.strip() == "{B}":
            for _ in range(draw.randint(1, 2)):
                lines += (indent + inner for inner in _block(draw, names, serial, depth + 1))
        else:
            lines.append(indent + _filled(draw, line.strip(), names, target))
    return lines


def _filled(draw: random.Random, text: str, names: list[str], target: str) -> str:
    """A line without holes."""
    text = text.replace("{v}", target)
    for _ in range(4):
        for hole, table in (
            ("{T}", tables.TENSORS),
            ("{c}", tables.CONDITIONS),
            ("{f}", tables.FLOATS),
            ("{n}", tables.INTS),
        ):
            while hole in text:
                text = text.replace(hole, draw.choice(table), 1)
    text = text.replace("{i}", draw.choice(("0", "-1")))
    for hole in ("{x}", "{y}", "{z}"):
        while hole in text:
            text = text.replace(hole, draw.choice(names), 1)
    return text.replace("{{", "{").replace("}}", "}")
