"""flex_attention, forward and backward on the CPU, against torch's own formula (torch has no backward there)."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch._higher_order_ops.flex_attention import math_attention
from torch.nn.attention.flex_attention import (
    AuxRequest,
    create_block_mask,
    flex_attention,
    noop_mask,
)

import argand

Tensor = torch.Tensor
LENGTH = 256
DOCUMENTS = torch.arange(LENGTH) // 100
BIAS = torch.randn(4, dtype=torch.float64).requires_grad_()


def _identity(score: Tensor, *_: Any) -> Tensor:
    return score


def _alibi(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return score + BIAS[h] * (k - q) / 100


def _cap(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return 5 * torch.tanh(score / 5)


def _causal(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return q >= k


def _documents(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return (DOCUMENTS[q] == DOCUMENTS[k]) & (q >= k)


def _rows_without_keys(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return (q >= k) & (q > 130) & (h != 1)


def _plain(q: Tensor, k: Tensor, v: Tensor, score: Any, mask: Any) -> tuple[Tensor, Tensor]:
    masked = (noop_mask,) if mask is None else mask.as_tuple()
    out, lse, _ = math_attention(q, k, v, score, masked, 1 / math.sqrt(q.size(-1)), {})
    return out, lse * math.log(2)


def _inputs(kv_heads: int, grad: bool) -> list[Tensor]:
    torch.manual_seed(1)
    shapes = [(2, heads, LENGTH, 8) for heads in (4, kv_heads, kv_heads)]
    return [torch.randn(shape, dtype=torch.float64).requires_grad_(grad) for shape in shapes]


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(
    ("score", "mask", "kv_heads"),
    [
        (_identity, None, 4),
        (_alibi, None, 4),
        (_cap, _causal, 4),
        (_identity, _documents, 4),
        (_alibi, _rows_without_keys, 4),
        (_identity, _causal, 2),
    ],
)
def test_as_torchs_formula(score: Any, mask: Any, kv_heads: int, grad: bool) -> None:
    blocks = None if mask is None else create_block_mask(mask, 2, 4, LENGTH, LENGTH, device="cpu")

    def program(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return flex_attention(
            q, k, v, score, blocks, enable_gqa=kv_heads != 4, return_aux=AuxRequest(lse=True)
        )

    outcomes = []
    for run in (
        argand.compile(program, fullgraph=True),
        lambda q, k, v: _plain(q, k, v, score, blocks),
    ):
        inputs, BIAS.grad = _inputs(kv_heads, grad), None
        with torch.set_grad_enabled(grad):
            out, aux = run(*inputs)
        lse = aux if isinstance(aux, Tensor) else aux.lse
        if grad:
            (out.square().sum() + lse[lse.isfinite()].sum()).backward()
        outcomes.append((out.detach(), lse.detach(), *(x.grad for x in inputs), BIAS.grad))
    for found, wanted in zip(*outcomes, strict=True):
        torch.testing.assert_close(found, wanted)


def test_lengths_stay_open() -> None:
    @argand.compile(fullgraph=True, dynamic=True)
    def program(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return flex_attention(q, k, v, _cap)

    for length in (40, 64, 96):
        q, k, v = (torch.randn(1, 2, length, 8) for _ in range(3))
        torch.testing.assert_close(program(q, k, v), _plain(q, k, v, _cap, None)[0])


def test_a_mask_of_another_length_is_refused_as_in_eager() -> None:
    blocks = create_block_mask(_causal, None, None, 128, 128, device="cpu")
    q, k, v = (torch.randn(1, 2, 64, 8) for _ in range(3))
    with pytest.raises(ValueError, match="block_mask was created for"):
        argand.compile(lambda q, k, v: flex_attention(q, k, v, block_mask=blocks))(q, k, v)
