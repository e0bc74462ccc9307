"""FakeMode: no kernel runs, aliasing and errors are eager's, nothing is imported."""

import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from argand.ops.fakes import DataDependent, FakeMode, fake_of, infer


def test_results_have_eagers_metadata_and_untouched_memory() -> None:
    huge = torch.empty_strided((1 << 20, 1 << 12), (1 << 12, 1))  # 16 GB that nobody touches
    with FakeMode():
        result = (huge.sin() + 1).softmax(-1).sum(0)
        wider = huge.repeat(64, 1)  # a terabyte: more than any machine of ours grants
    assert result.shape == (1 << 12,) and wider.view(1 << 20, -1).shape == (1 << 20, 1 << 18)


def test_fake_of_keeps_layout_and_gradient_flag() -> None:
    real = torch.zeros(4, 3, dtype=torch.float64).t().requires_grad_()
    fake = fake_of(real)
    assert fake.stride() == (1, 3) and fake.dtype == torch.float64 and fake.requires_grad
    assert fake_of(torch.zeros(3, dtype=torch.complex64).conj()).is_conj()


def test_views_alias_and_in_place_returns_its_argument() -> None:
    x = fake_of(torch.zeros(4, 4))
    with FakeMode():
        view = x[1:, ::2]
        assert view.untyped_storage()._cdata == x.untyped_storage()._cdata
        version = x._version
        assert view.add_(1) is view
        assert x._version == version + 1
        assert x.t_().stride() == (1, 4)
        out = torch.empty(0)
        assert torch.add(x, 1, out=out) is out
        assert out.shape == (4, 4)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.sum().item(),
        lambda x: bool(x.sum() > 0),
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
        lambda x: x.unique(),
        lambda x: torch.masked_select(x, x > 0),
        lambda x: torch.equal(x, x),
        lambda x: torch.allclose(x, x),
    ],
)
def test_what_depends_on_data_says_so(call: Callable[[torch.Tensor], Any]) -> None:
    with FakeMode(), pytest.raises(DataDependent):
        call(fake_of(torch.zeros(3, 4)))


WRONG_CALLS: list[Callable[[torch.Tensor], Any]] = [
    lambda x: x + torch.zeros(5),
    lambda x: x @ torch.zeros(5, 2),
    lambda x: x.add_(torch.zeros(5)),
    lambda x: torch.zeros(3, dtype=torch.int64).add_(1.5),
    lambda x: torch.zeros(1).expand(3).mul_(2),
    lambda x: torch.zeros(3, 1).add_(torch.zeros(3, 4)),
    lambda x: torch.zeros(3).expand(2, 3).__setitem__((..., 0), 3.0),
    lambda x: torch.zeros(2, 1).expand(2, 3).uniform_(),
    lambda x: torch.zeros(3).expand(2, 3).copy_(torch.zeros(3)),
    lambda x: x.add_(x.reshape(-1)[0]),
    lambda x: x[:2].mul_(x[1:]),
    lambda x: x[:, :3].contiguous()[:, :3].add_(torch.zeros(9)),
    lambda x: torch.cat([x, x[0]]),
    lambda x: torch.cat([x, x[:, :2]]),
    lambda x: x.sum(dim=7),
    lambda x: x.sum(dim=(0, 0)),
    lambda x: x.view(5, 5),
    lambda x: x.softmax(3),
    lambda x: x.long().mean(),
    lambda x: x.bool() - x.bool(),
    lambda x: -x.bool(),
    lambda x: F.layer_norm(x, (3,)),
    lambda x: F.conv2d(x[None, None], torch.zeros(1, 2, 3, 3)),
    lambda x: F.conv2d(x[None, None], torch.zeros(1, 1, 9, 9)),
    lambda x: F.max_pool2d(x[None, None], 9),
    lambda x: F.nll_loss(x, torch.zeros(9, dtype=torch.int64)),
    lambda x: F.embedding(torch.zeros(3), torch.zeros(4, 4)),
    lambda x: x.gather(0, torch.zeros(3)),
    lambda x: x.index_select(0, torch.zeros(2, 2, dtype=torch.int64)),
    lambda x: x.topk(9),
    lambda x: torch.arange(3, 1),
    lambda x: torch.zeros(-1),
    lambda x: x[None, None, 5],
    lambda x: torch.zeros(0).max(),
    lambda x: x.max(dim=9),
    lambda x: F.pad(x, (1, 1, 1, 1, 1, 1, 1)),
    lambda x: x.copy_(torch.zeros(5)),
    lambda x: torch.mm(x, x.double()),
    lambda x: torch.where(x > 0, x, torch.zeros(5)),
    lambda x: torch.add(x, 1, out=torch.empty(3, 4, dtype=torch.int64)),
    lambda x: F.interpolate(x[None], size=(3, 3)),
]


@pytest.mark.parametrize("number", range(len(WRONG_CALLS)))
def test_errors_are_eagers_word_for_word(number: int) -> None:
    call = WRONG_CALLS[number]
    with pytest.raises(Exception) as eager:
        call(torch.ones(3, 4))
    with FakeMode(), pytest.raises(Exception) as ours:
        call(fake_of(torch.ones(3, 4)))
    assert type(ours.value) is type(eager.value)
    assert str(ours.value) == str(eager.value)


def test_operands_that_cover_the_target_whole_or_not_at_all_are_fine() -> None:
    def run(x: torch.Tensor) -> None:
        x.add_(x), x.add_(x.view(3, 4)), x[0].mul_(x[1]), x[:, :2].add_(x[:, 2:])

    run(torch.ones(3, 4))
    with FakeMode():
        run(fake_of(torch.ones(3, 4)))


def test_random_ops_draw_nothing() -> None:
    torch.manual_seed(3)
    state = torch.get_rng_state()
    with FakeMode():
        x = torch.randn(4, 4)
        F.dropout(x, 0.5), x.bernoulli(), torch.randint(3, (4,)), torch.randperm(5), x.uniform_()
        torch.multinomial(x, 2), torch.poisson(x), x.exponential_()
    assert torch.equal(state, torch.get_rng_state())


def test_composite_ops_decompose_in_inference_mode() -> None:
    with torch.inference_mode(), FakeMode():
        x = torch.zeros(2, 5, 8)
        assert F.linear(x, torch.zeros(3, 8), torch.zeros(3)).shape == (2, 5, 3)
        assert x.matmul(x.mT).shape == (2, 5, 5)
        assert x.reshape(10, 8).shape == (10, 8)
        huge = torch.empty_strided((1 << 15, 1 << 15), (1, 1 << 15))  # a copy would take a second
        assert huge.contiguous().stride() == (1 << 15, 1)
        assert huge.to(torch.float64).dtype == torch.float64
        assert huge.reshape(-1).shape == (1 << 30,)


def test_set_data_and_metadata_changes() -> None:
    with FakeMode():
        x = torch.zeros(2, 3)
        x.data = torch.zeros(5)
        assert x.shape == (5,)
        assert x.resize_(7).shape == (7,)
        x.set_(torch.zeros(4, 4))
        assert x.shape == (4, 4)
        meta = torch.zeros(3, device="meta")
        assert meta.device.type == "meta"


def test_the_fast_path_of_transformer_layers() -> None:
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    x = torch.zeros(3, 5, 16).transpose(0, 1).contiguous().transpose(0, 1)
    with torch.no_grad():
        eager = layer(x), *layer.self_attn(x, x, x, average_attn_weights=False)
        with FakeMode():
            ours = layer(x), *layer.self_attn(x, x, x, average_attn_weights=False)
    for fake, real in zip(ours, eager):
        assert (fake.shape, fake.stride()) == (real.shape, real.stride())


def test_infer_is_the_rule_of_one_op() -> None:
    x = fake_of(torch.zeros(3, 4))
    result = infer(torch.ops.aten.var_mean.correction, (x, [1]), {"keepdim": True})
    assert [part.shape for part in result] == [(3, 1), (3, 1)]
    solved = infer(torch.ops.aten._linalg_svd.default, (x,), {})  # no row: torch's kernel answers
    assert [part.shape for part in solved] == [(3, 3), (3,), (3, 4)]


MODELS = """
import sys
import torch
import torch.nn as nn
import torch.nn.functional as F
from argand.ops.fakes import FakeMode, fake_of

HEAVY = ("torch._dynamo", "torch._inductor", "torch._functorch", "sympy", "torch.distributed.tensor")
before = set(sys.modules)

class Block(nn.Module):
    def __init__(self, down):
        super().__init__()
        self.a = nn.Conv2d(8, 8, 3, 1, 1, bias=False)
        self.n = nn.BatchNorm2d(8)
        self.down = down
    def forward(self, x):
        x = F.relu(x + self.n(self.a(x)))
        return F.max_pool2d(x, 2) if self.down else F.interpolate(x, scale_factor=2)

bert = nn.Sequential(
    nn.Embedding(100, 32),
    nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, activation="gelu", batch_first=True), 2),
    nn.Linear(32, 100),
)
resnet = nn.Sequential(
    nn.Conv2d(3, 8, 7, 2, 3), Block(True), nn.GroupNorm(2, 8), nn.SiLU(), Block(False),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(), nn.Linear(8, 10),
)
lstm = nn.LSTM(8, 16, 2)

@torch.library.custom_op("ops_test::scale", mutates_args=())
def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
    raise AssertionError("a user's kernel ran at trace time")

@scale.register_fake
def _(x, factor):
    return torch.empty_like(x)

with FakeMode():
    tokens = torch.zeros(2, 16, dtype=torch.int64)
    loss = F.cross_entropy(bert(tokens).flatten(0, 1), tokens.flatten())
    loss.backward()
    loss = F.cross_entropy(resnet(torch.zeros(2, 3, 64, 64)), torch.zeros(2, dtype=torch.int64))
    loss.backward()
    lstm(torch.zeros(5, 2, 8))[0].sum().backward()
    q = torch.zeros(2, 4, 16, 8, requires_grad=True)
    F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
    with torch.inference_mode():
        bert.eval()(tokens), resnet.eval()(torch.zeros(2, 3, 64, 64)), q.detach() @ q.detach().mT
    assert scale(q, 2.0).shape == q.shape
    big = torch.zeros(2048, 2048)
    try:
        big @ big[:7]
    except RuntimeError:
        pass
for module in (bert, resnet, lstm):
    assert all(p.grad is not None and p.grad.shape == p.shape for p in module.parameters())
print(sorted(m for m in set(sys.modules) - before if m.startswith(HEAVY)))
"""


def test_models_forward_and_backward_import_nothing_heavy() -> None:
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(MODELS)], capture_output=True, text=True, check=False
    )
    assert run.stdout.strip() == "[]", run.stdout + run.stderr


def test_a_sparse_result_depends_on_data() -> None:
    with FakeMode(), pytest.raises(DataDependent, match="sparse_coo"):
        torch.empty(3, 3).to_sparse()
