"""nn.Module as users have it: containers, hooks, parametrizations, buffers, training flags."""

import copy

import pytest
import torch
from torch import nn

import argand
from argand.support import events


def compiled(function, **keywords):
    return argand.compile(function, backend="eager", options={"strict": True}, **keywords)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.named = nn.ModuleDict({"norm": nn.LayerNorm(4), "act": nn.GELU()})
        self.seq = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Dropout(0.5))
        self.weights = nn.ParameterList([nn.Parameter(torch.ones(4))])
        self.register_buffer("seen", torch.zeros(()))
        self.calls = 0

    def forward(self, x, scale=1.0):
        self.calls += 1
        self.seen += 1
        for i, layer in enumerate(self.layers):
            x = layer(x) * (i + 1)
        for layer in self.layers[1:]:
            x = layer(x)
        x = self.named["act"](self.named["norm"](x))
        for name, module in self.named.items():
            x = module(x) if name == "act" else x
        return self.seq(x) * self.weights[0] * scale + self.seen


def test_module_is_one_graph_and_changes_like_eager():
    eager = Net().eval()
    traced = copy.deepcopy(eager)
    run = compiled(traced, fullgraph=True)
    x = torch.randn(2, 4)
    for scale in (1.0, 1.0, 2.0):
        torch.testing.assert_close(run(x, scale=scale), eager(x, scale=scale), rtol=0, atol=0)
    assert (traced.calls, traced.seen.item()) == (eager.calls, eager.seen.item())


def test_training_flag_and_gradients():
    eager = Net()
    traced = copy.deepcopy(eager)
    run = compiled(traced, fullgraph=True)
    x = torch.randn(2, 4)
    for mode in (True, False, True):
        eager.train(mode), traced.train(mode)
        torch.manual_seed(0)
        want = eager(x)
        torch.manual_seed(0)
        got = run(x)
        torch.testing.assert_close(got, want, rtol=0, atol=0)
        want.sum().backward()
        got.sum().backward()
    for a, b in zip(eager.parameters(), traced.parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None)
        if a.grad is not None:
            torch.testing.assert_close(a.grad, b.grad, rtol=0, atol=0)


def test_hooks_run_and_are_guarded():
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    run = compiled(net)
    x = torch.randn(3, 2)
    run(x)
    handles = [
        net[0].register_forward_hook(lambda module, args, out: out * 2),
        net[1].register_forward_pre_hook(lambda module, args: (args[0] + 1,)),
        net.register_forward_hook(lambda module, args, kwargs, out: out - 1, with_kwargs=True),
    ]
    torch.testing.assert_close(run(x), net(x))
    for handle in handles:
        handle.remove()
    torch.testing.assert_close(run(x), net(x))


def test_parametrization():
    class Symmetric(nn.Module):
        def forward(self, w):
            return w.triu() + w.triu(1).mT

    net = nn.Linear(3, 3)
    nn.utils.parametrize.register_parametrization(net, "weight", Symmetric())
    x = torch.randn(2, 3)
    torch.testing.assert_close(compiled(net, fullgraph=True)(x), net(x))


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
        lambda: nn.Sequential(nn.Conv1d(6, 4, 3), nn.BatchNorm1d(4), nn.ReLU(), nn.MaxPool1d(2)),
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(48, 4), nn.Softmax(-1)),
        lambda: nn.GRU(8, 5, batch_first=True, bidirectional=True),
        lambda: nn.LSTM(8, 5),
        lambda: nn.Bilinear(8, 8, 3),
    ],
)
@pytest.mark.parametrize("training", [True, False])
def test_torch_modules(make, training):
    net = make().train(training)
    twin = copy.deepcopy(net)
    x = torch.randn(4, 6, 8)
    args = (x, x) if isinstance(net, nn.Bilinear) else (x,)
    run = compiled(net, fullgraph=True)
    for _ in range(2):
        torch.manual_seed(0)
        want = twin(*args)
        torch.manual_seed(0)
        torch.testing.assert_close(run(*args), want)
    for key, value in twin.state_dict().items():
        torch.testing.assert_close(net.state_dict()[key], value)


def test_attribute_on_the_class_and_on_the_instance():
    class Scaled(nn.Module):
        factor = 2

        def forward(self, x):
            return x * self.factor

    net = Scaled()
    run = compiled(net, fullgraph=True)
    x = torch.ones(1)
    assert run(x).item() == 2
    Scaled.factor = 3
    assert run(x).item() == 3
    net.factor = 4
    assert run(x).item() == 4
    del net.factor
    net.forward = lambda x: x - 1
    assert run(x).item() == 0


def test_output_class_with_attributes():
    class Output(dict):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.note = "made"

        @property
        def logits(self):
            return self["logits"]

    def f(x):
        out = Output(logits=x + 1)
        out["extra"] = out.logits * 2
        return out

    got = compiled(f, fullgraph=True)(torch.ones(2))
    assert type(got) is Output and got.note == "made" and list(got) == ["logits", "extra"]
    assert got.logits is got["logits"]


def test_module_is_traced_once_per_shape():
    net = nn.Linear(4, 4)
    run = compiled(net)
    with events.collect() as heard:
        for _ in range(3):
            run(torch.ones(2, 4))
    assert heard.total("capture.graphs") == 1


class Growing(nn.Module):
    """Makes, replaces and removes members while it runs."""

    def __init__(self):
        super().__init__()
        self.plain = nn.Linear(3, 3)
        self.late = None
        self.gone = nn.ReLU()
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x):
        if self.late is None:
            self.late = nn.Sequential(nn.Dropout(0.5), self.plain)
            self.extra = nn.Dropout(0.9)
            del self.gone
            self.shared = self.plain.weight
            if not self.training:
                self.eval()
        self.seen = self.seen + x.sum(0)
        count = sum(b.sum() for b in self.buffers())
        names = [name for name, _ in self.named_children()]
        shapes = [tuple(p.shape) for _, p in self.named_parameters()]
        return self.extra(self.late(x)) + count, names, shapes


def test_members_made_inside_are_seen_by_the_module():
    torch.manual_seed(0)
    eager = Growing().eval()
    ours = copy.deepcopy(eager)
    run = argand.compile(ours, backend="eager")
    for x in (torch.randn(2, 3), torch.randn(2, 3)):
        want, got = eager(x), run(x)
        torch.testing.assert_close(got[0], want[0])
        assert got[1:] == want[1:]
    assert str(ours) == str(eager) and list(ours.state_dict()) == list(eager.state_dict())
    assert [m.training for m in ours.modules()] == [m.training for m in eager.modules()]
    assert vars(ours).keys() == vars(eager).keys()


def test_a_member_of_the_wrong_kind_is_refused_as_in_eager():
    class Wrong(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.ReLU()

        def forward(self, x):
            self.inner = 3
            return x + 1

    with pytest.raises(TypeError, match="cannot assign"):
        argand.compile(Wrong(), backend="eager")(torch.ones(1))


def test_modules_are_made_inside_also_after_torch_compile_ran(monkeypatch):
    init = nn.Module.__init__

    def patched_init(self, *args, **kwargs):
        init(self, *args, **kwargs)

    # torch.compile leaves such a wrapper; importing it takes seconds
    patched_init.__module__ = "torch._dynamo.mutation_guard"
    patched_init.__qualname__ = "install_generation_tagging_init.<locals>.patched_init"
    monkeypatch.setattr(nn.Module, "__init__", patched_init)

    def f(x):
        return nn.Sequential(nn.ReLU(), nn.Dropout(0.0))(x)

    assert compiled(f, fullgraph=True)(-torch.ones(1)).item() == 0


def test_lazy_modules_make_their_parameters_before_one_graph():
    def results(compile_):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.LazyLinear(4), torch.nn.ReLU(), torch.nn.LazyLinear(2))
        compiled = compile_(model)
        return [compiled(torch.ones(3, 5)).detach() for _ in range(2)], model.state_dict()

    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    expected = results(lambda model: model)
    actual = results(lambda model: argand.compile(model, backend=backend, fullgraph=True))
    torch.testing.assert_close(actual, expected)
    assert len(graphs) == 1
