"""``argand.quantize``: readable models, errors shown, and products that read int8 where it lies."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import argand
from argand.native import build as native
from argand.native.codegen.target import host_target
from argand.quantization import Int8Linear
from argand.support import events
from argand.support.options import Options
from tests.native.tracing import aten_graph, check

OPTIONS = Options(cache=False, verify="forms")
needs_fma = pytest.mark.skipif("+fma" not in host_target().features.split(","), reason="products are torch's here")


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
    torch.testing.assert_close(model.up.weight * model.up.weight_scale[:, None], weight, rtol=0, atol=1e-3)
    assert 0 < model.up.weight_error < 0.02 and 0 < model.down.output_error < 0.02
    assert "output error" in repr(model)
    torch.testing.assert_close(model(x), wanted, rtol=0.05, atol=0.02)
    other = argand.quantize(Model())
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(x), model(x))


def test_what_cannot_be_quantized():
    with pytest.raises(argand.UserError, match="no scheme"):
        argand.quantize(Model(), "int3")
    with pytest.raises(argand.UserError, match="no linear layers"):
        argand.quantize(nn.Sequential(nn.ReLU()))


def test_shared_layers_and_weights():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head, self.once = nn.Embedding(50, 16), nn.Linear(16, 50, bias=False), nn.Linear(16, 16)
            self.head.weight = self.embed.weight
            self.twice = self.once

    model = argand.quantize(Tied())
    assert type(model.head) is nn.Linear and type(model.once) is Int8Linear and model.once is model.twice
    zero = nn.Linear(8, 8)
    nn.init.zeros_(zero.weight)
    assert torch.equal(argand.quantize(nn.Sequential(zero))(torch.randn(3, 8)), zero.bias.expand(3, 8))


@needs_fma
@pytest.mark.parametrize("rows", [1, 5, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_are_read_as_they_are(rows, dtype):
    torch.manual_seed(0)
    x, weight = torch.randn(rows, 200).to(dtype), torch.randint(-127, 128, (400, 200), dtype=torch.int8)
    scale = torch.rand(400).to(dtype) / 1000

    def linear(x, weight, scale):
        return F.silu(F.linear(x, weight.to(x.dtype)) * scale)

    with events.collect() as collector:
        native.build(aten_graph(linear, x, weight, scale), [x, weight, scale], OPTIONS)
    texts = [e.render() for e in collector.events if isinstance(e, events.Artifact) and e.name == "schedule"]
    if dtype is torch.float32 or rows <= 8:
        assert len(texts) == 1 and "i8" in texts[0].splitlines()[0]
    precision = 1e-4 if dtype is torch.float32 else 2e-2
    check(linear, x, weight, scale, options=OPTIONS, rtol=precision, atol=precision)


@needs_fma
def test_a_converted_weight_that_others_read_is_kept():
    x, weight = torch.randn(40, 64), torch.randint(-127, 128, (96, 64), dtype=torch.int8)
    check(lambda x, w: ((y := w.float()), x @ y.t()), x, weight, options=OPTIONS, rtol=1e-4, atol=1e-3)
    check(lambda x, w: x @ (y := w.float()).t() + y.sum(), x, weight, options=OPTIONS, rtol=1e-4, atol=1e-2)
    check(lambda x, w: x @ (w.float() * 2).t(), x, weight, options=OPTIONS, rtol=1e-4, atol=1e-2)
    check(lambda x, w: x @ w.float().t().contiguous(), x, weight, options=OPTIONS, rtol=1e-4, atol=1e-2)


def test_compiled_like_eager():
    torch.manual_seed(0)
    model = argand.quantize(Model().eval())
    compiled = argand.compile(model, options={"cache": False, "measure": False})
    with torch.no_grad(), events.collect() as collector:
        compiled(torch.randn(4, 192))
    assert sum(isinstance(e, events.Count) and e.counter == "capture.graphs" for e in collector.events) == 1
    with torch.no_grad():
        for x in (torch.randn(1, 192), torch.randn(33, 192), torch.randn(2, 70, 192)):
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
