"""Small graphs through the whole code generator, against eager."""

import threading

import pytest
import torch
import torch.nn.functional as F

import argand
from argand.native.compile import compile_graph
from argand.support.options import Options
from tests.native.tracing import aten_graph, check

R = torch.randn


def test_pointwise_chain():
    check(lambda x, y: torch.relu(x * 2 + y), R(7, 33), R(33))


@pytest.mark.parametrize("n", [1, 3, 8, 31, 64, 1000, 5000])
def test_lengths(n):
    check(lambda x: torch.tanh(x) * x.exp() + 1, R(n))


@pytest.mark.parametrize("shape", [(5, 7), (3, 64), (2, 3, 130), (1, 1), (4, 1)])
def test_softmax(shape):
    check(lambda x: torch.softmax(x, -1), R(*shape))
    check(lambda x: torch.log_softmax(x, 0), R(*shape))


def test_layer_norm():
    check(lambda x, w, b: F.layer_norm(x, (65,), w, b), R(6, 65), R(65), R(65))
    check(lambda x, w, b: F.layer_norm(x + 1, (8, 16), w, b), R(6, 8, 16), R(8, 16), R(8, 16))


def test_rms_norm():
    check(lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w, R(6, 64), R(64))


def test_several_outputs():
    check(lambda x: (x + 1, (x + 1).sum(-1), x.t() * 2, x), R(5, 40))


def test_reductions():
    x = R(6, 37, 5)
    check(lambda x: (x.sum(), x.mean(1), x.amax((0, 2)), x.amin(-1, True), x.var(1), x.std()), x)
    check(lambda x: (x.argmax(1), x.argmin(), x.argmax(-1, True), x.max(1), x.min(0)), x)
    check(lambda x: (x.any(1), x.all(), (x > 0).any(), x.prod(2), x.logsumexp(1), x.norm()), x)


def test_views():
    x = R(4, 6, 8)
    check(lambda x: (x.permute(2, 0, 1).contiguous() + 1, x.reshape(24, 8).t() * 2), x)
    check(lambda x: (x.reshape(4, 48).exp().reshape(2, 2, 48), x[1:, ::2, -3:] + x[0, 0, 0]), x)
    check(lambda x: (x.flip(0, 2) + x, x.unfold(2, 3, 2) * 2, x.diagonal(0, 1, 2) + 1), x)
    check(
        lambda x: (x.reshape(8, 24).sin().reshape(6, 32), x.transpose(0, 2).reshape(16, 12) + 1), x
    )
    check(lambda x: (x.exp().reshape(6, 32) * 2, x.transpose(0, 2).exp().reshape(16, 12) + 1), x)


def test_concatenation_and_padding():
    x, y = R(3, 5), R(2, 5)
    check(lambda x, y: torch.cat([x * 2, y, x], 0) + 1, x, y)
    check(lambda x, y: (torch.stack([x, x + 1], 1), torch.cat([x, x.exp()], 1)), x, y)
    check(
        lambda x, y: (F.pad(x, (1, 2, 0, 3), value=2.0), F.pad(x.exp(), (1, -2)), x.roll(2, 1)),
        x,
        y,
    )
    check(lambda x, y: (torch.tril(x), torch.triu(x, 1), x.repeat(2, 3)), x, y)


def test_indexing():
    w, i = R(10, 6), torch.tensor([[1, 2, 9], [0, 3, 3]])
    check(lambda w, i: (F.embedding(i, w) * 2, w[i], w[:, i[0] % 6], w[-1 - i]), w, i)
    check(lambda w, i: (torch.gather(w, 0, i), w.index_select(1, i[0] % 6), (w.exp())[i] + 1), w, i)


def test_factories():
    check(
        lambda x: (
            torch.arange(7) + x.sum().long(),
            torch.zeros(3),
            torch.full((2, 2), 7),
            torch.eye(3),
        ),
        R(3),
    )
    check(lambda x: (torch.ones_like(x), torch.arange(0, 1, 0.1), torch.linspace(0, 1, 7)), R(3))


def test_constants_have_the_values_of_their_type():
    x = torch.ones(3)
    check(lambda x: x + (torch.full((3,), 0.3) * 6 - 1.0), x, rtol=0, atol=0)
    check(lambda x: x + torch.full((3,), 0.3).double(), x, rtol=0, atol=0)
    check(lambda x: x + torch.full((3,), 300, dtype=torch.int32).to(torch.uint8), x)
    check(lambda x: x + torch.full((3,), 200, dtype=torch.int32).to(torch.int8), x)


def test_extern_products():
    check(lambda x, w, b: torch.relu(F.linear(x, w, b)), R(4, 8), R(16, 8), R(16))
    check(lambda x, y: torch.bmm(x.transpose(1, 2), y) + 1, R(3, 4, 5), R(3, 4, 6))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_float_types(dtype):
    x, y = R(5, 37).to(dtype), R(37).to(dtype)
    check(
        lambda x, y: (x * y + 1, x.exp(), x.float() * 2, x > y, torch.softmax(x, -1)),
        x,
        y,
        rtol=2e-2 if dtype != torch.float64 else None,
        atol=2e-2 if dtype != torch.float64 else None,
    )


@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
)
def test_integer_types(dtype):
    x = torch.randint(0, 2 if dtype == torch.bool else 100, (5, 37)).to(dtype)
    y = torch.randint(0, 2 if dtype == torch.bool else 100, (37,)).to(dtype)
    check(lambda x, y: (x * y, x + y, x > y, x.sum(1), x.float() / 3, x & y, ~x, x == y), x, y)
    if dtype != torch.bool:
        check(
            lambda x, y: (
                x // 7,
                x % 7,
                x - y,
                x.amax(0),
                x.clamp(3, 50),
                -x,
                x.abs(),
                x << 1,
                x >> 1,
            ),
            x,
            y,
        )


def test_empty_tensors():
    check(lambda x: (x + 1, x.sum(1), x.sum(), torch.cat([x, x])), R(0, 4))


def test_nan_and_infinity():
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.0] * 5)
    check(
        lambda x: (x.relu(), x.clamp(-1, 1), x.amax(), x.argmax(), torch.maximum(x, -x), x.sign()),
        x,
    )


def test_attention_by_hand():
    q = R(2, 3, 9, 16)
    check(
        lambda q, k, v: torch.softmax(q @ k.transpose(-1, -2) / 4.0, -1) @ v,
        q,
        R(2, 3, 9, 16),
        R(2, 3, 9, 16),
    )


def test_grad_of_mlp():
    def step(x, w1, b1, w2, b2):
        w1, b1, w2, b2 = (t.detach().requires_grad_() for t in (w1, b1, w2, b2))
        with torch.enable_grad():
            y = F.gelu(F.linear(x, w1, b1))
            loss = F.layer_norm(F.linear(y, w2, b2), (10,)).pow(2).mean()
            return (loss, *torch.autograd.grad(loss, (w1, b1, w2, b2)))

    check(step, R(6, 20), R(30, 20), R(30), R(10, 30), R(10), rtol=1e-4, atol=1e-5)


def test_random_ops():

    def program(x):
        dropped = torch.ops.aten.native_dropout(x, 0.25, True)
        return (
            *dropped,
            torch.rand_like(x),
            torch.randn_like(x),
            torch.bernoulli(x * 0 + 0.5),
            torch.rand(7),
        )

    x = torch.ones(1000, 37)
    compiled = compile_graph(aten_graph(program, x), [x])
    torch.manual_seed(3)
    y, mask, uniform, normal, coin, _ = compiled([x])
    torch.manual_seed(3)
    again = compiled([x])
    assert all(torch.equal(a, b) for a, b in zip((y, mask, uniform, normal, coin), again))
    assert not torch.equal(compiled([x])[2], uniform)
    assert torch.equal(y, mask * (1 / 0.75)) and abs(mask.float().mean() - 0.75) < 0.01
    assert 0 <= uniform.min() and uniform.max() < 1 and abs(uniform.mean() - 0.5) < 0.01
    assert abs(normal.mean()) < 0.02 and abs(normal.std() - 1) < 0.02
    assert set(coin.unique().tolist()) == {0.0, 1.0} and abs(coin.mean() - 0.5) < 0.01


def test_same_bits_for_any_number_of_threads():

    def program(x):
        return x.sum(), x.mean(0), torch.softmax(x, -1), (x * 2).exp(), x.var(1)

    x = R(600, 700)
    compiled = compile_graph(aten_graph(program, x), [x])
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            results.append(compiled([x]))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other))


def test_results_share_memory_only_where_eager_does():

    def program(x):
        return x.clone().view(-1)[:1], x + 1, x + 1, x.view(-1), x.clone()[::2]

    x = R(4, 6)
    a, b, c, d, e = compile_graph(aten_graph(program, x), [x])([x])
    pointers = {t.untyped_storage().data_ptr() for t in (x, a, b, c, e)}
    assert len(pointers) == 5
    assert d.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()


def test_writes_to_inputs_come_last():
    def program(x, y):
        z = x * 2
        x.copy_(y.exp())
        return z, y + 1

    x, y = R(5, 6), R(5, 6)
    compiled = compile_graph(aten_graph(program, x.clone(), y), [x, y])
    mine, theirs = x.clone(), x.clone()
    got, expected = compiled([mine, y]), program(theirs, y)
    assert all(torch.equal(a, b) for a, b in zip(got, expected))
    torch.testing.assert_close(mine, theirs)


def test_graphs_that_write_to_intermediates_are_interpreted():
    check(lambda x: F.pad(x, (1, 1), mode="circular"), R(2, 3, 4))


def test_heads_reach_the_product_without_copies():
    def attention(x, w):
        q = (x @ w).view(2, 9, 3, 8).transpose(1, 2)
        k = x.view(2, 9, 3, 8).transpose(1, 2)
        scores = torch.matmul(q, k.transpose(-1, -2))
        return torch.matmul(scores.softmax(-1), q), torch.mm(x[0].t().contiguous(), x[1])

    from argand.support import events

    x, w = R(2, 9, 24), R(24, 24)
    with events.collect() as heard:
        check(attention, x, w, rtol=1e-4, atol=1e-4)
    assert len(heard.texts("schedule")) == 1  # the softmax; no kernel copies heads


def test_index_out_of_range_is_an_error():

    w, i = R(10, 6), torch.tensor([1, 2, 9])
    for program in (lambda w, i: F.embedding(i, w), lambda w, i: w[:, i % 6] + w[i].sum()):
        compiled = compile_graph(aten_graph(program, w, i), [w, i])
        torch.testing.assert_close(compiled([w, i])[0], program(w, i))
        with pytest.raises(IndexError, match="out of (range|bounds)"):
            compiled([w, torch.tensor([1, 10, 3])])
        torch.testing.assert_close(compiled([w, i])[0], program(w, i))


def test_threads_do_not_share_the_mark_of_a_bad_index():
    w, good = R(50, 16), torch.arange(4000) % 50
    bad = good.clone()
    bad[-1] = 50
    compiled = compile_graph(aten_graph(lambda w, i: (w[i] * 2).sum(-1), w, good), [w, good])
    wrong = []

    def call(index, raises):
        for _ in range(100):
            try:
                compiled([w, index])
                wrong.extend(["a bad call returned"] * raises)
            except IndexError:
                wrong.extend(["a good call raised"] * (not raises))

    threads = [
        threading.Thread(target=call, args=(bad if k % 2 else good, k % 2)) for k in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_tensor_without_memory_is_refused_before_a_kernel_reads_it():
    x = R(8)
    for program in (lambda x: x.exp() + 1, lambda x: torch.mm(x.view(2, 4), x.view(4, 2))):
        compiled = compile_graph(aten_graph(program, x), [x])
        with pytest.raises(RuntimeError, match=r"buffer \d is a tensor without memory"):
            compiled([torch._efficientzerotensor(8)])
        torch.testing.assert_close(compiled([x])[0], program(x))
    nothing = R(0, 3)
    assert compile_graph(aten_graph(lambda x: x.exp() + 1, nothing), [nothing])([nothing])[
        0
    ].shape == (0, 3)


def test_transposes_in_strips():
    x = R(48, 64, 3)
    check(lambda x: (x[..., 0].t().contiguous() + 1, x.permute(1, 0, 2).contiguous()), x)
    check(lambda x: x.reshape(48, 192).t().contiguous() * 2 + torch.arange(48), x)


@pytest.mark.parametrize("columns", [17, 64, 250, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_sums_of_many_rows(columns, dtype):
    def program(x, y, w):
        z = torch.sigmoid(x * w) + y
        return z.sum((0, 1)), (z * x).sum((0, 1)), (z.sum((0, 1)) + w).relu(), z.sum(0)

    x, y = R(8, 144, columns, dtype=dtype), R(8, 144, columns, dtype=dtype)
    half = dtype is torch.bfloat16
    tolerance = {"rtol": 2e-2, "atol": 6.0} if half else {"rtol": 1e-4, "atol": 2e-3}
    check(program, x, y, R(columns, dtype=dtype), **tolerance)


def test_a_view_of_complex_numbers_may_be_broadcast():
    for x in (
        torch.randn(3, 1, dtype=torch.complex128),
        torch.randn(3, 2, dtype=torch.complex128)[:, ::2],
    ):
        check(lambda x: (x.expand(2, 3, 4).clone(), x.expand(3, 4), x.expand(3, 4).t() * 2), x)


def test_a_failure_of_ours_names_the_stage_and_shows_the_graph(monkeypatch):
    def fail(*args, **keywords):
        raise KeyError("lost")

    monkeypatch.setattr("argand.native.passes.table.make_plan", fail)
    with pytest.raises(
        argand.InternalError, match="stage 'native.plan': KeyError: 'lost'"
    ) as caught:
        check(lambda x: x.exp() + 1, R(4), options=Options(cache=False))
    assert "aten.exp" in str(caught.value) and "aten.exp" in caught.value.dump
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(argand.BackendCompilerFailed) as caught:
        argand.compile(lambda x: x.exp() + 1, fullgraph=True, options={"cache": False})(R(4))
    assert caught.value.inner_exception.stage == "native.plan"


def test_a_long_graph_is_shown_in_part():
    error = argand.InternalError("native.fuse", "broken", dump="\n".join(map(str, range(500))))
    assert len(str(error).splitlines()) == 31 and len(error.dump.splitlines()) == 500
