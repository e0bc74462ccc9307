"""Random Python programs over small tensors: control flow, containers, closures, mutation, graph breaks.

`generate(seed)` gives a `Program`: the source of a module with a function `program(x, y, n, k, flag, items, table, box)`.
Programs end (loops run over bounded things), are deterministic, and may raise; what they do is compared, not judged.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from .expressions import Expressions, Scope
from .prelude import PRELUDE
from .statements import STATEMENTS
from .syntax import Statement, render, simple

PARAMETERS = "x, y, n, k, flag, items, table, box"


@dataclass(frozen=True)
class Program:
    seed: int
    body: tuple[Statement, ...]
    constructs: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """The generated function alone."""
        return "\n".join([f"def program({PARAMETERS}):", *render(self.body, "    "), ""])

    @property
    def source(self) -> str:
        return PRELUDE + self.text


class Generator(Expressions):
    def block(self, scope: Scope, size: int) -> tuple[Statement, ...]:
        return tuple(self.statement(scope) for _ in range(size))

    def small(self, scope: Scope) -> tuple[Statement, ...]:
        return self.block(scope, self.random.choice((1, 1, 2, 3)))

    def statement(self, scope: Scope) -> Statement:
        rows = [row for row in STATEMENTS if row.allowed(scope) and self.breaks >= row.breaks]
        (row,) = self.random.choices(rows, [row.weight for row in rows])
        self.made[row.make.__name__] += 1
        return row.make(self, scope)

    def program(self, seed: int, size: int) -> Program:
        scope = Scope(
            {
                "tensor": ["x", "y", "box.tensor"],
                "int": ["n", "box.value"],
                "float": ["k"],
                "bool": ["flag"],
                "list": ["items", "box.items"],
                "dict": ["table", "SETTINGS"],
                "str": [],
                "set": [],
            }
        )
        begin = [simple("global COUNTER")]
        for kind, value in (("str", "'a'"), ("set", "{1, 2}"), ("tensor", "x * 2")):
            name = self.fresh(kind)
            self.bind(scope, kind, name)
            begin.append(simple(f"{name} = {value}"))
        body = self.block(scope, size)
        left = [name for kind in scope.names.values() for name in kind if name in scope.own]
        last = simple(f"return [{', '.join([*left, 'x', 'items'])}]")
        return Program(seed, (*begin, *body, last), frozenset(self.made))


def generate(seed: int, size: int = 5) -> Program:
    """The program of that seed. Every third one has no graph breaks."""
    return Generator(random.Random(seed), breaks=seed % 3 != 2).program(seed, size)
