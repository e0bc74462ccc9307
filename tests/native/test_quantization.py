"""``argand.quantize``: readable models, errors shown, and products that read int8 where it lies."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import argand
from argand.native import build as native
from argand.native.codegen.target import host_target
from argand.quantization import QuantizedLinear, errors
from argand.support import events
from argand.support.options import Options
from tests.native.tracing import aten_graph, check

OPTIONS = Options(cache=False, verify="forms")
needs_fma = pytest.mark.skipif(
    "+fma" not in host_target().features.split(","), reason="products are torch's here"
)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(192, 512), nn.Linear(512, 192, bias=False)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(x)))


def test_the_model_stays_readable():
    torch.manual_seed(0)
    model, x = Model(), torch.randn(20, 192)
    wanted = model(x)
    weight = model.up.weight.detach().clone()
    quantized = argand.quantize(model, "int8", inputs=(x,))
    assert quantized is model and type(model) is Model
    assert set(model.state_dict()) == {
        *("up.weight", "up.weight_scale", "up.bias"),
        *("down.weight", "down.weight_scale"),
    }
    assert model.up.weight.dtype is torch.int8
    torch.testing.assert_close(
        model.up.weight * model.up.weight_scale[:, None], weight, rtol=0, atol=1e-3
    )
    assert 0 < model.up.weight_error < 0.02 and 0 < model.down.output_error < 0.02
    assert "output error" in repr(model)
    torch.testing.assert_close(model(x), wanted, rtol=0.05, atol=0.02)
    assert errors(model)["up"] == (model.up.weight_error, model.up.output_error)
    other = argand.quantize(Model())
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(x), model(x))


def test_what_cannot_be_quantized():
    with pytest.raises(argand.UserError, match="no scheme"):
        argand.quantize(Model(), "int3")
    with pytest.raises(argand.UserError, match="no groups of 7"):
        argand.quantize(Model(), "int4", group=7)
    with pytest.raises(argand.UserError, match="no zeros"):
        argand.quantize(Model(), "dynamic_int8", zeros=True)
    with pytest.raises(argand.UserError, match="no linear layers"):
        argand.quantize(nn.Sequential(nn.ReLU()))


def test_shared_layers_and_weights():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head, self.once = (
                nn.Embedding(50, 16),
                nn.Linear(16, 50, bias=False),
                nn.Linear(16, 16),
            )
            self.head.weight = self.embed.weight
            self.twice = self.once

    model = argand.quantize(Tied())
    assert (
        type(model.head) is nn.Linear
        and type(model.once) is QuantizedLinear
        and model.once is model.twice
    )
    zero = nn.Linear(8, 8)
    nn.init.zeros_(zero.weight)
    assert torch.equal(
        argand.quantize(nn.Sequential(zero))(torch.randn(3, 8)), zero.bias.expand(3, 8)
    )


@needs_fma
@pytest.mark.parametrize("rows", [1, 5, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_are_read_as_they_are(rows, dtype):
    torch.manual_seed(0)
    x, weight = (
        torch.randn(rows, 200).to(dtype),
        torch.randint(-127, 128, (400, 200), dtype=torch.int8),
    )
    scale = torch.rand(400).to(dtype) / 1000

    def linear(x, weight, scale):
        return F.silu(F.linear(x, weight.to(x.dtype)) * scale)

    with events.collect() as collector:
        native.build(aten_graph(linear, x, weight, scale), [x, weight, scale], OPTIONS)
    texts = [
        e.render()
        for e in collector.events
        if isinstance(e, events.Artifact) and e.name == "schedule"
    ]
    if dtype is torch.float32 or rows <= 8:
        assert len(texts) == 1 and "i8" in texts[0].splitlines()[0]
    precision = 1e-4 if dtype is torch.float32 else 2e-2
    check(linear, x, weight, scale, options=OPTIONS, rtol=precision, atol=precision)


@needs_fma
def test_a_converted_weight_that_others_read_is_kept():
    x, weight = torch.randn(40, 64), torch.randint(-127, 128, (96, 64), dtype=torch.int8)
    check(
        lambda x, w: ((y := w.float()), x @ y.t()), x, weight, options=OPTIONS, rtol=1e-4, atol=1e-3
    )
    check(
        lambda x, w: x @ (y := w.float()).t() + y.sum(),
        x,
        weight,
        options=OPTIONS,
        rtol=1e-4,
        atol=1e-2,
    )
    check(lambda x, w: x @ (w.float() * 2).t(), x, weight, options=OPTIONS, rtol=1e-4, atol=1e-2)
    check(
        lambda x, w: x @ w.float().t().contiguous(),
        x,
        weight,
        options=OPTIONS,
        rtol=1e-4,
        atol=1e-2,
    )


WAYS = [
    ("int8", {}, 0.01), ("int8", {"group": 64}, 0.01), ("int8", {"group": 48, "zeros": True}, 0.01), ("int8", {"zeros": True}, 0.01),
    ("int4", {}, 0.1), ("int4", {"group": 64, "zeros": True}, 0.1), ("int4", {"group": 50}, 0.1), ("dynamic_int8", {}, 0.02),
]  # fmt: skip


@pytest.mark.parametrize("scheme,given,error", WAYS, ids=str)
def test_compiled_like_eager(scheme, given, error):
    torch.manual_seed(0)
    model = argand.quantize(Model().eval(), scheme, inputs=(torch.randn(9, 192),), **given)
    assert all(weight < error and output < error for weight, output in errors(model).values())
    compiled = argand.compile(model, options={"cache": False, "measure": False})
    with torch.no_grad(), events.collect() as collector:
        compiled(torch.randn(4, 192))
    assert (
        sum(isinstance(e, events.Count) and e.counter == "capture.graphs" for e in collector.events)
        == 1
    )
    with torch.no_grad():
        for x in (
            torch.randn(1, 192),
            torch.randn(33, 192),
            torch.randn(2, 70, 192),
            torch.zeros(2, 192),
        ):
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)


@needs_fma
@pytest.mark.parametrize(
    "scheme,given",
    [("int8", {"group": 64}), ("int4", {}), ("int4", {"zeros": True}), ("dynamic_int8", {})],
)
def test_no_scheme_writes_a_converted_weight(scheme, given):
    model = argand.quantize(nn.Sequential(nn.Linear(256, 512)).eval(), scheme, **given)
    with torch.no_grad(), events.collect() as collector:
        argand.compile(model, options={"cache": False})(torch.randn(1, 256))
    texts = [
        e.render()
        for e in collector.events
        if isinstance(e, events.Artifact) and e.name == "schedule"
    ]
    assert len(texts) == (2 if scheme == "dynamic_int8" else 1) and texts[-1].startswith(
        "contraction"
    )


def test_rows_that_are_no_numbers():
    torch.manual_seed(0)
    model = argand.quantize(nn.Sequential(nn.Linear(64, 96)).eval(), "dynamic_int8")
    compiled = argand.compile(model, options={"cache": False})
    x = torch.randn(5, 64)
    x[0, 3], x[1, 5], x[2, 7] = torch.nan, torch.inf, -torch.inf
    with torch.no_grad():
        got = compiled(x)
        assert got[:3].isnan().all() and got[3:].isfinite().all()
        torch.testing.assert_close(got, model(x), rtol=1e-4, atol=1e-5, equal_nan=True)


def test_gradients_pass_through():
    model = argand.quantize(nn.Sequential(nn.Linear(64, 96)), "int4")
    x = torch.randn(3, 64, requires_grad=True)
    compiled = argand.compile(model, options={"cache": False})
    (wanted,) = torch.autograd.grad(model(x).square().sum(), x)
    (got,) = torch.autograd.grad(compiled(x).square().sum(), x)
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)
