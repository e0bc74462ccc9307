"""Statements of generated programs as a tree, so that a failing program can be shrunk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Clause:
    head: str
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Statement:
    """A simple statement (text), or a compound one (clauses: `if`/`else`, `try`/`except`, ...)."""

    text: str = ""
    clauses: tuple[Clause, ...] = field(default=())

    def lines(self, indent: str) -> Iterator[str]:
        if not self.clauses:
            for line in self.text.splitlines():
                yield indent + line
            return
        for clause in self.clauses:
            yield indent + clause.head
            yield from render(clause.body, indent + "    ")


def simple(text: str) -> Statement:
    return Statement(text)


def compound(*clauses: tuple[str, tuple[Statement, ...]]) -> Statement:
    return Statement("", tuple(Clause(head, body) for head, body in clauses))


def render(body: tuple[Statement, ...], indent: str) -> Iterator[str]:
    if not body:
        yield indent + "pass"
    for statement in body:
        yield from statement.lines(indent)


def smaller(body: tuple[Statement, ...]) -> Iterator[tuple[Statement, ...]]:
    """Bodies with one thing less: largest cuts first. Not all of them are valid Python."""
    half = len(body) // 2
    if half > 1:
        yield body[half:]
        yield body[:half]
    for i, statement in enumerate(body):
        yield body[:i] + body[i + 1 :]
        for clause in statement.clauses:
            yield body[:i] + clause.body + body[i + 1 :]
    for i, statement in enumerate(body):
        for k, clause in enumerate(statement.clauses):
            fewer = statement.clauses[:k] + statement.clauses[k + 1 :]
            if fewer:
                yield (*body[:i], replace(statement, clauses=fewer), *body[i + 1 :])
            for inner in smaller(clause.body):
                changed = (
                    *statement.clauses[:k],
                    replace(clause, body=inner),
                    *statement.clauses[k + 1 :],
                )
                yield (*body[:i], replace(statement, clauses=changed), *body[i + 1 :])
