"""benchmarks.language.torch_tools: what strangers' modules take from torch beside layers."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
import torch.nn.functional as F
import torch.nn.utils.parametrize as parametrize
import torch.utils._pytree as pytree
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.checkpoint import checkpoint

from benchmarks.language.program import Compile, program, rows, scenario, square, two


def trained(model: nn.Module, run: Any, *inputs: Any) -> Any:
    """Two steps: results and gradients."""
    results = []
    for _ in range(2):
        model.zero_grad()
        result = run(*inputs)
        result.square().sum().backward()
        results.append((result.detach(), [p.grad.clone() for p in model.parameters()]))
    return results


@program()
def jit_questions(x: Tensor) -> Tensor:
    """Questions of libraries that also script and trace."""
    if torch.jit.is_scripting() or torch.jit.is_tracing() or torch.onnx.is_in_onnx_export():
        return x
    return x * (2 if torch.is_grad_enabled() and not torch.is_inference_mode_enabled() else 3)


@program(two)
def overrides(x: Tensor, y: Tensor) -> Any:
    """The questions of torch.overrides."""
    if torch.overrides.has_torch_function((x, y)) or torch.overrides.has_torch_function_unary(x):
        return x
    return x + y, torch.overrides.is_tensor_like(x), torch.is_tensor(y), torch.is_storage(y)


@program(square, train=True)
def saved_tensors_hooks(x: Tensor) -> Tensor:
    """Hooks for what is kept."""
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 1, lambda t: t):
        return (x.sin() * x).exp()


@program(square, train=True)
def save_on_cpu(x: Tensor) -> Tensor:
    """The hooks that torch has itself."""
    with torch.autograd.graph.save_on_cpu():
        return (x.sin() * x).exp()


@scenario
def parametrized(compile_: Compile) -> Any:
    """A parametrization of the user's."""

    class Symmetric(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.triu() + x.triu(1).transpose(-1, -2)

    torch.manual_seed(0)
    model = nn.Linear(4, 4)
    parametrize.register_parametrization(model, "weight", Symmetric())
    return trained(model, compile_(model), torch.ones(2, 4))


@scenario
def parametrized_cached(compile_: Compile) -> Any:
    """A parametrization asked for once."""
    torch.manual_seed(0)
    model = parametrizations.weight_norm(nn.Linear(4, 4))

    def run(x: Tensor) -> Tensor:
        with parametrize.cached():
            return model(model(x))

    return trained(model, compile_(run), torch.ones(2, 4))


@scenario
def weight_norm(compile_: Compile) -> Any:
    """weight_norm, the new one."""
    torch.manual_seed(0)
    model = parametrizations.weight_norm(nn.Conv1d(2, 3, 3))
    return trained(model, compile_(model), torch.ones(2, 2, 8))


@scenario
def weight_norm_old(compile_: Compile) -> Any:
    """weight_norm, the old one, with a hook before the call."""
    torch.manual_seed(0)
    model = torch.nn.utils.weight_norm(nn.Linear(4, 4))
    return trained(model, compile_(model), torch.ones(2, 4))


@scenario
def spectral_norm(compile_: Compile) -> Any:
    """spectral_norm, the new one, which writes to its buffers."""
    torch.manual_seed(0)
    model = parametrizations.spectral_norm(nn.Linear(4, 4))
    return trained(model, compile_(model), torch.ones(2, 4)), dict(model.named_buffers())


@scenario
def spectral_norm_old(compile_: Compile) -> Any:
    """spectral_norm, the old one."""
    torch.manual_seed(0)
    model = torch.nn.utils.spectral_norm(nn.Linear(4, 4))
    return trained(model, compile_(model), torch.ones(2, 4)), dict(model.named_buffers())


@scenario
def orthogonal(compile_: Compile) -> Any:
    """An orthogonal weight."""
    torch.manual_seed(0)
    model = parametrizations.orthogonal(nn.Linear(4, 4))
    return trained(model, compile_(model), torch.ones(2, 4))


@scenario
def packed_sequences(compile_: Compile) -> Any:
    """An LSTM over packed sequences."""
    torch.manual_seed(0)
    model = nn.LSTM(4, 3, batch_first=True)

    def run(x: Tensor, lengths: Tensor) -> Any:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        result, (hidden, _) = model(packed)
        return pad_packed_sequence(result, batch_first=True)[0], hidden

    compiled = compile_(run)
    x = torch.randn(3, 5, 4)
    return [compiled(x, torch.tensor([2, 5, 3])) for _ in range(2)]


@scenario
def gru_and_padding(compile_: Compile) -> Any:
    """A GRU over padded sequences, in training."""
    torch.manual_seed(0)
    model = nn.GRU(4, 3, num_layers=2, bidirectional=True, batch_first=True)

    def run(*parts: Tensor) -> Tensor:
        padded = pad_sequence(list(parts), batch_first=True)
        return model(padded)[0]

    return trained(model, compile_(run), torch.randn(5, 4), torch.randn(3, 4))


@program()
def trees(x: Tensor) -> Any:
    """torch.utils._pytree."""
    tree = {"a": [x, (x + 1, 2)], "b": None}
    leaves, spec = pytree.tree_flatten(tree)
    doubled = pytree.tree_map(lambda leaf: leaf * 2 if isinstance(leaf, Tensor) else leaf, tree)
    back = pytree.tree_unflatten(leaves, spec)
    only = pytree.tree_map_only(Tensor, torch.sin, back)
    return doubled, only, len(pytree.tree_leaves(tree)), pytree.tree_all(lambda n: True, tree)


@program(*rows(2, 3, 5))
def shapes_computed(x: Tensor) -> Any:
    """torch.Size arithmetic, broadcast_shapes, numel, finfo, promotion."""
    shape = x.shape[:-1] + (2, x.shape[-1] // 2)  # noqa: RUF005
    wide = torch.broadcast_shapes(x.shape, (1, 1, x.shape[-1]))
    limit = torch.finfo(x.dtype).min if x.is_floating_point() else torch.iinfo(x.dtype).min
    kind = torch.promote_types(x.dtype, torch.float64)
    y = x.view(shape).to(kind).clamp(min=limit) + torch.Size([2, 3]).numel()
    return y, x.expand(wide), torch.result_type(x, 1.0) == x.dtype, shape.numel()


@program()
def new_tensors(x: Tensor) -> Any:
    """new_zeros and friends, defaults of the process."""
    kind = torch.get_default_dtype()
    made = x.new_zeros(x.shape[0]) + x.new_full((4,), 2) + x.new_tensor([1.0, 2.0, 3.0, 4.0])
    near = torch.ones_like(x, dtype=torch.float64) + torch.empty(4, dtype=kind).fill_(3)
    eye = torch.eye(4, device=x.device, dtype=x.dtype)
    steps = torch.linspace(0, 1, x.shape[1]) + torch.logspace(0, 1, 4)
    return made, near, x @ eye, steps, torch.full((), math.pi), x.new_ones(()), kind


@program(
    lambda: (torch.randn(2, 4, 6, 8), torch.randn(2, 2, 6, 8), torch.randn(2, 2, 6, 8)), train=True
)
def attention_gqa(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention with fewer heads of keys, causal."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


@program(lambda: tuple(torch.randn(2, 4, 6, 8) for _ in range(3)), train=True)
def attention_masks(q: Tensor, k: Tensor, v: Tensor) -> Any:
    """Attention with masks, scales, and another kernel."""
    mask = torch.ones(6, 6, dtype=torch.bool).tril()
    bias = torch.zeros(6, 6).masked_fill(~mask, float("-inf"))
    first = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    second = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=0.3)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        third = F.scaled_dot_product_attention(q, k, v)
    return first + second + third


@program(lambda: (torch.randn(4, 8), torch.randn(8, 8)), train=True)
def autocasts(x: Tensor, w: Tensor) -> Any:
    """autocast, turned off inside, and asked about."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ w
        kind = y.dtype
        with torch.autocast("cpu", enabled=False):
            z = x @ w
        asked = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    return y.float() * 0.5 + z, kind, asked


@scenario
def autocast_decorated(compile_: Compile) -> Any:
    """autocast, no_grad and inference_mode as decorators."""

    @torch.autocast("cpu", dtype=torch.bfloat16)
    def product(x: Tensor) -> Tensor:
        return x @ x

    @torch.no_grad()
    def detached(x: Tensor) -> Tensor:
        return x.sin()

    @torch.enable_grad()
    def attached(x: Tensor) -> Tensor:
        return x.cos()

    run = compile_(lambda x: (product(x), detached(x), attached(x)))
    x = torch.randn(4, 4, requires_grad=True)
    return [run(x)[1:] for _ in range(2)], [run(x)[0].dtype for _ in range(2)]


@program(square, train=True)
def checkpointed(x: Tensor) -> Tensor:
    """Activation checkpointing, both kinds of arguments."""

    def block(y: Tensor, scale: float = 1.0) -> Tensor:
        return (y @ y).tanh() * scale

    return checkpoint(block, x, use_reentrant=False) + checkpoint(
        block, x, scale=2.0, use_reentrant=False
    )


@scenario
def module_hooks(compile_: Compile) -> Any:
    """Forward hooks, hooks before the call, with keywords, that change results."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    seen: list[Any] = []
    model[0].register_forward_pre_hook(lambda m, args: (args[0] * 2,))
    model[1].register_forward_hook(lambda m, args, out: out + args[0])
    model.register_forward_hook(
        lambda m, args, kwargs, out: seen.append(out.shape), with_kwargs=True
    )
    run = compile_(model)
    return [run(torch.ones(2, 4)) for _ in range(2)], seen


@scenario
def backward_hooks_of_modules(compile_: Compile) -> Any:
    """Backward hooks of a module."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    model[0].register_full_backward_hook(lambda m, gi, go: tuple(g * 2 for g in gi))
    x = torch.ones(2, 4, requires_grad=True)
    compile_(model)(x).sum().backward()
    return x.grad, [p.grad for p in model.parameters()]


@scenario
def hook_of_a_value(compile_: Compile) -> Any:
    """A hook of a value inside."""

    def run(x: Tensor) -> Tensor:
        y = x.sin()
        y.register_hook(lambda g: g * 3)
        return (y * 2).sum()

    compiled = compile_(run)
    x = torch.ones(4, requires_grad=True)
    for _ in range(2):
        compiled(x).backward()
    return x.grad


@scenario
def hook_that_notes(compile_: Compile) -> Any:
    """A hook that keeps what it is given."""
    kept: list[Tensor] = []

    def run(x: Tensor) -> Tensor:
        y = x.sin()
        y.register_hook(kept.append)
        return (y * 2).sum()

    compiled = compile_(run)
    x = torch.ones(4, requires_grad=True)
    for _ in range(2):
        compiled(x).backward()
    return x.grad, kept


@scenario
def deep_copied_layers(compile_: Compile) -> Any:
    """Layers that are copies, tied weights."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
    model = nn.ModuleList([copy.deepcopy(layer) for _ in range(2)])
    model[1].linear1.weight = model[0].linear1.weight

    def run(x: Tensor) -> Tensor:
        for part in model:
            x = part(x)
        return x

    return trained(model, compile_(run), torch.randn(2, 3, 8))


@scenario
def buffers_and_state(compile_: Compile) -> Any:
    """Batch norm in training, a buffer that counts, non-persistent buffers."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(4)
            self.register_buffer("count", torch.zeros((), dtype=torch.long))
            self.register_buffer("mean", torch.zeros(4), persistent=False)

        def forward(self, x: Tensor) -> Tensor:
            self.count += 1
            self.mean = self.mean.lerp(x.detach().mean(0), 0.1)
            return self.norm(x) - self.mean

    torch.manual_seed(0)
    model = Net()
    steps = trained(model, compile_(model), torch.randn(5, 4))
    return steps, model.count, model.mean, model.norm.running_mean


@program()
def random_streams(x: Tensor) -> Any:
    """Draws, a seed that is set, a generator."""
    torch.manual_seed(3)
    y = torch.rand(4) + torch.randn_like(x)
    chosen = torch.randperm(4)
    return F.dropout(x, 0.5, training=False), y.shape, chosen.shape


@program(reason="the samples of two sizes that add up to a fixed one cannot be told apart from it")
def sizes_from_lists(x: Tensor) -> Any:
    """tolist used as sizes."""
    lengths = torch.tensor([1, 3])
    parts = torch.split(x, lengths.tolist())
    return [part.sum() for part in parts]


@scenario(reason="the samples of two sizes that add up to a fixed one cannot be told apart from it")
def sizes_from_inputs(compile_: Compile) -> Any:
    """tolist of an input as sizes."""
    run = compile_(lambda x, n: [part.sum() for part in torch.split(x, n.tolist())])
    x = torch.randn(6, 4)
    return [run(x, torch.tensor(n)) for n in ([1, 5], [2, 4], [3, 3])]


@scenario
def parameters_made_inside(compile_: Compile) -> Any:
    """A parameter made in a call."""

    def run(x: Tensor) -> Tensor:
        weight = nn.Parameter(torch.ones(4, 4))
        return x @ weight + nn.Parameter(x.detach().mean(0), requires_grad=False)

    return [compile_(run)(torch.ones(2, 4)) for _ in range(2)]


@scenario
def function_with_module(compile_: Compile) -> Any:
    """An autograd.Function that is given a module."""

    class Reversed(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, module: nn.Module, scale: float) -> Tensor:
            ctx.module, ctx.scale = module, scale
            ctx.save_for_backward(x)
            return module(x) * scale

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Any:
            (x,) = ctx.saved_tensors
            return gradient @ ctx.module.weight * -ctx.scale + 0 * x, None, None

    torch.manual_seed(0)
    layer = nn.Linear(4, 4)
    run = compile_(lambda x: Reversed.apply(x, layer, 2.0).sum())
    x = torch.ones(2, 4, requires_grad=True)
    for _ in range(2):
        run(x).backward()
    return x.grad, [p.grad for p in layer.parameters()]


@program(square, train=True)
def einsums(x: Tensor) -> Any:
    """einsum, tensordot, outer products, stacks of views."""
    y = torch.einsum("ij,jk->ik", x, x) + torch.tensordot(x, x, dims=([1], [0]))
    z = torch.einsum("i,j->ij", x[0], x[1])
    return torch.vstack([y, z]) + torch.cat([x, x.mT]).unflatten(0, (2, 4)).flatten(0, 1)


@program(lambda: (torch.randn(6, 4), torch.tensor([0, 1, 0, 2, 1, 0])), train=True)
def scattered(x: Tensor, index: Tensor) -> Any:
    """Sums by group, as graph networks write them."""
    zeros = x.new_zeros(3, 4)
    summed = zeros.index_add(0, index, x)
    expanded = index.unsqueeze(-1).expand_as(x)
    scattered_ = torch.zeros(3, 4).scatter_add_(0, expanded, x)
    reduced = torch.zeros(3, 4).scatter_reduce(0, expanded, x, "amax", include_self=False)
    return summed + scattered_ + reduced + F.one_hot(index, 3).float().T @ x


@program(lambda: (torch.randn(2, 3, 8, 8),), train=True)
def images(x: Tensor) -> Any:
    """interpolate, pad, unfold, grid_sample, pixel shuffles."""
    y = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
    y = F.pad(y, (1, 1, 2, 2), mode="reflect")
    patches = F.unfold(y, 4, stride=4)
    grid = F.affine_grid(torch.eye(2, 3).expand(2, 2, 3), [2, 3, 4, 4], align_corners=False)
    return patches.sum(1), F.grid_sample(x, grid, align_corners=False), F.pixel_unshuffle(x, 2)


@program(lambda: (torch.randn(4, 5), torch.tensor([1, 0, -100, 4])), train=True)
def losses(x: Tensor, y: Tensor) -> Tensor:
    """Losses with options."""
    loss = F.cross_entropy(x, y, ignore_index=-100, label_smoothing=0.1)
    loss = loss + F.kl_div(x.log_softmax(-1), x.detach().softmax(-1), reduction="batchmean")
    loss = loss + F.smooth_l1_loss(x, torch.zeros_like(x), beta=0.5)
    return loss + nn.CosineEmbeddingLoss()(x, x.flip(0), torch.ones(4))


@scenario
def moved_and_cast(compile_: Compile) -> Any:
    """to, type_as, half and float of a module inside."""
    torch.manual_seed(0)
    layer = nn.Linear(4, 4)

    def run(x: Tensor) -> Tensor:
        weight = layer.weight.to(torch.float64)
        y = x.double() @ weight.T
        return y.to(x).type_as(x).to(device="cpu", non_blocking=True).contiguous().requires_grad_()

    return compile_(run)(torch.ones(2, 4))


@program()
def complex_numbers(x: Tensor) -> Any:
    """Rotary embeddings by complex numbers, an FFT."""
    angles = torch.outer(torch.arange(4).float(), torch.tensor([1.0, 0.5]))
    turns = torch.polar(torch.ones_like(angles), angles)
    y = torch.view_as_complex(x.reshape(4, 2, 2)) * turns
    return torch.view_as_real(y).flatten(1), torch.fft.rfft(x).abs()


@scenario
def random_with_generator(compile_: Compile) -> Any:
    """A generator of the user's."""
    generator = torch.Generator().manual_seed(5)
    run = compile_(lambda x: x + torch.rand(4, generator=generator))
    return [run(torch.ones(4)) for _ in range(2)]


@program()
def grad_inside(x: Tensor) -> Any:
    """torch.autograd.grad of something made inside, and functional jacobians."""
    with torch.enable_grad():
        y = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad((y**3).sum(), y, create_graph=False)
    return slope.clamp(max=2)


@program()
def writes_in_place(x: Tensor) -> Any:
    """Slices, masks and indices that are written."""
    y = torch.zeros(4, 4)
    y[:, 1] = x[:, 0]
    y[x > 0] = -1
    y[[0, 2], [1, 3]] += 5
    y.masked_fill_(y == 0, 7).clamp_(max=6)
    y[..., -1:].mul_(2)
    out = torch.empty(4, 4)
    torch.add(x, y, out=out)
    return y, out, x.add_(1)
