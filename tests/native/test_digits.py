"""Few rows by small integers as products of bytes: exact where it can be, and as eager where it cannot."""

import pytest
import torch
import torch.nn.functional as F

from argand.native import build as native
from argand.native.codegen.target import host_target
from argand.support import events
from argand.support.options import Options
from tests.native.test_small import given, halves, weights
from tests.native.tracing import aten_graph, run

OPTIONS = Options(cache=False, verify="forms")
needs_dots = pytest.mark.skipif(
    "+avx512vnni" not in host_target().features.split(","),
    reason="no products of bytes in this processor",
)


def linear(bits):
    return lambda x, q, z, s: F.linear(x, weights(q, z, s, bits, x.dtype))


def code(function, *inputs):
    with events.collect() as collector:
        native.build(aten_graph(function, *inputs), list(inputs), OPTIONS)
    artifacts = (e for e in collector.events if isinstance(e, events.Artifact))
    return "\n".join(e.render() for e in artifacts if e.name == "output_code")


@needs_dots
@pytest.mark.parametrize(
    "bits,group,rows,inside",
    [
        (4, 128, 1, True), (4, 32, 1, True), (4, 64, 2, True), (4, 256, 1, True),
        (8, 64, 4, True), (8, 32, 1, True), (8, 192, 2, True), (4, 128, 5, False), (8, 64, 8, False),
    ],
)  # fmt: skip
def test_rows_that_gain_by_it(bits, group, rows, inside):
    q, zero, scale = given(bits, 70, 1024 // group * 3, group, torch.int8)
    x = torch.randn(rows, q.shape[1] * group)
    assert ("vpdpbusd" in code(linear(bits), x, q, zero, scale)) is inside


@needs_dots
@pytest.mark.parametrize("bits,group", [(4, 128), (4, 32), (8, 64), (8, 1408)])
def test_no_larger_errors_than_eager(bits, group):
    """Numbers of one size, long tails, and one that is 3,000 times larger than most."""
    q, zero, scale = given(bits, 130, 2816 // group, group, torch.int8)
    plain = torch.randn(1, 2816)
    alone = plain.clone()
    alone[0, 70] = 3000
    for x in (plain, plain**3, alone, plain * 1e-20, plain * 1e20, F.relu(plain)):
        eager, (got,) = run(linear(bits), x, q, zero, scale, options=OPTIONS)
        wanted = x.double() @ weights(q, zero, scale, bits, torch.float64).t()
        error, other = ((y.double() - wanted).norm() for y in (got, eager[0]))
        assert error <= 4 * other, (error, other)


@needs_dots
def test_whole_numbers_are_exact():
    q, zero, scale = given(4, 60, 4, 128, torch.int8)
    x = torch.randint(-50, 50, (1, 512)).float()
    eager, (got,) = run(linear(4), x, q, zero, torch.ones_like(scale), options=OPTIONS)
    assert torch.equal(got, eager[0])


@needs_dots
@pytest.mark.parametrize("bits", [4, 8])
def test_a_number_that_hides_all_others(bits):
    """Where its weights are zero, the small ones alone make the result: they are multiplied as they are."""
    q, _, scale = given(bits, 60, 4, 128, torch.int8)
    q[:, 0] = 0x88 if bits == 4 else 0
    zero = torch.full((60, 4), 8 if bits == 4 else 0, dtype=torch.int8)
    x = torch.randn(1, 512) * 1e-9
    x[0, 5] = 1e9
    whole = ((halves(q) if bits == 4 else q).double() - zero.double()[..., None]) * scale[..., None]
    wanted = x.double() @ whole.flatten(1).t()
    _, (got,) = run(linear(bits), x, q, zero, scale, options=OPTIONS)
    torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=1e-14)


@needs_dots
def test_zero_rows_and_ends_of_the_range():
    q, zero, scale = given(4, 60, 4, 128, torch.int8)
    for value in (0.0, 1e-38, 1e-45, 3e38, torch.inf, torch.nan):
        x = torch.full((2, 512), value)
        x[1] = torch.randn(512)
        eager, (got,) = run(linear(4), x, q, zero, scale, options=OPTIONS)
        torch.testing.assert_close(got, eager[0], rtol=1e-4, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize("columns", [1, 31, 250, 256, 260, 515])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_panels_of_few_rows(columns, threads, monkeypatch):
    target = host_target()._replace(threads=threads)
    monkeypatch.setattr(native, "host_target", lambda: target)
    x, weight = torch.randn(3, 200), torch.randn(columns, 200)
    bias = torch.randn(columns)
    eager, (got,) = run(lambda x, w, b: F.relu(F.linear(x, w, b)), x, weight, bias, options=OPTIONS)
    torch.testing.assert_close(got, eager[0], rtol=1e-4, atol=1e-4)
