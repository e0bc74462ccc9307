"""Products with weights of 8 and 4 bits, per channel and per group, with zeros and without, against float64."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from argand.native import build as native
from argand.native.codegen.target import Target, host_target
from argand.native.ir.loops_text import parse_kernel, print_kernel
from argand.support import events
from argand.support.options import Options
from tests.native.tracing import aten_graph, run

OPTIONS = Options(cache=False, verify="forms")
AVX2 = Target("haswell", "+avx,+avx2,+f16c,+fma,+sse4.2", 32)
needs_avx2 = pytest.mark.skipif(
    "+fma" not in host_target().features.split(","), reason="products are torch's here"
)


@pytest.fixture(params=["host", "avx2"])
def target(request, monkeypatch):
    targets = {"host": host_target(), "avx2": AVX2}
    monkeypatch.setattr(native, "host_target", lambda: targets[request.param])


def halves(packed):
    pairs = packed[..., None]
    return torch.where(torch.arange(2) == 1, pairs >> 4, pairs & 15).flatten(-2)


def weights(q, zero, scale, bits, dtype):
    whole = halves(q) if bits == 4 else q  # [outputs, groups, elements]
    return ((whole.to(dtype) - zero.to(dtype)[..., None]) * scale.to(dtype)[..., None]).flatten(1)


def given(bits, outputs, groups, group, kind, dtype=torch.float32):
    torch.manual_seed(0)
    if bits == 4:
        q = torch.randint(0, 256, (outputs, groups, group // 2), dtype=torch.uint8)
    else:
        q = torch.randint(-128, 128, (outputs, groups, group), dtype=torch.int8)
    scale = (torch.rand(outputs, groups) / 64 + 0.01).to(dtype)
    zero = torch.randint(0, 16, (outputs, groups)).to(kind)
    return q, zero, scale


def texts(function, *inputs):
    with events.collect() as collector:
        native.build(aten_graph(function, *inputs), list(inputs), OPTIONS)
    return [
        e.render()
        for e in collector.events
        if isinstance(e, events.Artifact) and e.name == "schedule"
    ]


def near(function, x, q, zero, scale, bits, inside=True):
    """Like float64, as far as a sum of this length may be off; ``inside``: no kernel writes the converted weight."""
    seen = texts(function, x, q, zero, scale)
    if inside:
        assert len(seen) == 1 and f" q{bits} " in seen[0], seen
        assert print_kernel(parse_kernel(seen[0])) == seen[0].rstrip()
    _, (got,) = run(function, x, q, zero, scale, options=OPTIONS)
    whole = weights(q, zero, scale, bits, torch.float64)
    wanted = x.double() @ whole.t()
    assert got.shape == wanted.shape and got.dtype == x.dtype
    bound = (x.double().abs().max() * whole.abs().max() * x.shape[-1]).item()
    error = 2.0**-22 if x.dtype is torch.float32 else 2.0**-6
    assert torch.isfinite(got).all() and (got.double() - wanted).abs().max().item() <= error * max(
        bound, 1e-30
    )


@needs_avx2
@pytest.mark.parametrize("rows", [1, 5, 20])
@pytest.mark.parametrize(
    "bits,group,groups",
    [(8, 32, 16), (8, 128, 3), (4, 32, 16), (4, 64, 5), (4, 128, 2), (4, 2048, 3)],
)
def test_groups_with_zeros(target, rows, bits, group, groups):
    outputs = 515 if group < 2048 else 48
    q, zero, scale = given(bits, outputs, groups, group, torch.int8 if rows < 9 else torch.float32)
    x = torch.randn(rows, group * groups)
    near(lambda x, q, z, s: F.linear(x, weights(q, z, s, bits, x.dtype)), x, q, zero, scale, bits)


@needs_avx2
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("rows", [1, 6, 33])
def test_symmetric(target, rows, bits):
    q, _, scale = given(bits, 300, 4, 96 if rows < 9 else 64, torch.int8)
    middle = 8 if bits == 4 else 0

    def product(x, q, _, s):
        whole = halves(q) if bits == 4 else q
        return F.linear(x, ((whole.to(x.dtype) - middle) * s[..., None]).flatten(1))

    near(
        product,
        torch.randn(rows, q.shape[1] * (96 if rows < 9 else 64)),
        q,
        torch.full((300, 4), middle),
        scale,
        bits,
    )


@needs_avx2
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bits", [8, 4])
def test_few_rows_of_halves(target, bits, dtype):
    q, zero, scale = given(bits, 400, 4, 64, torch.int8, dtype)
    near(
        lambda x, q, z, s: F.linear(x, weights(q, z, s, bits, x.dtype)),
        torch.randn(2, 256).to(dtype),
        q,
        zero,
        scale,
        bits,
    )


@needs_avx2
@pytest.mark.parametrize("rows,bits", itertools.product((1, 12), (8, 4)))
def test_values_that_are_no_numbers(target, rows, bits):
    q, zero, scale = given(bits, 300, 4, 64, torch.int8)
    function = lambda x, q, z, s: F.linear(x, weights(q, z, s, bits, x.dtype))  # noqa: E731
    for value in (torch.inf, -torch.inf, torch.nan, 3e38):
        x = torch.randn(rows, 256)
        x[0, 70] = value
        eager, (got,) = run(function, x, q, zero, scale, options=OPTIONS)
        torch.testing.assert_close(got, eager[0], rtol=1e-4, atol=1e-3, equal_nan=True)
    near(function, torch.randn(rows, 256) * 1e-30, q, zero, scale, bits)


def test_groups_that_fit_no_vector_are_right():
    for bits, group, groups in ((8, 7, 40), (8, 20, 16), (4, 10, 31), (4, 2, 200), (8, 1, 300)):
        q, zero, scale = given(bits, 300, groups, group, torch.int8)
        for rows in (1, 20):
            x = torch.randn(rows, group * groups)
            near(
                lambda x, q, z, s: F.linear(x, weights(q, z, s, bits, x.dtype)),
                x,
                q,
                zero,
                scale,
                bits,
                False,
            )  # noqa: B023


@needs_avx2
def test_per_channel_and_for_all(target):
    x, q = torch.randn(3, 256), torch.randint(-128, 128, (400, 256), dtype=torch.int8)
    for shape in ((400, 1), (1, 1), ()):
        zero, scale = torch.randint(-9, 9, shape, dtype=torch.int8), torch.rand(shape) / 64
        function = lambda x, q, z, s: F.linear(
            x, (q.to(torch.int32) - z.to(torch.int32)).float() * s
        )  # noqa: E731
        (text,) = texts(function, x, q, zero, scale)
        assert "q8 groups 256" in text
        eager, (got,) = run(function, x, q, zero, scale, options=OPTIONS)
        torch.testing.assert_close(got, eager[0], rtol=1e-4, atol=1e-2)


def test_other_formulas_are_not_taken_for_it():
    x, q = torch.randn(2, 256), torch.randint(-128, 128, (400, 256), dtype=torch.int8)
    scale, zero = torch.rand(400, 1), torch.randint(-99, 99, (400, 1), dtype=torch.int8)
    for function in (
        lambda x, q, z, s: F.linear(x, (q - z).float() * s),  # wraps around in 8 bits
        lambda x, q, z, s: F.linear(x, (q.float() - z) / s),
        lambda x, q, z, s: F.linear(x, q.float() * s - z),
        lambda x, q, z, s: F.linear(x, q.float() * q.float()),
        lambda x, q, z, s: F.linear(x, (q.flip(0).float() - z) * s),
        lambda x, q, z, s: F.linear(x, (q.float() - z) * s.expand(400, 256).cumsum(1)),
        lambda x, q, z, s: F.linear(
            x, torch.where(torch.arange(256) % 2 == 1, q >> 4, q & 15).float()
        ),
    ):
        eager, (got,) = run(function, x, q, zero, scale, options=OPTIONS)
        torch.testing.assert_close(
            got, eager[0], rtol=1e-3, atol=1e-1 * eager[0].abs().max().item() * 1e-2
        )


@needs_avx2
def test_what_is_overwritten_in_between_is_not_read_late():
    x, q = torch.randn(1, 256), torch.randint(-128, 128, (400, 256), dtype=torch.int8)
    scale = torch.rand(400, 1)

    def program(x, q, s):
        weight = q.float() * s
        s.mul_(2)
        return F.linear(x, weight), s

    copies = [t.clone() for t in (x, q, scale)]
    wanted = program(*copies)
    import argand

    with torch.no_grad():
        got = argand.compile(program, options={"cache": False})(x, q, scale)
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-3)


NO_DOTS = host_target()._replace(
    features=host_target().features.replace("+avx512vnni", "-avx512vnni")
)


@needs_avx2
@pytest.mark.parametrize("machine", [host_target(), AVX2, NO_DOTS], ids=["host", "avx2", "no dots"])
@pytest.mark.parametrize(
    "rows,inner,outputs",
    [(1, 64, 33), (2, 1000, 70), (5, 129, 40), (8, 17, 32), (1, 20000, 5), (12, 64, 64)],
)
def test_integers(machine, rows, inner, outputs, monkeypatch):
    monkeypatch.setattr(native, "host_target", lambda: machine)
    torch.manual_seed(0)
    x, w = (torch.randint(-128, 128, (n, inner), dtype=torch.int8) for n in (rows, outputs))
    sx, sw = torch.rand(rows, 1), torch.rand(outputs)

    def product(x, w, sx, sw):
        return torch._int_mm(x, w.t()).float() * sx * sw

    if rows <= 8:
        (text,) = texts(product, x, w, sx, sw)
        assert "product i32" in text and text.count("mul") == 2
    _, (got,) = run(product, x, w, sx, sw, options=OPTIONS)
    wanted = (x.long() @ w.long().t()).float() * sx * sw
    assert torch.equal(got, wanted)
    extremes = torch.full_like(x, -128), torch.full_like(w, -128)
    _, (got,) = run(lambda x, w: torch._int_mm(x, w.t()), *extremes, options=OPTIONS)
    assert torch.equal(got.long(), extremes[0].long() @ extremes[1].long().t())
