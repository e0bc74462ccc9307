"""Make a failing program smaller while it still fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from .program_generator import Program
from .syntax import smaller


def shrink(program: Program, fails: Callable[[Program], bool], limit: int = 600) -> Program:
    """The smallest program found by taking statements away; `limit` trials."""
    trials = 0
    progress = True
    while progress:
        progress = False
        for body in smaller(program.body):
            candidate = replace(program, body=body)
            try:
                compile(candidate.source, "<candidate>", "exec")
            except SyntaxError:
                continue
            trials += 1
            if trials > limit:
                return program
            if fails(candidate):
                program, progress = candidate, True
                break
    return program
