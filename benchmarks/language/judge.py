"""benchmarks.language.judge: what becomes of one program under one compiler. In: a program. Out: a row.

Outcomes: ``one graph`` (right with ``fullgraph=True``), ``graphs`` (right, with breaks), ``eager`` (right, but nothing
was captured), ``error``, ``wrong``. With ``fullgraph`` and without it results must be eager's.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.language.program import Compile, Program, eager
from benchmarks.sweep import Row, one_line

CLOSE = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float32: 2e-5, torch.float64: 1e-9}


def differs(actual: Any, expected: Any, at: str = "result") -> str:
    """Where two results are not equal, and how; empty where they are."""
    if isinstance(expected, Tensor):
        return _tensors_differ(actual, expected, at)
    if isinstance(expected, np.ndarray):
        same = (
            isinstance(actual, np.ndarray)
            and actual.dtype == expected.dtype
            and actual.shape == expected.shape
        )
        return (
            ""
            if same and np.allclose(actual, expected, 1e-5, 1e-6, equal_nan=True)
            else f"{at}: another array"
        )
    if isinstance(expected, nn.Module):
        return differs(dict(actual.state_dict()), dict(expected.state_dict()), f"{at}.state")
    if type(actual) is not type(expected):
        return f"{at}: {type(actual).__name__} instead of {type(expected).__name__}"
    if isinstance(expected, Mapping):
        if list(actual) != list(expected):
            return f"{at}: keys {list(actual)} instead of {list(expected)}"
        return next(
            filter(
                None, (differs(actual[key], expected[key], f"{at}[{key!r}]") for key in expected)
            ),
            "",
        )
    if isinstance(expected, list | tuple):
        if len(actual) != len(expected):
            return f"{at}: {len(actual)} items instead of {len(expected)}"
        pairs = enumerate(zip(actual, expected, strict=True))
        return next(filter(None, (differs(a, b, f"{at}[{n}]") for n, (a, b) in pairs)), "")
    if isinstance(expected, float | complex | np.generic):
        return (
            ""
            if np.isclose(actual, expected, 1e-5, 1e-7, equal_nan=True)
            else f"{at}: {actual} not {expected}"
        )
    if type(expected).__eq__ is object.__eq__:
        return ""  # an object of the program's own: it is equal to no other one
    return "" if actual == expected else f"{at}: {actual!r} instead of {expected!r}"


def _tensors_differ(actual: Any, expected: Tensor, at: str) -> str:
    if type(actual) is not type(expected):
        return f"{at}: {type(actual).__name__} instead of {type(expected).__name__}"
    if actual.requires_grad != expected.requires_grad:
        return f"{at}: requires_grad is {actual.requires_grad}"
    close = CLOSE.get(expected.dtype, 1e-5)
    try:
        torch.testing.assert_close(actual, expected, rtol=close, atol=close, equal_nan=True)
    except AssertionError as error:
        return f"{at}: {one_line(error, 160)}"
    return ""


class Rival:
    """torch.compile."""

    name = "torch"

    def __init__(self, backend: str) -> None:
        import torch._dynamo

        self.backend = torch._dynamo.lookup_backend(backend)

    @contextmanager
    def counted(self, fullgraph: bool) -> Iterator[tuple[Compile, list[int]]]:
        """The compiler, and a list that grows by one with each graph."""
        import torch._dynamo

        graphs: list[int] = []

        def noting(graph: torch.fx.GraphModule, inputs: list[Any], **rest: Any) -> Any:
            graphs.append(sum(node.op.startswith("call") for node in graph.graph.nodes))
            return self.backend(graph, inputs, **rest)

        def compile_(function: Any = None, **keywords: Any) -> Any:
            return torch.compile(
                function, **{"fullgraph": fullgraph, "backend": noting, **keywords}
            )

        torch._dynamo.reset()
        yield compile_, graphs


class Ours:
    """argand.compile."""

    name = "argand"

    @contextmanager
    def counted(self, fullgraph: bool) -> Iterator[tuple[Compile, list[int]]]:
        """The compiler, and a list that grows by one with each graph."""
        import argand
        from argand.support import events

        graphs: list[int] = []

        def hear(event: Any) -> None:
            if isinstance(event, events.Count) and event.counter == "capture.graphs":
                graphs.append(event.amount)

        def compile_(function: Any = None, **keywords: Any) -> Any:
            return argand.compile(function, **{"fullgraph": fullgraph, **keywords})

        argand.reset()
        unsubscribe = events.subscribe(hear)
        try:
            yield compile_, graphs
        finally:
            unsubscribe()


def _seeded(run: Callable[[], Any]) -> Any:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    return run()


def judge(program: Program, engine: Ours | Rival) -> Row:
    """Run a program in eager, as one graph, and with breaks allowed."""
    expected = _seeded(lambda: program.run(eager))
    strict = _attempt(program, engine, expected, fullgraph=True)
    if strict["status"] in ("right", "wrong") and (strict["graphs"] or strict["status"] == "wrong"):
        return strict | {"status": "one graph" if strict["status"] == "right" else "wrong"}
    loose = _attempt(program, engine, expected, fullgraph=False)
    cause = strict["cause"] or loose["cause"]
    if loose["status"] == "right":
        return loose | {"status": "graphs" if loose["graphs"] else "eager", "cause": cause}
    return loose


def _attempt(program: Program, engine: Ours | Rival, expected: Any, *, fullgraph: bool) -> Row:
    with engine.counted(fullgraph) as (compile_, graphs), warnings.catch_warnings():
        warnings.simplefilter("default" if engine.name == "argand" else "ignore")
        try:
            actual = _seeded(lambda: program.run(compile_))
        except Exception as error:
            return {"status": "error", "graphs": len(graphs), "cause": one_line(error)}
    wrong = differs(actual, expected)
    return {"status": "wrong" if wrong else "right", "graphs": len(graphs), "cause": wrong}
