"""The interpreter as a machine: every opcode has an answer, nothing heavy is imported, nothing leaks."""

import gc
import subprocess
import sys
import textwrap
import warnings
import weakref

import pytest
import torch

import argand
from argand.bytecode import ROWS
from argand.capture.interpret.opcodes.table import HANDLED, REFUSED
from argand.support.errors import CaptureError


def test_every_instruction_has_an_answer():
    """Handled or refused; that every opcode is such an instruction is tests/bytecode's."""
    assert ROWS.keys() == HANDLED.keys() | REFUSED.keys()
    assert not HANDLED.keys() & REFUSED.keys()


def test_a_compile_imports_no_compiler_of_torch():
    script = """
        import sys, torch, argand
        from torch import nn
        net = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        x = torch.randn(2, 4, 16)
        argand.compile(net, backend="eager", fullgraph=True)(x).sum().backward()
        def f(x):
            if x.sum() > 0:
                x = x + 1
            return x.relu()
        argand.compile(f, backend="eager")(x)
        heavy = ("torch._dynamo", "torch._inductor", "sympy")
        found = [name for name in sys.modules if name.startswith(heavy)]
        assert not found, found[:5]
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_fullgraph_tells_reason_stack_and_hint():
    def inner(x):
        return float(x.sum())

    def f(x):
        return x * inner(x)

    with pytest.raises(CaptureError, match="B004") as info:
        argand.compile(f, backend="eager", fullgraph=True)(torch.ones(2))
    text = str(info.value)
    assert "in f" in text and "in inner" in text and "hint" in text


def test_marks():
    calls = []

    @argand.disable
    def eager_only(x):
        calls.append(1)
        return x + 1

    @argand.allow_in_graph
    def one_node(x):
        return x * 2 + 1

    @argand.assume_constant_result
    def number():
        calls.append(2)
        return 3

    def f(x):
        return one_node(eager_only(x)) * number()

    graphs = []

    def keep(module, inputs):
        graphs.append(module)
        return module

    run = argand.compile(f, backend=keep)
    for _ in range(2):
        assert run(torch.ones(1)).item() == 15
    assert calls == [1, 2, 1]
    names = [node.name for graph in graphs for node in graph.graph.nodes]
    assert "one_node" in names
    with pytest.raises(CaptureError, match="B006"):
        argand.compile(f, backend=keep, fullgraph=True)(torch.ones(1))


def test_graph_has_names_places_and_values():
    graphs = []

    def keep(module, inputs):
        graphs.append((module, inputs))
        return module

    net = torch.nn.Linear(2, 3)

    def f(x):
        unused = x + 100  # noqa: F841
        return torch.relu(net(x))

    x = torch.ones(1, 2)
    argand.compile(f, backend=keep)(x)
    ((module, inputs),) = graphs
    nodes = list(module.graph.nodes)
    assert [n.target for n in nodes if n.op == "placeholder"] == [
        "L_x_",
        "L_net_weight_",
        "L_net_bias_",
    ]
    assert inputs[0] is x and inputs[1] is net.weight
    calls = [n for n in nodes if n.op == "call_function"]
    assert [n.name for n in calls] == ["linear", "relu"]
    assert "return torch.relu(net(x))" in calls[1].meta["stack_trace"]
    assert calls[1].meta["example_value"].shape == (1, 3)


def test_a_dropped_model_is_collected():
    class Holder(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x) + self.in_features

    refs = []
    for _ in range(3):
        net = Holder(2, 2)
        run = argand.compile(net, backend="eager")
        run(torch.ones(1, 2))
        refs.append(weakref.ref(net))
        del net, run
    gc.collect()
    assert [ref() for ref in refs] == [None, None, None]


def test_threads():
    import threading

    def f(x, n):
        for i in range(n):
            x = torch.sin(x) + i
        return x

    run = argand.compile(f, backend="eager")
    wrong = []

    def work(n):
        x = torch.full((3,), float(n))
        for _ in range(5):
            if not torch.equal(run(x, n), f(x, n)):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_checkpoint_marks_its_nodes():
    from torch.utils.checkpoint import checkpoint

    graphs = []

    def keep(module, inputs):
        graphs.append(module)
        return module

    def f(x):
        y = checkpoint(lambda t: t.sin().cos(), x, use_reentrant=False)
        return y + 1

    x = torch.ones(2, requires_grad=True)
    argand.compile(f, backend=keep, fullgraph=True)(x)
    marks = {n.name: n.meta.get("checkpoint") for n in graphs[0].graph.nodes if "call" in n.op}
    assert marks == {"sin": 0, "cos": 0, "add": None}


def test_many_compiles_leave_nothing_behind():
    def cycle():
        net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())

        def f(x, items):
            items.append(1)
            y = net(x)
            if y.sum() > 1e9:
                y = y + 1
            return y * 2

        argand.compile(f, backend="eager")(torch.ones(1, 4), [])

    counts = []
    for _ in range(3):
        for _ in range(8):
            cycle()
        gc.collect()
        counts.append(len(gc.get_objects()))
    assert counts[2] - counts[1] < 8 * 5, counts


def test_our_own_bug_is_eager_with_one_warning(monkeypatch):
    from argand.capture.record.recorder import Recorder

    monkeypatch.setattr(Recorder, "argument", None)

    def f(x):
        try:
            return x + 1
        except TypeError:
            return None  # not the user's exception: must not be caught here

    run = argand.compile(f, backend="eager")
    with pytest.warns(RuntimeWarning, match="fell back to eager"):
        assert run(torch.ones(1)).item() == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(torch.ones(1)).item() == 2
    with pytest.raises(argand.InternalError):
        argand.compile(f, backend="eager", options={"strict": True})(torch.ones(1))
    with pytest.raises(argand.InternalError):  # the user asked for one graph: eager is none
        argand.compile(f, backend="eager", fullgraph=True)(torch.ones(1))
