"""Errors of our own are neither the user's nor silent; a chain of resumptions is no recompile."""

import warnings

import pytest
import torch

import argand
from argand.capture.outside import real
from argand.sizes.expressions import Expr, Symbol
from argand.sizes.table import SizeTable


def _broken_sin(monkeypatch):
    """Let our fakes fail at one operator."""
    original = real.call

    def call(function, args, kwargs):
        if function is torch.sin:
            return torch.ops.aten.view(args[0], [1 << 20])  # raised below our dispatch
        return original(function, args, kwargs)

    monkeypatch.setattr(real, "call", call)


def test_except_does_not_catch_our_error(monkeypatch):
    def f(x):
        try:
            return torch.sin(x)
        except RuntimeError:
            return x * 0

    _broken_sin(monkeypatch)
    x = torch.ones(3)
    assert torch.equal(argand.compile(f, backend="eager")(x), f(x))
    with pytest.raises(argand.CaptureError, match="B022"):
        argand.compile(f, backend="eager", fullgraph=True)(x)


def test_fullgraph_without_a_graph_says_so(monkeypatch):
    _broken_sin(monkeypatch)
    with pytest.raises(argand.CaptureError, match="B023"):
        argand.compile(lambda x: torch.sin(x), backend="eager", fullgraph=True)(torch.ones(3))


def test_fullgraph_raises_what_eager_raises():
    function = argand.compile(lambda x: x.view(7), backend="eager", fullgraph=True)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="shape '\\[7\\]' is invalid"):
            function(torch.ones(3))


def test_a_chain_of_resumptions_is_no_recompile():
    lines = "\n".join(f"    x = x.sin() + {i}\n    argand.graph_break()" for i in range(12))
    space = {"argand": argand, "torch": torch}
    exec(
        f"def helper(x):\n{lines}\n    return x\ndef outer(x):\n    return helper(x * 2).cos()",
        space,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        function = argand.compile(space["outer"], backend="eager")
        for _ in range(2):
            assert torch.equal(function(torch.ones(3)), space["outer"](torch.ones(3)))


def test_except_does_not_catch_a_failed_look_up_of_a_size(monkeypatch):
    def f(x):
        try:
            return x.sin()
        except KeyError:
            return x * 0

    stranger = Expr.of(Symbol("nobody", 2))
    monkeypatch.setattr(SizeTable, "symbol", lambda self, *_: stranger.evaluate({}))
    x = torch.ones(3, 4)
    with pytest.warns(RuntimeWarning, match="fell back to eager for f"):
        assert torch.equal(argand.compile(f, backend="eager", dynamic=True)(x), f(x))
