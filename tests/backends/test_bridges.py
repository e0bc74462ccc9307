"""Bridges to other compilers: real where their package is installed, a hint where it is not."""

import importlib.util
import sys
import threading
import types

import pytest
import torch
from torch import nn

import argand
from argand.backends import registry
from argand.support import events
from argand.support.errors import BackendCompilerFailed, InvalidBackend

PACKAGES = {"onnxrt": "onnxruntime", "openvino": "openvino", "tvm": "tvm"}
HERE = [name for name, module in PACKAGES.items() if importlib.util.find_spec(module)]


@pytest.fixture(autouse=True)
def clean():
    yield
    argand.reset()


class Block(nn.Module):
    """Ops the converter knows, one it does not (cumsum), indices and reductions."""

    def __init__(self):
        super().__init__()
        self.table, self.first, self.second = nn.Embedding(11, 8), nn.Linear(8, 6), nn.Linear(6, 4)

    def forward(self, tokens):
        x = torch.nn.functional.gelu(self.first(self.table(tokens)))
        x = torch.cumsum(x * 2 - 1, 0)
        return torch.softmax(self.second(x), -1), x.mean(1, keepdim=True)


def test_the_bridges_of_the_development_environment_are_here():
    assert {"onnxrt", "openvino"} <= set(HERE)


@pytest.mark.parametrize("name", HERE)
def test_bridge_trains_like_eager_and_torch_runs_the_rest(name):
    torch.manual_seed(0)
    model, tokens = Block(), torch.randint(0, 11, (5,))
    expected = model(tokens)
    sum(part.square().sum() for part in expected).backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    compiled = argand.compile(model, backend=name, fullgraph=True)
    got = compiled(tokens)
    sum(part.square().sum() for part in got).backward()
    for one, other in zip(got, expected, strict=True):
        assert torch.allclose(one, other, atol=1e-5) and one.stride() == other.stride()
    for gradient, parameter in zip(gradients, model.parameters(), strict=True):
        assert torch.allclose(gradient, parameter.grad, atol=1e-4)


@pytest.mark.parametrize("name", HERE)
def test_two_threads_share_a_compiled_graph(name):
    compiled = argand.compile(lambda x: (x.exp() + 1).log().sum(1), backend=name)
    inputs = [torch.randn(4, 5) for _ in range(4)]
    with torch.no_grad():
        compiled(inputs[0])
    wrong = []

    def work(x):
        with torch.no_grad():
            for _ in range(5):
                if not torch.allclose(compiled(x), (x.exp() + 1).log().sum(1), atol=1e-5):
                    wrong.append(x)

    threads = [threading.Thread(target=work, args=(x,)) for x in inputs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("name", HERE)
def test_wide_integers_stay_exact(name):
    def f(x):
        return x * 2 + 1

    x = torch.tensor([2**40 + 3, -5])
    assert torch.equal(argand.compile(f, backend=name)(x), f(x))


OPTIONS = {
    "onnxrt": [None],
    "openvino": [{"PERFORMANCE_HINT": "LATENCY"}],
    "tvm": [{"scheduler": None}, {"opt_level": 0}],
}


@pytest.mark.parametrize("name", HERE)
def test_options_reach_the_package(name):
    x = torch.randn(3, 4)
    for options in OPTIONS[name]:
        compiled = argand.compile(lambda t: (t * 2).relu() + t, backend=name, options=options)
        assert torch.allclose(compiled(x), (x * 2).relu() + x)


def test_tvm_refuses_what_it_cannot_do():
    f = argand.compile(
        lambda t: t + 1, backend="tvm", options={"scheduler": "meta"}, fullgraph=True
    )
    with pytest.raises(BackendCompilerFailed, match="NotImplementedError: scheduler 'meta'"):
        f(torch.randn(2))


@pytest.mark.parametrize("name", PACKAGES)
def test_a_missing_package_gives_a_hint(name, monkeypatch):
    monkeypatch.setitem(sys.modules, PACKAGES[name], None)
    compiled = argand.compile(lambda t: t + 1, backend=name, fullgraph=True)
    with pytest.raises(BackendCompilerFailed, match="hint: pip install ") as caught:
        compiled(torch.randn(2))
    assert isinstance(caught.value.inner_exception, InvalidBackend)


def test_a_declined_part_is_halved_until_the_rest_is_taken(monkeypatch):
    from argand.backends.bridges import onnx_readers

    taken = []

    def refuses_sin(gm, inputs, open_model, **keywords):
        def open_without_sin(model):
            ops = [node.op_type for node in model.graph.node]
            if "Sin" in ops:
                raise RuntimeError("no sines here")
            taken.extend(ops)
            return open_model(model)

        return original(gm, inputs, open_without_sin, **keywords)

    original = onnx_readers.compile_with_onnx
    monkeypatch.setattr(onnx_readers, "compile_with_onnx", refuses_sin)

    def f(x):
        return (x.exp() * 2).sin().tanh() + x.relu()

    x = torch.randn(3, 4)
    with events.collect() as heard, torch.no_grad():
        assert torch.allclose(argand.compile(f, backend="onnxrt")(x), f(x), atol=1e-6)
    assert sorted(taken) == ["Add", "Exp", "Mul", "Relu", "Tanh"]
    assert any("no sines here" in text for text in heard.texts("perf_hints"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cudagraphs", "needs a device of type 'cuda', which is not here"),
        ("openxla", "needs the package 'torch_xla'"),
        ("hpu_backend", "needs the package 'habana_frameworks'"),
    ],
)
def test_backends_of_absent_devices(name, words, monkeypatch):
    if name == "cudagraphs":
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert name not in registry.list_backends(None)
    with pytest.raises(InvalidBackend, match=words):
        argand.compile(lambda x: x, backend=name)


def test_backends_of_devices_appear_with_package_and_device(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for name in ("torch_xla", "habana_frameworks"):
        module = types.ModuleType(name)
        module.__spec__ = importlib.util.spec_from_loader(name, None)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(
        torch, "hpu", types.SimpleNamespace(is_available=lambda: True), raising=False
    )
    assert {"cudagraphs", "openxla", "hpu_backend"} <= set(registry.list_backends())
    asked = []

    def lookup(name):
        asked.append(name)
        return lambda gm, inputs: gm.forward

    of_torch = types.SimpleNamespace(lookup_backend=lookup)
    monkeypatch.setitem(sys.modules, "torch._dynamo.backends.registry", of_torch)
    x = torch.randn(3)
    compiled = argand.compile(lambda t: t.sin() + 1, backend="cudagraphs", fullgraph=True)
    assert torch.equal(compiled(x), x.sin() + 1) and asked == ["cudagraphs"]
