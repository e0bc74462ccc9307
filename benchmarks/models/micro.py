"""benchmarks.models.micro: pure functions, the shapes of code that fusion is for."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.models.case import Case


def softmax(x: Tensor) -> Tensor:
    """A softmax as users write it."""
    shifted = x - x.amax(dim=-1, keepdim=True)
    exponent = shifted.exp()
    return exponent / exponent.sum(dim=-1, keepdim=True)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A layer norm as users write it."""
    mean = x.mean(-1, keepdim=True)
    variance = (x - mean).square().mean(-1, keepdim=True)
    return (x - mean) * torch.rsqrt(variance + 1e-5) * weight + bias


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """The norm of Llama."""
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def gelu_chain(x: Tensor, gate: Tensor) -> Tensor:
    """A chain of pointwise operators with transcendental functions."""
    y = functional.gelu(x) * torch.sigmoid(gate)
    return torch.tanh(y + 0.5 * x) * gate.clamp(-1, 1) + y


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Mean cross entropy of a language model's logits."""
    return functional.cross_entropy(logits, target)


def batch_norm_training(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Batch statistics over images, then relu."""
    mean, variance = torch.zeros(x.shape[1]), torch.ones(x.shape[1])
    return functional.relu(
        functional.batch_norm(x, mean, variance, weight, bias, training=True, momentum=0.1)
    )


def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Causal attention written out."""
    scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
    steps = query.shape[-2]
    mask = torch.ones(steps, steps, dtype=torch.bool).tril()
    return torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1) @ value


def rotate_half(x: Tensor) -> Tensor:
    """Swap the halves of the last dimension, the first negated."""
    left, right = x.chunk(2, dim=-1)
    return torch.cat((-right, left), dim=-1)


def rotary_embedding(query: Tensor, key: Tensor, position: Tensor) -> Tensor:
    """Rotary position embedding of queries and keys."""
    width = query.shape[-1]
    frequency = 1.0 / (10000 ** (torch.arange(0, width, 2, dtype=torch.float32) / width))
    angle = position[:, None].float() * frequency[None, :]
    angle = torch.cat((angle, angle), dim=-1)
    cosine, sine = angle.cos(), angle.sin()
    query = query * cosine + rotate_half(query) * sine
    key = key * cosine + rotate_half(key) * sine
    return query + key


def adam_step(
    parameters: list[Tensor], gradients: list[Tensor], means: list[Tensor], squares: list[Tensor]
) -> list[Tensor]:
    """One step of Adam over a list of tensors, in place."""
    beta1, beta2, rate, epsilon = 0.9, 0.999, 1e-3, 1e-8
    for parameter, gradient, mean, square in zip(
        parameters, gradients, means, squares, strict=True
    ):
        mean.mul_(beta1).add_(gradient, alpha=1 - beta1)
        square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        parameter.addcdiv_(mean, square.sqrt().add_(epsilon), value=-rate)
    return parameters


def adamw_foreach(
    parameters: list[Tensor], gradients: list[Tensor], means: list[Tensor], squares: list[Tensor]
) -> list[Tensor]:
    """One step of AdamW as torch's own optimizer writes it, one call for all tensors."""
    torch._foreach_mul_(parameters, 1 - 1e-5)
    torch._foreach_lerp_(means, gradients, 0.1)
    torch._foreach_mul_(squares, 0.999)
    torch._foreach_addcmul_(squares, gradients, gradients, 0.001)
    roots = torch._foreach_sqrt(squares)
    torch._foreach_add_(roots, 1e-8)
    torch._foreach_addcdiv_(parameters, means, roots, -1e-3)
    return parameters


def sgd_foreach(
    parameters: list[Tensor], gradients: list[Tensor], momenta: list[Tensor]
) -> list[Tensor]:
    """One step of stochastic gradient descent with momentum, one call for all tensors."""
    torch._foreach_mul_(momenta, 0.9)
    torch._foreach_add_(momenta, gradients)
    torch._foreach_add_(parameters, momenta, alpha=-1e-6)
    return parameters


def pointwise(x: Tensor, out: Tensor) -> Tensor:
    """A plain fused kernel: as fast as memory."""
    return out.copy_(torch.relu(x * 2 + 1))


def _adam() -> tuple[object, tuple[list[Tensor], ...]]:
    shapes = [(256, 256), (256,), (1024, 256), (1024,), (256, 1024), (256,)] * 2

    def tensors(positive: bool = False) -> list[Tensor]:
        made = [torch.randn(shape) for shape in shapes]
        return [t.abs() for t in made] if positive else made

    return adam_step, (tensors(), tensors(), tensors(), tensors(positive=True))


def _pointwise() -> tuple[object, tuple[Tensor, ...]]:
    return pointwise, (torch.randn(4096, 1024), torch.empty(4096, 1024))


def _heads(count: int) -> tuple[Tensor, ...]:
    return tuple(torch.randn(4, 4, 128, 64) for _ in range(count))


CASES = (
    Case("softmax", lambda: (softmax, (torch.randn(512, 1024),)), "micro"),
    Case(
        "layer_norm",
        lambda: (layer_norm, (torch.randn(512, 1024), torch.randn(1024), torch.randn(1024))),
        "micro",
    ),
    Case("rms_norm", lambda: (rms_norm, (torch.randn(512, 1024), torch.randn(1024))), "micro"),
    Case(
        "gelu_chain",
        lambda: (gelu_chain, (torch.randn(512, 1024), torch.randn(512, 1024))),
        "micro",
    ),
    Case(
        "cross_entropy",
        lambda: (cross_entropy, (torch.randn(512, 4096), torch.randint(4096, (512,)))),
        "micro",
    ),
    Case(
        "batch_norm_training",
        lambda: (
            batch_norm_training,
            (torch.randn(4, 64, 56, 56), torch.randn(64), torch.randn(64)),
        ),
        "micro",
    ),
    Case("attention", lambda: (attention, _heads(3)), "micro"),
    Case("rotary_embedding", lambda: (rotary_embedding, (*_heads(2), torch.arange(128))), "micro"),
    Case("adam_step", _adam, "micro", modes=("infer",)),
    Case("adamw_foreach", lambda: (adamw_foreach, _adam()[1]), "micro", modes=("infer",)),
    Case("sgd_foreach", lambda: (sgd_foreach, _adam()[1][:3]), "micro", modes=("infer",)),
    Case("pointwise", _pointwise, "micro", modes=("infer",), floor=lambda x, out: out.copy_(x)),
)
