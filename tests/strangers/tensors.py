"""Tensor code of strangers: what people write by hand in research scripts."""

import math

import torch
import torch.nn.functional as F

from tests.strangers.harness import rand, stranger


@stranger(
    lambda: (rand(2, 4, 6, 8, grad=True), rand(6, 4)),
    lambda: (rand(1, 4, 6, 8, seed=1, grad=True), rand(6, 4)),
)
def rotary(q, angles):
    cos, sin = angles.cos(), angles.sin()
    even, odd = q[..., ::2], q[..., 1::2]
    out = torch.empty_like(q)
    out[..., ::2] = even * cos - odd * sin
    out[..., 1::2] = even * sin + odd * cos
    return out


@stranger(lambda: (rand(2, 6, 8, grad=True), rand(6, 4)))
def rotary_by_complex_numbers(q, angles):
    turned = torch.polar(torch.ones_like(angles), angles)
    as_complex = torch.view_as_complex(q.float().reshape(*q.shape[:-1], -1, 2))
    return torch.view_as_real(as_complex * turned).flatten(-2).type_as(q)


@stranger(
    lambda: (rand(7, 4).abs().cumsum(-1), rand(7)), lambda: (rand(1, 4).abs().cumsum(-1), rand(1))
)
def non_maximum_suppression(boxes, scores):
    order = scores.argsort(descending=True)
    keep = []
    while order.numel() > 0:
        i = order[0].item()
        keep.append(i)
        if order.numel() == 1:
            break
        rest = boxes[order[1:]]
        low = torch.maximum(boxes[i, :2], rest[:, :2])
        high = torch.minimum(boxes[i, 2:], rest[:, 2:])
        inside = (high - low).clamp(min=0).prod(1)
        area = (boxes[i, 2] - boxes[i, 0]) * (boxes[i, 3] - boxes[i, 1])
        areas = (rest[:, 2] - rest[:, 0]) * (rest[:, 3] - rest[:, 1])
        order = order[1:][inside / (area + areas - inside) <= 0.3]
    return torch.tensor(keep)


@stranger(lambda: (rand(12, 3),), lambda: (rand(20, 3, seed=4),))
def k_means(points):
    centers = points[:3].clone()
    for _ in range(4):
        nearest = torch.cdist(points, centers).argmin(1)
        for k in range(3):
            mine = points[nearest == k]
            if len(mine):
                centers[k] = mine.mean(0)
    return centers, nearest


@stranger(lambda: (rand(5, 4, grad=True), torch.tensor([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 0, 2]])))
def message_passing(features, edges):
    source, target = edges
    messages = features[source] * torch.sigmoid(features[target])
    summed = torch.zeros_like(features).index_add_(0, target, messages)
    degree = torch.zeros(features.shape[0]).scatter_add_(0, target, torch.ones(target.shape[0]))
    return summed / degree.clamp(min=1)[:, None], degree


@stranger(lambda: (rand(3, 10, grad=True),), lambda: (rand(3, 4, grad=True),))
def sliding_windows(x):
    windows = x.unfold(-1, 4, 2)
    return (
        windows.mean(-1),
        windows.amax(-1) - windows.amin(-1),
        F.pad(x, (3, 0)).unfold(1, 4, 1).sum(-1),
    )


@stranger(lambda: (rand(4, 9),), lambda: (rand(1, 9),))
def beam_step(scores):
    best, flat = scores.log_softmax(-1).view(-1).topk(3)
    beams = torch.div(flat, scores.shape[-1], rounding_mode="floor")
    return best, beams, flat % scores.shape[-1]


@stranger(lambda: (rand(4, 9), 3, 0.8), lambda: (rand(4, 9, seed=2), 5, 0.4))
def top_k_top_p(logits, k, p):
    threshold = torch.topk(logits, k)[0][..., -1, None]
    logits = logits.masked_fill(logits < threshold, -float("inf"))
    ordered, index = torch.sort(logits, descending=True)
    gone = ordered.softmax(-1).cumsum(-1) > p
    gone[..., 1:] = gone[..., :-1].clone()
    gone[..., 0] = False
    return logits.masked_fill(gone.scatter(1, index, gone), -float("inf"))


@stranger(
    lambda: (rand(2, 5, 3, grad=True), torch.tensor([5, 2])),
    lambda: (rand(2, 5, 3, grad=True), torch.tensor([0, 1])),
)
def masked_mean(x, lengths):
    mask = torch.arange(x.size(1))[None, :] < lengths[:, None]
    total = (x * mask.unsqueeze(-1)).sum(1)
    return total / lengths.unsqueeze(-1), x.masked_fill(~mask[..., None], float("-inf")).amax(1)


@stranger(lambda: (rand(6, 6, grad=True),), lambda: (rand(6, 6, grad=True).mT,))
def gram_and_whiten(x):
    centred = x - x.mean(0, keepdim=True)
    covariance = centred.T @ centred / (len(x) - 1) + torch.eye(6) * 0.1
    values, vectors = torch.linalg.eigh(covariance)
    return (centred @ (vectors * values.rsqrt()) @ vectors.T).abs(), values


@stranger(lambda: (rand(2, 16, grad=True),), lambda: (rand(2, 16),))
def low_pass(x):
    spectrum = torch.fft.rfft(x)
    spectrum[..., 4:] = 0
    return torch.fft.irfft(spectrum, n=x.shape[-1]), spectrum.abs(), spectrum.angle()


@stranger(lambda: (rand(3, 4, dtype=torch.complex64, grad=True), rand(4, 3, dtype=torch.complex64)))
def complex_products(a, b):
    c = a @ b
    return c.conj().T, (c * c.conj()).real, torch.einsum("ij,jk->ik", a.conj(), b), c.imag


@stranger(
    lambda: (rand(5, grad=True),),
    lambda: (torch.tensor([0.0, -0.0, float("nan"), float("inf"), -1.0]),),
)
def safe_functions(x):
    safe = torch.where(x > 0, x, torch.ones_like(x))
    return (
        torch.where(x > 0, safe.log(), torch.zeros_like(x)),
        torch.nan_to_num(x.sqrt()),
        x.clamp(-1, 1).asin(),
    )


@stranger(lambda: (rand(8, 3), torch.tensor([0, 0, 1, 2, 2, 2, 3, 3])))
def segments(values, ids):
    counts = torch.bincount(ids, minlength=4)
    ends = counts.cumsum(0)
    sums = torch.zeros(4, 3).scatter_add_(0, ids[:, None].expand_as(values), values)
    parts = [part.max(0).values for part in values.split(counts.tolist())]
    return sums / counts[:, None], ends, torch.stack(parts), values.tensor_split(ends[:-1])


@stranger(lambda: (rand(4, 5, grad=True), torch.tensor([1, 0, 4, 2])))
def losses(logits, labels):
    smooth = torch.full_like(logits, 0.1 / 4).scatter_(1, labels[:, None], 0.9)
    soft = -(smooth * logits.log_softmax(1)).sum(1).mean()
    focal = ((1 - logits.softmax(1).gather(1, labels[:, None])) ** 2).squeeze() * F.cross_entropy(
        logits, labels, reduction="none"
    )
    margin = F.multi_margin_loss(logits, labels)
    return soft, focal.mean(), margin, F.nll_loss(logits.log_softmax(1), labels, ignore_index=0)


@stranger(
    lambda: (rand(2, 3, 8, 8, grad=True),),
    lambda: (rand(2, 3, 8, 8, grad=True).to(memory_format=torch.channels_last).detach(),),
)
def image_pipeline(x):
    mean = x.mean((2, 3), keepdim=True)
    x = (x - mean) / (x.std(dim=(2, 3), keepdim=True) + 1e-5)
    x = F.interpolate(x, size=(5, 7), mode="bilinear", align_corners=False)
    return F.avg_pool2d(x, 2, ceil_mode=True), x.flip(-1), F.pixel_unshuffle(x[..., :4, :6], 2)


@stranger(lambda: (rand(6, grad=True),), lambda: (rand(1, grad=True),))
def scan_by_hand(x):
    state, out = torch.zeros(()), []
    for step in x:
        state = 0.9 * state + step
        out.append(state)
    return torch.stack(out)


@stranger(lambda: (rand(3, 3, grad=True),))
def newton_schulz(x):
    y = x / x.norm()
    for _ in range(3):
        y = 1.5 * y - 0.5 * y @ y.T @ y
    return y, torch.linalg.det(y), torch.linalg.matrix_power(y, 3)


@stranger(lambda: (rand(10).abs(), rand(10)), lambda: (rand(4).abs(), rand(4)))
def weighted_percentile(weights, values):
    order = values.argsort()
    share = weights[order].cumsum(0) / weights.sum()
    place = torch.searchsorted(share, torch.tensor([0.25, 0.5]))
    return values[order][place], torch.quantile(values, torch.tensor([0.1, 0.9])), values.median()


@stranger(lambda: (rand(3, 4, grad=True), rand(5, 4)))
def contrastive(a, b):
    similarity = F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).T
    eye = torch.eye(*similarity.shape, dtype=torch.bool)
    positive = similarity[eye]
    negative = similarity.masked_select(~eye).view(3, -1)
    return (
        (negative.logsumexp(1) - positive).mean(),
        F.cosine_similarity(a, b[:3]),
        F.pairwise_distance(a, b[:3]),
    )


@stranger(lambda: (rand(2, 3, 4),), lambda: (rand(2, 3, 4).permute(2, 0, 1),))
def names_of_layouts(x):
    y = x.contiguous().view(-1, x.shape[-1])
    return (
        y.stride(),
        x.is_contiguous(),
        x.transpose(0, 1).reshape(-1),
        x.mT.clone(),
        x.T.contiguous() if x.dim() == 2 else x * 1,
    )


@stranger(
    lambda: (rand(4, 4),), lambda: (rand(4, 4, dtype=torch.float64),), lambda: (rand(4, 4).half(),)
)
def by_dtype(x):
    epsilon = torch.finfo(x.dtype).eps
    y = x / (x.abs().amax() + epsilon)
    return y if x.dtype == torch.float16 else y * 2, torch.promote_types(x.dtype, torch.int32)


@stranger(
    lambda: (torch.arange(12),),
    lambda: (torch.arange(12, dtype=torch.uint8) * 30,),
    lambda: (-torch.arange(12, dtype=torch.int32),),
)
def integers(x):
    return (
        x // 5,
        x % 5,
        torch.div(x, -3, rounding_mode="trunc"),
        x << 1,
        x >> 1,
        ~x,
        x ^ 3,
        x / 2,
        x.float().mean(),
        x.sum(),
        -x,
        x**2,
    )


@stranger(
    lambda: (
        torch.tensor([200, 100, 255], dtype=torch.uint8),
        torch.tensor([100, 200, 1], dtype=torch.uint8),
    )
)
def overflow(a, b):
    return (
        a + b,
        a - b,
        a * b,
        a.sum(),
        (a.int() + b) // 2,
        a.to(torch.int8),
        torch.bitwise_left_shift(a, 1),
        a.float() - b,
    )


@stranger(
    lambda: (rand(3),),
    lambda: (torch.tensor([0.5, 1.5, 2.5]),),
    lambda: (torch.tensor([-0.5, -1.5, 1e10]),),
)
def rounding(x):
    return (
        x.round(),
        x.round(decimals=1),
        x.int(),
        x.floor().long(),
        torch.trunc(x),
        x.frac(),
        torch.fmod(x, 0.3),
        x % 0.3,
        x // 0.3,
    )


@stranger(lambda: (rand(4, grad=True),), lambda: (rand(4, seed=3, grad=True),))
def gradient_penalty(x):
    y = (x**3).sum()
    (first,) = torch.autograd.grad(y, x, create_graph=True)
    return y + (first.norm() - 1) ** 2


@stranger(lambda: (rand(2, 5, 6, grad=True), rand(2, 5, 6), rand(2, 5, 6)))
def causal_attention(q, k, v):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    mask = torch.ones(5, 5, dtype=torch.bool).triu(1)
    weights = scores.masked_fill(mask, float("-inf")).softmax(-1)
    return weights @ v, F.scaled_dot_product_attention(q, k, v, is_causal=True), weights.sum(-1)


@stranger(lambda: (rand(3, 7, grad=True),), lambda: (rand(0, 7, grad=True),))
def statistics(x):
    return (
        x.mean(0),
        x.var(1, unbiased=False),
        torch.std_mean(x, 1),
        x.norm(dim=1),
        x.sum(),
        x.cumsum(0),
        x.logsumexp(1),
    )


@stranger(lambda: (rand(4, 6, grad=True),))
def chunks_in_and_out(x):
    gate, value = x.chunk(2, dim=-1)
    left, right = torch.split(x, [1, 5], dim=1)
    a, b, *rest = x.unbind()
    return (
        F.silu(gate) * value,
        torch.cat([right, left], 1),
        torch.vstack([b, a, *rest]),
        torch.hstack([left, right]),
    )


@stranger(lambda: (rand(5, 5),), lambda: (rand(5, 5, seed=9),))
def index_gymnastics(x):
    rows = torch.tensor([0, 2, -1])
    return (
        x[rows],
        x[rows, rows],
        x[rows][:, rows],
        x[:, None, rows],
        x[x > 0],
        x[..., -1],
        x[[True, False, True, False, True]],
        x[rows[:, None], [1, 2]],
    )


@stranger(
    lambda: (rand(3, 4, grad=True), rand(3, 1)),
    lambda: (rand(3, 4, grad=True), rand(3, 1, seed=1).double()),
)
def broadcasting(x, y):
    return (
        x + y,
        x * y.squeeze(1)[:, None],
        torch.maximum(x, y),
        x.sub(y, alpha=2),
        torch.addcmul(x, x, y, value=0.5),
        x - y.T[:, :1],
    )


@stranger(lambda: (rand(2, 2),))
def factories(x):
    return (
        x.new_zeros(3),
        x.new_full((2,), 7),
        torch.zeros_like(x, dtype=torch.long),
        torch.eye(3),
        torch.linspace(0, 1, 5),
        torch.logspace(0, 2, 3),
        torch.arange(5, 0, -2),
        torch.tensor([[1, 2.0]]),
        torch.full((2,), True),
        torch.tril_indices(3, 3),
        torch.empty(0),
        torch.ones(2, 0),
        torch.meshgrid(torch.arange(2), torch.arange(3), indexing="ij"),
        torch.cartesian_prod(x[0], x[1]),
    )


@stranger(
    lambda: (rand(3, grad=True), rand(3, seed=1, grad=True)),
    lambda: (rand(3, grad=True), rand(3, grad=True)),
)
def larger_of_two(x, y):
    return max(x.sum(), y.sum()), min(x[0], y[0]), max(x.sum().item(), 0)
