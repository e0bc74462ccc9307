"""Models of `torch.ao.quantization.quantize_dynamic`: one graph, numbers of FBGEMM."""

import warnings

import pytest
import torch
from torch import nn

import argand
from argand.support import events


def quantized(*layers, qconfig=None):
    torch.manual_seed(0)
    spec = {nn.Linear} if qconfig is None else {nn.Linear: qconfig}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.ao.quantization.quantize_dynamic(nn.Sequential(*layers).eval(), spec)


def graphs(collector):
    found = (e for e in collector.events if isinstance(e, events.Count))
    return sum(e.counter == "capture.graphs" for e in found)


@pytest.mark.parametrize("shape", [(1,), (3,), (20,), (2, 5)])
@pytest.mark.parametrize("channels", [False, True])
def test_one_graph_like_eager(shape, channels):
    qconfig = torch.ao.quantization.per_channel_dynamic_qconfig if channels else None
    model = quantized(
        nn.Linear(96, 130), nn.GELU(), nn.Linear(130, 40, bias=False), qconfig=qconfig
    )
    compiled = argand.compile(model, fullgraph=True, options={"cache": False, "measure": False})
    with torch.no_grad(), events.collect() as collector:
        for _ in range(3):
            x = torch.randn(*shape, 96)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=0.02)
    assert graphs(collector) == 1


@pytest.mark.parametrize("factor", [1, 1e-3, 1e-6, 1e-12, 1e6, 0])
@pytest.mark.parametrize("shift", [0, 5, -5])
def test_scales_and_zeros_are_fbgemms(factor, shift):
    model = quantized(nn.Linear(64, 48))
    compiled = argand.compile(model, options={"cache": False, "measure": False})
    x = (torch.randn(7, 64) + shift) * factor
    with torch.no_grad():
        wanted, got = model(x), compiled(x)
    bias = model[0].bias()
    assert (got - wanted).abs().max() <= 1e-6 * max((wanted - bias).abs().max(), bias.abs().max())


def test_another_weight_is_another_graph():
    model, x = quantized(nn.Linear(32, 16)), torch.randn(4, 32)
    compiled = argand.compile(model, options={"cache": False, "measure": False})
    other = quantized(nn.Linear(32, 16), nn.Linear(16, 8))
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))
        model[0].set_weight_bias(other[0].weight(), torch.ones(16))
        torch.testing.assert_close(compiled(x), model(x))


def test_what_the_rule_leaves_to_torch():
    model = quantized(nn.Linear(32, 16))
    packed = model[0]._packed_params._packed_params

    @argand.compile(options={"cache": False})
    def wide(x):
        return torch.ops.quantized.linear_dynamic(x, packed) + 1

    x = torch.randn(4, 32)
    torch.testing.assert_close(wide(x), torch.ops.quantized.linear_dynamic(x, packed) + 1)
    compiled = argand.compile(model, options={"cache": False})
    assert compiled(torch.randn(0, 32)).shape == (0, 16)
    learned = torch.randn(4, 32, requires_grad=True)
    torch.testing.assert_close(compiled(learned), model(learned))
