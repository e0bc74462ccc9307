"""benchmarks.models.transformers: BERT, GPT-2, Llama and a T5-like encoder-decoder, small."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.models.case import Case
from benchmarks.models.micro import rotate_half

VOCABULARY, WIDTH, HEADS, LAYERS, TOKENS, BATCH = 1000, 256, 4, 4, 128, 4


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(batch, tokens, width) to (batch, heads, tokens, width per head)."""
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """The way back."""
    return x.transpose(1, 2).contiguous().view(x.shape[0], x.shape[2], -1)


class BertLayer(nn.Module):
    """Self-attention and a feed-forward network, normalised after each."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.attention_output = nn.Linear(width, width)
        self.attention_norm = nn.LayerNorm(width, eps=1e-12)
        self.intermediate = nn.Linear(width, 4 * width)
        self.output = nn.Linear(4 * width, width)
        self.output_norm = nn.LayerNorm(width, eps=1e-12)
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        query = split_heads(self.query(hidden), self.heads)
        key = split_heads(self.key(hidden), self.heads)
        value = split_heads(self.value(hidden), self.heads)
        scores = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(query.shape[-1]) + mask
        weights = self.dropout(functional.softmax(scores, dim=-1))
        context = self.attention_output(merge_heads(torch.matmul(weights, value)))
        hidden = self.attention_norm(self.dropout(context) + hidden)
        inner = functional.gelu(self.intermediate(hidden))
        return self.output_norm(self.dropout(self.output(inner)) + hidden)


class Bert(nn.Module):
    """The encoder with its embeddings and a masked-language-model head."""

    def __init__(self, layers: int = LAYERS, width: int = WIDTH, dropout: float = 0.1) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, width, padding_idx=0)
        self.positions = nn.Embedding(512, width)
        self.types = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(BertLayer(width, HEADS, dropout) for _ in range(layers))
        self.transform = nn.Linear(width, width)
        self.transform_norm = nn.LayerNorm(width, eps=1e-12)
        self.decoder = nn.Linear(width, VOCABULARY)
        self.register_buffer("position_ids", torch.arange(512)[None], persistent=False)

    def forward(self, tokens: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        if attention_mask is None:
            attention_mask = torch.ones(tokens.shape)
        minimum = torch.finfo(self.words.weight.dtype).min
        mask = (1.0 - attention_mask[:, None, None, :]) * minimum
        positions = self.position_ids[:, : tokens.shape[1]]
        hidden = self.words(tokens) + self.types(torch.zeros_like(tokens))
        hidden = self.dropout(self.norm(hidden + self.positions(positions)))
        for layer in self.layers:
            hidden = layer(hidden, mask)
        return self.decoder(self.transform_norm(functional.gelu(self.transform(hidden))))


def new_gelu(x: Tensor) -> Tensor:
    """The gelu of GPT-2, written out as its authors did."""
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
    return 0.5 * x * (1.0 + torch.tanh(inner))


class Gpt2Block(nn.Module):
    """Causal attention and a feed-forward network, normalised before each."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout_rate = heads, dropout
        self.ln_1 = nn.LayerNorm(width)
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        self.ln_2 = nn.LayerNorm(width)
        self.c_fc = nn.Linear(width, 4 * width)
        self.mlp_proj = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        query, key, value = self.c_attn(self.ln_1(hidden)).split(hidden.shape[-1], dim=2)
        context = functional.scaled_dot_product_attention(
            split_heads(query, self.heads),
            split_heads(key, self.heads),
            split_heads(value, self.heads),
            dropout_p=self.dropout_rate if self.training else 0.0,
            is_causal=True,
        )
        hidden = hidden + self.dropout(self.c_proj(merge_heads(context)))
        inner = self.mlp_proj(new_gelu(self.c_fc(self.ln_2(hidden))))
        return hidden + self.dropout(inner)


class Gpt2(nn.Module):
    """The decoder with tied embeddings."""

    def __init__(self, layers: int = LAYERS, width: int = WIDTH, dropout: float = 0.1) -> None:
        super().__init__()
        self.wte = nn.Embedding(VOCABULARY, width)
        self.wpe = nn.Embedding(1024, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Gpt2Block(width, HEADS, dropout) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, VOCABULARY, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        hidden = self.dropout(self.wte(tokens) + self.wpe(positions)[None])
        for block in self.blocks:
            hidden = block(hidden)
        return self.lm_head(self.ln_f(hidden))


class RmsNorm(nn.Module):
    """Llama's norm, in float32 whatever comes in."""

    def __init__(self, width: int, epsilon: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, hidden: Tensor) -> Tensor:
        kind = hidden.dtype
        hidden = hidden.to(torch.float32)
        variance = hidden.pow(2).mean(-1, keepdim=True)
        return self.weight * (hidden * torch.rsqrt(variance + self.epsilon)).to(kind)


class LlamaLayer(nn.Module):
    """Grouped-query attention with rotary embeddings, and a gated feed-forward network."""

    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        self.heads, self.groups = heads, groups
        size = width // heads
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, groups * size, bias=False)
        self.v_proj = nn.Linear(width, groups * size, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)
        self.gate_proj = nn.Linear(width, 3 * width, bias=False)
        self.up_proj = nn.Linear(width, 3 * width, bias=False)
        self.down_proj = nn.Linear(3 * width, width, bias=False)
        self.input_norm, self.post_norm = RmsNorm(width), RmsNorm(width)

    def repeat(self, x: Tensor) -> Tensor:
        """Give every query head its key or value head."""
        batch, groups, tokens, size = x.shape
        wide = x[:, :, None].expand(batch, groups, self.heads // groups, tokens, size)
        return wide.reshape(batch, self.heads, tokens, size)

    def forward(self, hidden: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        residual, hidden = hidden, self.input_norm(hidden)
        query = split_heads(self.q_proj(hidden), self.heads)
        key = split_heads(self.k_proj(hidden), self.groups)
        value = split_heads(self.v_proj(hidden), self.groups)
        query = query * cosine + rotate_half(query) * sine
        key = key * cosine + rotate_half(key) * sine
        context = functional.scaled_dot_product_attention(
            query, self.repeat(key), self.repeat(value), is_causal=True
        )
        hidden = residual + self.o_proj(merge_heads(context))
        residual, hidden = hidden, self.post_norm(hidden)
        gated = functional.silu(self.gate_proj(hidden)) * self.up_proj(hidden)
        return residual + self.down_proj(gated)


class Llama(nn.Module):
    """The decoder with rotary embeddings."""

    def __init__(self, layers: int = LAYERS, width: int = WIDTH) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList(LlamaLayer(width, HEADS, HEADS // 2) for _ in range(layers))
        self.norm = RmsNorm(width)
        self.lm_head = nn.Linear(width, VOCABULARY, bias=False)
        size = width // HEADS
        frequency = 1.0 / (10000.0 ** (torch.arange(0, size, 2).float() / size))
        self.register_buffer("inverse_frequency", frequency, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.embed_tokens(tokens)
        positions = torch.arange(tokens.shape[1], device=tokens.device)[None]
        with torch.no_grad():
            angles = positions[..., None].float() * self.inverse_frequency[None, None, :]
            angles = torch.cat((angles, angles), dim=-1)
            cosine, sine = angles.cos()[:, None], angles.sin()[:, None]
        for layer in self.layers:
            hidden = layer(hidden, cosine, sine)
        return self.lm_head(self.norm(hidden))


class T5Attention(nn.Module):
    """Attention without scaling, with learned relative position biases in the first layer."""

    def __init__(self, width: int, heads: int, *, biased: bool, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.bias = nn.Embedding(32, heads) if biased else None

    def position_bias(self, rows: int, columns: int) -> Tensor:
        """Bias of each pair of positions, bucketed by their distance."""
        distance = torch.arange(columns)[None, :] - torch.arange(rows)[:, None]
        bucket = torch.zeros_like(distance)
        if self.causal:
            buckets, distance = 32, -torch.min(distance, torch.zeros_like(distance))
        else:
            buckets = 16
            bucket = bucket + (distance > 0).to(torch.long) * buckets
            distance = distance.abs()
        exact = buckets // 2
        scaled = torch.log(distance.float() / exact) / math.log(128 / exact) * (buckets - exact)
        large = torch.clamp(exact + scaled.nan_to_num(neginf=0.0).to(torch.long), max=buckets - 1)
        bucket = bucket + torch.where(distance < exact, distance, large)
        assert self.bias is not None
        bias = self.bias(bucket).permute(2, 0, 1)[None]
        if self.causal:
            future = torch.ones(rows, columns, dtype=torch.bool).triu(1)
            bias = bias.masked_fill(future, torch.finfo(bias.dtype).min)
        return bias

    def forward(
        self, hidden: Tensor, memory: Tensor | None = None, bias: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        source = hidden if memory is None else memory
        query = split_heads(self.q(hidden), self.heads)
        key, value = (
            split_heads(self.k(source), self.heads),
            split_heads(self.v(source), self.heads),
        )
        scores = torch.matmul(query, key.transpose(3, 2))
        if bias is None and self.bias is not None:
            bias = self.position_bias(scores.shape[-2], scores.shape[-1])
        if bias is not None:
            scores = scores + bias
        weights = functional.softmax(scores.float(), dim=-1).type_as(scores)
        return self.o(merge_heads(torch.matmul(weights, value))), bias


class T5Block(nn.Module):
    """Self-attention, cross-attention when it has a memory, and a feed-forward network."""

    def __init__(self, width: int, heads: int, *, first: bool, decoder: bool) -> None:
        super().__init__()
        self.attention = T5Attention(width, heads, biased=first, causal=decoder)
        self.cross = T5Attention(width, heads, biased=False, causal=False) if decoder else None
        self.norms = nn.ModuleList(RmsNorm(width) for _ in range(3))
        self.wi = nn.Linear(width, 4 * width, bias=False)
        self.wo = nn.Linear(4 * width, width, bias=False)

    def forward(
        self, hidden: Tensor, bias: Tensor | None, memory: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        attended, bias = self.attention(self.norms[0](hidden), bias=bias)
        hidden = hidden + attended
        if self.cross is not None:
            attended, _ = self.cross(self.norms[1](hidden), memory)
            hidden = hidden + attended
        return hidden + self.wo(functional.relu(self.wi(self.norms[2](hidden)))), bias


class T5(nn.Module):
    """An encoder-decoder with one shared embedding."""

    def __init__(self, layers: int = 2, width: int = WIDTH) -> None:
        super().__init__()
        self.shared = nn.Embedding(VOCABULARY, width)
        self.shared.weight.data.mul_(0.1)
        self.encoder, self.decoder = (
            nn.ModuleList(
                T5Block(width, HEADS, first=index == 0, decoder=decoder) for index in range(layers)
            )
            for decoder in (False, True)
        )
        self.norms = nn.ModuleList(RmsNorm(width) for _ in range(2))
        self.width = width

    def forward(self, tokens: Tensor, decoder_tokens: Tensor) -> Tensor:
        memory, bias = self.shared(tokens), None
        for block in self.encoder:
            memory, bias = block(memory, bias, None)
        memory = self.norms[0](memory)
        hidden, bias = self.shared(decoder_tokens), None
        for block in self.decoder:
            hidden, bias = block(hidden, bias, memory)
        hidden = self.norms[1](hidden) * self.width**-0.5
        return functional.linear(hidden, self.shared.weight)


def _tokens(count: int = TOKENS) -> Tensor:
    return torch.randint(1, VOCABULARY, (BATCH, count))


CASES = (
    Case("bert", lambda: (Bert(), (_tokens(),)), random=True),
    Case("gpt2", lambda: (Gpt2(), (_tokens(),)), random=True),
    Case("llama", lambda: (Llama(), (_tokens(),))),
    Case("t5", lambda: (T5(), (_tokens(), _tokens(64)))),
)
