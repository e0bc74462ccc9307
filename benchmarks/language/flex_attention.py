"""benchmarks.language.flex_attention: score and mask functions, block masks, grouped heads; inference and training."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import and_masks, create_block_mask, flex_attention, or_masks

from benchmarks.language.program import program


def heads() -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys, values."""
    return torch.randn(1, 2, 128, 16), torch.randn(1, 2, 128, 16), torch.randn(1, 2, 128, 16)


def grouped() -> tuple[Tensor, Tensor, Tensor]:
    """Four heads of queries, two of keys and values."""
    return torch.randn(1, 4, 128, 16), torch.randn(1, 2, 128, 16), torch.randn(1, 2, 128, 16)


def long() -> tuple[Tensor, Tensor, Tensor]:
    """Several blocks."""
    return torch.randn(1, 2, 256, 16), torch.randn(1, 2, 256, 16), torch.randn(1, 2, 256, 16)


DOCUMENTS = torch.arange(128) // 50
BIAS = torch.randn(2)


def causal(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return q >= k


def near(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return (q - k).abs() <= 16


CAUSAL = create_block_mask(causal, None, None, 128, 128, device="cpu")
LONG = create_block_mask(causal, None, None, 256, 256, device="cpu")
WINDOW = create_block_mask(and_masks(causal, near), None, None, 128, 128, device="cpu")
EITHER = create_block_mask(or_masks(causal, near), None, None, 128, 128, device="cpu")
OWN_DOCUMENT = create_block_mask(
    lambda b, h, q, k: DOCUMENTS[q] == DOCUMENTS[k], None, None, 128, 128, device="cpu"
)


@program(heads)
def plain(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return flex_attention(q, k, v)


@program(heads)
def causal_mask(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return flex_attention(q, k, v, block_mask=CAUSAL)


@program(long)
def blocks_are_left_out(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return flex_attention(q, k, v, block_mask=LONG)


@program(heads)
def sliding_window(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return flex_attention(q, k, v, block_mask=WINDOW)


@program(heads)
def either_mask(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return flex_attention(q, k, v, block_mask=EITHER)


@program(heads)
def documents(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return flex_attention(q, k, v, block_mask=OWN_DOCUMENT)


@program(heads)
def alibi(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + BIAS[h] * (j - i))


@program(heads)
def soft_cap(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return flex_attention(
        q, k, v, score_mod=lambda s, b, h, i, j: 20 * torch.tanh(s / 20), block_mask=CAUSAL
    )


@program(heads)
def mask_in_the_score(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return flex_attention(
        q, k, v, score_mod=lambda s, b, h, i, j: torch.where(i >= j, s, -float("inf"))
    )


@program(heads)
def own_scale(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return flex_attention(q, k, v, scale=0.5, kernel_options={"BLOCK_M": 32})


@program(grouped)
def grouped_heads(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return flex_attention(q, k, v, block_mask=CAUSAL, enable_gqa=True)


@program(heads)
def mask_made_inside(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return flex_attention(
        q, k, v, block_mask=create_block_mask(causal, None, None, 128, 128, device="cpu")
    )


@program(
    lambda: (torch.randn(1, 2, 64, 16), torch.randn(1, 2, 64, 16), torch.randn(1, 2, 64, 16)),
    lambda: (torch.randn(1, 2, 96, 16), torch.randn(1, 2, 96, 16), torch.randn(1, 2, 96, 16)),
    dynamic=True,
)
def open_lengths(q: Tensor, k: Tensor, v: Tensor) -> Any:
    return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + BIAS[h] * (j - i))
