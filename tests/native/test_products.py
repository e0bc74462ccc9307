"""Matrix products of our own, against float64: sizes, layouts, types, what follows them, and other targets."""

import itertools

import pytest
import torch
import torch.nn.functional as F

import argand
from argand.native import build as native
from argand.native.choice import Choices
from argand.native.codegen.llvm.contraction import emit_contraction
from argand.native.codegen.target import Target, host_target
from argand.native.ir import loops as ir
from argand.native.ir.affine import Affine
from argand.native.ir.types import DType
from argand.support import events
from argand.support.options import Options
from tests.native.tracing import aten_graph, check, run

OPTIONS = Options(cache=False, verify="forms")
AVX2 = Target("haswell", "+avx,+avx2,+f16c,+fma,+sse4.2", 32)
HALF = 5e-3  # two roundings of a half result

needs_avx2 = pytest.mark.skipif(
    "+fma" not in host_target().features.split(","), reason="products are torch's here"
)


@pytest.fixture(params=["host", "avx2", "three threads"])
def target(request, monkeypatch):
    targets = {
        "host": host_target(),
        "avx2": AVX2,
        "three threads": host_target()._replace(threads=3),
    }
    monkeypatch.setattr(native, "host_target", lambda: targets[request.param])


def products(function, *inputs):
    """How many products of a program are ours, and how many of them have what follows inside."""
    with events.collect() as collector:
        native.build(aten_graph(function, *inputs), list(inputs), OPTIONS)
    texts = [
        e.render()
        for e in collector.events
        if isinstance(e, events.Artifact) and e.name == "schedule"
    ]
    return [text for text in texts if text.startswith("contraction")]


def near(function, *inputs, bound=None):
    """Results differ from those in float64 by no more than a sum of this length may."""
    wide = [x.double() if x.is_floating_point() else x for x in inputs]
    expected, got = function(*wide), run(function, *inputs, options=OPTIONS)[1][0]
    eager = function(*inputs)
    assert got.dtype == eager.dtype and got.shape == eager.shape and got.stride() == eager.stride()
    inner = inputs[0].shape[-1]
    error = (got.double() - expected).abs().max().item()
    scale = wide[0].abs().max().item() * wide[1].abs().max().item() * inner
    assert error <= (bound or 2.0**-24 * max(inner, 4)) * max(scale, 1e-30), error


SIZES = [
    (1, 2048, 33),
    (2, 100, 700),
    (3, 1000, 64),
    (5, 96, 512),
    (8, 257, 65),
    (9, 64, 128),
    (31, 65, 96),
]
SIZES += [
    (128, 384, 384),
    (197, 192, 192),
    (49, 512, 97),
    (250, 300, 40),
    (500, 16, 32),
    (16, 4096, 47),
    (33, 256, 10),
]


@needs_avx2
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_sizes(target, sizes):
    rows, inner, columns = sizes
    x, weight = torch.randn(rows, inner), torch.randn(columns, inner)
    near(lambda x, w: x @ w.t(), x, weight)
    near(lambda x, w: x @ w, x, weight.t().contiguous())
    near(lambda x, w, b: torch.addmm(b, x, w.t()), x, weight, torch.randn(columns))


@needs_avx2
def test_layouts(target):
    wide, tall = torch.randn(100, 200), torch.randn(260, 96)
    lefts = [wide[:64, :96], torch.randn(96, 70).t(), wide[10:84, 3:99], torch.randn(3, 64, 96)[1]]
    rights = [tall[:96, :80], tall[:77].t(), tall.t()[:, 5:90], torch.randn(96, 160)[:, 20:]]
    for left, right in itertools.product(lefts, rights):
        near(torch.mm, left, right)


@needs_avx2
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [1, 2, 7])
def test_few_rows_of_halves(target, dtype, rows):
    x, weight, bias = torch.randn(rows, 500), torch.randn(160, 500), torch.randn(160)
    given = [t.to(dtype) for t in (x, weight, bias)]
    assert len(products(F.linear, *given)) == 1
    near(F.linear, *given, bound=HALF)


@needs_avx2
def test_batches(target):
    left, right = torch.randn(6, 40, 64), torch.randn(6, 64, 48)
    near(torch.bmm, left, right)
    near(
        torch.bmm,
        left.transpose(0, 1).contiguous().transpose(0, 1),
        right.transpose(1, 2).contiguous().transpose(1, 2),
    )
    near(
        lambda x, y, b: torch.baddbmm(b, x, y, beta=0.5, alpha=2.0),
        left,
        right,
        torch.randn(6, 1, 48),
        bound=1e-6,
    )
    near(lambda x, y: x @ y, torch.randn(2, 3, 40, 64), torch.randn(2, 3, 64, 48))
    near(
        lambda x, y: x @ y,
        torch.randn(2, 40, 3, 64).transpose(1, 2),
        torch.randn(2, 3, 48, 64).transpose(2, 3),
    )


@needs_avx2
def test_values_that_are_no_numbers(target):
    x, weight = torch.randn(40, 64), torch.randn(50, 64)
    x[3, 5], x[7, 0], weight[9, 6], weight[49, 63] = torch.nan, torch.inf, -torch.inf, torch.nan
    expected, (got,) = run(lambda x, w: x @ w.t(), x, weight, options=OPTIONS)
    assert torch.equal(got.isnan(), expected[0].isnan()) and torch.equal(
        got.isinf(), expected[0].isinf()
    )
    zeros = torch.zeros(40, 64)
    assert torch.equal(
        run(lambda x, w: x @ w.t(), zeros, torch.randn(50, 64), options=OPTIONS)[1][0],
        zeros[:, :50],
    )


def test_nothing_to_sum():
    check(torch.mm, torch.randn(64, 0), torch.randn(0, 64), options=OPTIONS)
    check(torch.mm, torch.randn(0, 64), torch.randn(64, 64), options=OPTIONS)
    check(torch.addmm, torch.randn(64), torch.randn(64, 0), torch.randn(0, 64), options=OPTIONS)


def _epilogues():
    x, weight, bias, other = (
        torch.randn(72, 64),
        torch.randn(96, 64),
        torch.randn(96),
        torch.randn(72, 96),
    )
    many = torch.randn(1600, 64), torch.randn(1600)
    yield "gelu", lambda x, w, b: F.gelu(F.linear(x, w, b)), (x, weight, bias)
    yield (
        "scale",
        lambda x, w, b: torch.addmm(b, x, w.t(), beta=0.3, alpha=0.7).tanh(),
        (x, weight, bias),
    )
    yield "residual", lambda x, w, r: F.linear(x, w) + r, (x, weight, other)
    yield "by row", lambda x, w, r: F.linear(x, w) * r[:, :1], (x, weight, other)
    yield (
        "two results",
        lambda x, w, b: ((y := F.linear(x, w, b)).sigmoid(), y * 2),
        (x, weight, bias),
    )
    yield "twice", lambda x, w, b: (y := F.linear(x, w, b)) * y.sigmoid(), (x, weight, bias)
    yield (
        "blocks",
        lambda x, w, r: F.relu(F.linear(x, w).view(8, 9, 96) + r.view(8, 9, 96)),
        (x, weight, other),
    )
    yield (
        "number",
        lambda x, w, b: F.linear(x, w, b).clamp(-1, 1).to(torch.float16),
        (x, weight, bias),
    )
    yield "one row", lambda x, w, b: F.silu(F.linear(x[:1], w, b)), (x, *many)


EPILOGUES = {name: (function, inputs) for name, function, inputs in _epilogues()}


@needs_avx2
@pytest.mark.parametrize("name", EPILOGUES)
def test_what_follows_runs_on_the_elements(target, name):
    function, inputs = EPILOGUES[name]
    check(function, *inputs, options=OPTIONS, rtol=1e-4, atol=1e-4)
    assert len(products(function, *inputs)) == 1
    assert len(native.build(aten_graph(function, *inputs), list(inputs), OPTIONS).functions) == 1


def test_what_follows_elsewhere_stays_outside(target):
    x, weight, bias = torch.randn(72, 64), torch.randn(96, 64), torch.randn(96)
    for function in (
        lambda x, w, b: F.linear(x, w, b).t().contiguous() * 2,
        lambda x, w, b: F.linear(x, w, b).view(72, 4, 24).transpose(0, 1) + 1,
        lambda x, w, b: F.softmax(F.linear(x, w, b), -1),
        lambda x, w, b: F.linear(x, w, b)[3:9] * 2,
        lambda x, w, b: F.linear(x, w, b).view(12, 6, 96) + torch.arange(6.0).view(6, 1),
        lambda x, w, b: torch.cat([F.linear(x, w, b), F.linear(x, w, b) * 2], 1),
    ):
        check(function, x, weight, bias, options=OPTIONS, rtol=1e-4, atol=1e-4)


@needs_avx2
def test_a_result_is_not_written_over_what_the_product_still_reads():
    def step(x, weight):
        x.add_(x @ weight)
        return x * 1

    for size in (64, 96):
        x, weight = torch.randn(200, size), torch.randn(size, size) / 8
        expected = step(x.clone(), weight)
        given = x.clone()
        with torch.no_grad():
            got = argand.compile(step, options={"cache": False})(given, weight)
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(given, expected, rtol=1e-4, atol=1e-4)


@needs_avx2
def test_open_rows_and_the_same_bits_for_the_same_row():
    layer = torch.nn.Sequential(torch.nn.Linear(96, 160), torch.nn.GELU(), torch.nn.Linear(160, 64))
    compiled = argand.compile(layer, dynamic=True, options={"cache": False, "measure": False})
    x = torch.randn(301, 96)
    with torch.no_grad():
        whole = compiled(x)
        for rows in (301, 17, 64, 240, 241, 9):
            torch.testing.assert_close(compiled(x[:rows]), layer(x[:rows]), rtol=1e-4, atol=1e-5)
            assert torch.equal(compiled(x[:rows]), whole[:rows])
        threads = torch.get_num_threads()
        try:
            torch.set_num_threads(1)
            assert torch.equal(compiled(x), whole)
        finally:
            torch.set_num_threads(threads)


@needs_avx2
def test_training_takes_the_same_products():
    torch.manual_seed(0)
    layer = torch.nn.Sequential(torch.nn.Linear(96, 160), torch.nn.GELU(), torch.nn.Linear(160, 64))
    x = torch.randn(70, 96, requires_grad=True)
    compiled = argand.compile(layer, options={"cache": False})
    for run_it in (layer, compiled):
        layer.zero_grad()
        x.grad = None
        run_it(x).square().sum().backward()
        found = [x.grad.clone(), *(p.grad.clone() for p in layer.parameters())]
        if run_it is layer:
            expected = found
    for got, want in zip(found, expected):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_what_was_measured_counts_more_than_the_model(tmp_path):
    options = Options(cache_dir=str(tmp_path), opt_level=3)
    calls = []
    ways = {"a": lambda: calls.append("a"), "b": lambda: [calls.append("b") for _ in range(20000)]}
    assert Choices(None).best("test", "q", {"a": 2.0, "b": 1.0}) == "b"
    assert (
        Choices(Options(cache_dir=str(tmp_path))).best(
            "test", "q", {"a": 2.0, "b": 1.0}, lambda: ways
        )
        == "b"
    )
    assert not calls
    assert Choices(options).best("test", "q", {"a": 2.0, "b": 1.0}, lambda: ways) == "a"
    assert calls
    assert Choices(Options(cache_dir=str(tmp_path))).best("test", "q", {"a": 2.0, "b": 1.0}) == "a"
    assert Choices(Options(cache_dir=str(tmp_path))).best("test", "q", {"b": 1.0, "c": 0.5}) == "c"


@needs_avx2
def test_products_are_measured_when_the_user_waits_for_it(tmp_path):
    options = Options(cache_dir=str(tmp_path), opt_level=3)
    x, weight = torch.randn(40, 64), torch.randn(96, 64)
    check(lambda x, w: F.relu(x @ w.t()), x, weight, options=options, rtol=1e-4, atol=1e-4)
    times = Choices(options).times("product", "1x1x40x64x96 f32 inner f32 inner")
    assert set(times) == {"ours", "blas"} and all(value > 0 for value in times.values())


@needs_avx2
def test_a_panel_is_not_copied_for_a_row_or_two():
    weight = torch.randn(768, 1024)
    for rows, ours in ((1, 0), (3, 0), (4, 1), (12, 1)):
        assert len(products(torch.mm, torch.randn(rows, 768), weight)) == ours
        assert (
            len(products(lambda x, w: x @ w.t(), torch.randn(rows, 768), weight.t().contiguous()))
            == 1
        )


@needs_avx2
@pytest.mark.parametrize("sizes", [(101, 600, 160), (300, 513, 1000), (37, 40, 129)], ids=str)
@pytest.mark.parametrize("across", [False, True])
def test_rows_that_are_copied(target, sizes, across):
    rows, inner, columns = sizes
    x = torch.randn(inner, rows).t() if across else torch.randn(rows, inner)
    weight, bias = torch.randn(columns, inner), torch.randn(columns)
    near(torch.mm, x, weight.t())
    near(torch.mm, x, weight.t().contiguous())
    near(lambda x, w, b: torch.addmm(b, x, w.t()).relu(), x, weight, bias, bound=1e-4)


def grouped(rows, columns, left):
    """Whether a product copies the rows of its left operand too; ``left``: strides of those rows."""
    store = ir.Store(DType.F32, 2, Affine(0, ((ir.ROW, columns), (ir.COLUMN, 1))), 0)
    product = ir.Contraction(
        buffers=(DType.F32,) * 3,
        batch=(1, 1),
        rows=rows,
        columns=columns,
        inner=64,
        left=ir.Factor(0, DType.F32, (0, 0), *left),
        right=ir.Factor(1, DType.F32, (0, 0), 1, columns),
        result=0,
        dtype=DType.F32,
        body=(store,),
    )
    declarations: dict[str, None] = {}
    emit_contraction("product", product, AVX2, declarations)
    return any("@argand.group." in line for line in declarations)


def test_rows_are_copied_for_many_panels_or_where_they_lie_across():
    assert grouped(64, 256, (64, 1)) and grouped(64, 32, (1, 64))
    assert not grouped(64, 32, (64, 1)) and not grouped(8, 256, (64, 1))
