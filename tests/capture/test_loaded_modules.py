"""`sys.modules` is asked for one name at a time; modules that `torch.fx` made are modules."""

import sys
import types

import torch

import argand
from argand.support import events

OWN = {"cache": False, "measure": False}


def told(call, *arguments):
    """A result, and how many breaks and compiles there were."""
    with events.collect() as seen:
        result = call(*arguments)
    return result, seen.total("capture.breaks"), seen.total("compiles")


def test_a_name_among_the_loaded_modules_is_guarded_and_nothing_else(monkeypatch):
    def program(x):
        if "strangers_extra" in sys.modules:
            x = x * sys.modules["strangers_extra"].scale
        there = sys.modules.get("strangers_extra"), sys.modules.get("math").pi
        try:
            sys.modules["strangers_missing"]
        except KeyError as missing:
            return x + there[1], there[0] is None, missing.args
        return x

    call, x = argand.compile(program, options=OWN), torch.ones(3)
    made = types.ModuleType("strangers_extra")
    made.scale = 5.0

    def same(compiles):
        answer, breaks, new = told(call, x)
        assert answer[1:] == program(x)[1:] and torch.equal(answer[0], program(x)[0])
        assert (breaks, new) == (0, compiles)

    same(1)
    monkeypatch.setitem(sys.modules, "strangers_other", types.ModuleType("strangers_other"))
    same(0)
    monkeypatch.setitem(sys.modules, "strangers_extra", made)
    same(1)
    monkeypatch.setattr(made, "scale", 6.0)
    same(1)
    monkeypatch.delitem(sys.modules, "strangers_extra")
    same(0)


def test_what_nobody_answers_of_the_loaded_modules_is_a_break(monkeypatch):
    def program(x):
        sys.modules["strangers_written"] = sys
        return x + len(sys.modules)

    call = argand.compile(program, options=OWN)
    assert torch.equal(call(torch.ones(3)), program(torch.ones(3)))
    assert sys.modules.pop("strangers_written") is sys


class Inner(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)

    def forward(self, x):
        return self.layer(x).relu() + 1


def test_a_graph_module_inside_of_a_module_is_captured():
    graph = torch.fx.symbolic_trace(Inner())
    outer = torch.nn.Sequential(graph, torch.nn.Tanh())
    call, x = argand.compile(outer, fullgraph=True, options=OWN), torch.randn(2, 3)
    torch.testing.assert_close(call(x), outer(x))
    handle = graph.register_forward_hook(lambda module, given, result: result * 2)
    torch.testing.assert_close(call(x), outer(x))
    handle.remove()
    for node in graph.graph.nodes:
        if node.name == "relu":
            with graph.graph.inserting_after(node):
                extra = graph.graph.call_function(torch.neg, (node,))
            node.replace_all_uses_with(
                extra, delete_user_cb=lambda user, new=extra: user is not new
            )
    graph.recompile()
    assert told(call, x)[1:] == (0, 1)
    torch.testing.assert_close(call(x), outer(x))


def test_a_class_of_a_graph_with_a_call_of_its_own_is_called_by_it():
    class Doubled(torch.fx.GraphModule):
        def __call__(self, x):
            return super().__call__(x) * 2

    traced = torch.fx.symbolic_trace(Inner())
    graph = Doubled(traced, traced.graph)
    call, x = argand.compile(lambda x: graph(x) + 1, options=OWN), torch.randn(2, 3)
    torch.testing.assert_close(call(x), graph(x) + 1)
