"""Vector widths this machine need not have: the portable one runs right, AVX-512 compiles."""

import pytest
import torch
import torch.nn.functional as F

from argand.native import build as native
from argand.native.codegen.target import Target
from argand.support import events
from argand.support.options import Options
from tests.native.fuzz import check_typed
from tests.native.tracing import aten_graph, check

PORTABLE = Target("x86-64", "", 16)  # SSE2: no fused multiply-add, no half conversions
AVX512 = Target("skylake-avx512", "", 64)
OPTIONS = Options(cache=False, verify="forms")


def program(x, weight):
    scores = F.softmax(x.float() @ weight, -1)
    return (
        F.gelu(scores),
        scores.argmax(-1),
        (x * 2).bfloat16(),
        F.layer_norm(scores, scores.shape[-1:]),
        x.sum(0),
    )


def maths(x):
    y = x.abs() + 0.5
    several = (
        x.exp(),
        y.log(),
        x.tanh(),
        x.sigmoid(),
        x.sin(),
        x.cos(),
        torch.erf(x),
        F.silu(x),
        y.rsqrt(),
        y**1.7,
    )
    return (
        *several,
        torch.log1p(y),
        torch.expm1(x),
        torch.atan2(x, y),
        F.softplus(x),
        x.to(torch.int32),
        x.half(),
    )


@pytest.fixture
def on(monkeypatch):
    return lambda target: monkeypatch.setattr(native, "host_target", lambda: target)


def test_the_portable_width_is_right(on):
    on(PORTABLE)
    x = torch.randn(7, 37)
    check(program, x, torch.randn(37, 21), options=OPTIONS, rtol=1e-5, atol=1e-6)
    for values in (x * 4, (x * 4).double()):
        check(maths, values, options=OPTIONS, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", range(0, 40, 5))
def test_random_programs_on_the_portable_width(on, seed):
    on(PORTABLE)
    reason = check_typed(seed, OPTIONS)
    assert reason is None, reason


def test_avx512_compiles(on):
    on(AVX512)
    x = torch.randn(7, 37)
    for function, inputs in (
        (program, (x, torch.randn(37, 21))),
        (maths, (x,)),
        (maths, (x.double(),)),
    ):
        graph = aten_graph(function, *inputs)
        with events.collect() as collector:
            built = native.build(graph, list(inputs), OPTIONS)
        text = next(
            e.render()
            for e in collector.events
            if isinstance(e, events.Artifact) and e.name == "output_code"
        )
        wide = "<8 x double>" if inputs[0].dtype is torch.float64 else "<16 x float>"
        assert built.code.startswith(b"\x7fELF") and wide in text


def test_half_conversions_without_f16c(on):
    on(PORTABLE)
    halves = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(torch.float16)
    floats = torch.cat(
        [halves.float() * 1.0003, halves.float() * 0.9997, torch.logspace(-9, 6, 4000)]
    )
    check(lambda h: h.float(), halves, options=OPTIONS, rtol=0, atol=0)
    check(lambda x: x.half(), floats, options=OPTIONS, rtol=0, atol=0)
