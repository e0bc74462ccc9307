"""One program at many sizes, zero and one among them: what became open must hold at all of them."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from tests.strangers.harness import made, rand, stranger

SIZES = (4, 7, 12, 1, 33, 2, 0, 64)


def over(shape, *others, grad=False, sizes=SIZES):
    """A call for each size ``n``; letters are other sizes: ``over("n3")`` is n by 3."""

    def call(n):
        def shape_of(text):
            return [
                n if c == "n" else n + 1 if c == "m" else 2 * n if c == "d" else int(c)
                for c in text
            ]

        return lambda: tuple(
            rand(*shape_of(s), seed=k, grad=grad) if isinstance(s, str) else s
            for k, s in enumerate((shape, *others))
        )

    return [call(n) for n in sizes]


NONZERO = tuple(n for n in SIZES if n)


@stranger(*over("n3"))
def windows_of_rows(x):
    halves = x[: x.shape[0] // 2], x[x.shape[0] // 2 :]
    padded = F.pad(x, (0, 0, 1, x.shape[0] % 2))
    return halves[0].sum(0) - halves[1].sum(0), padded, x[:-1] - x[1:], x[-2:].mean(-1)


@stranger(*over("2n4"))
def positions_added(x):
    n = x.shape[1]
    table = torch.arange(n).unsqueeze(1) / (1.0 + torch.arange(4))
    mask = torch.ones(n, n).tril().bool()
    scores = (x @ x.mT) / math.sqrt(4)
    weights = scores.masked_fill(~mask, -1e9).softmax(-1)
    return weights @ (x + table), table.sum(), mask.sum()


@stranger(*over("n", sizes=(3, 5, 11, 1, 2, 8, 13)))
def sizes_decide(x):
    n = len(x)
    if n % 2:
        x = torch.cat([x, x.new_zeros(1)])
    if n > 6:
        x = x * 2
    return x.view(2, -1).sum(0), n // 2, x.reshape(-1, 2), f"{n}"


@stranger(*over("n6", sizes=NONZERO))
def heads_split(x):
    n, width = x.shape
    heads = x.view(n, 2, width // 2).transpose(0, 1)
    back = heads.transpose(0, 1).reshape(n, -1)
    flat = heads.contiguous().view(-1)
    return back, flat[:: n + 1], heads.stride(), back.is_contiguous(), heads.flatten(1).shape


@stranger(*over("n3", "m3"))
def two_sizes(x, y):
    table = torch.cdist(x, y)
    joined = torch.cat([x, y])
    return (
        table,
        joined.sum(0),
        torch.einsum("ik,jk->ij", x, y),
        joined.shape[0] * 2 - y.shape[0],
        x.numel() + y.numel(),
    )


@stranger(*over("n4", grad=True))
def training_at_sizes(x):
    y = F.layer_norm(x, (4,))
    z = (y.softmax(-1) * y).sum(-1)
    return z, z.sum() / max(x.shape[0], 1), x.cumsum(0)


@stranger(*over("1n", grad=True), *over("3n", grad=True, sizes=(1, 4)))
def rows_that_broadcast(x):
    y = x.expand(3, -1) if x.shape[0] == 1 else x
    return (
        (y * torch.arange(3.0)[:, None]).sum(),
        y + x.T[:1].sum(),
        y.unsqueeze(-1).repeat(1, 1, 2),
    )


@made(*over("23nn", sizes=(8, 9, 16, 12, 7, 31)))
def pictures_of_sizes():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
    ).eval()

    def run(x):
        y = net(x)
        z = F.max_pool2d(x, 2, ceil_mode=True)
        w = F.interpolate(x, size=(x.shape[2] // 2, x.shape[3] * 2))
        return y, z, w, F.unfold(x[:, :1], 3, stride=2).mean(1)

    return run, net


@stranger(*over("n", "n"))
def writes_at_sizes(x, y):
    x += y
    x[::2] = 0
    y.mul_(2).add_(x.flip(0))
    z = torch.zeros(x.shape[0] + 2)
    z[1:-1] = x
    z[: len(y)].add_(y)
    return z, x.sum()


@stranger(*over("n", sizes=NONZERO))
def order_at_sizes(x):
    k = min(3, x.shape[0])
    top, places = x.topk(k)
    ordered = x.sort(stable=True)
    return (
        top,
        places,
        ordered.values,
        ordered.indices,
        x.argmax(),
        x.median(),
        x.kthvalue(k).values,
        x.std(),
        x.var(0, False),
    )


@stranger(*over("n2"))
def pieces(x):
    parts = x.split(3)
    chunks = x.chunk(2)
    stacked = torch.stack([p.sum(0) for p in parts]) if parts else None
    return (
        stacked,
        [len(p) for p in parts],
        [c.mean() for c in chunks if c.numel()],
        torch.tensor_split(x, 3),
    )


@stranger(*over("n", "4n"))
def lengths_as_numbers(x, y):
    n = x.size(0)
    scale = 1.0 / (n + 1)
    ramp = torch.linspace(0, 1, n + 2)
    return (
        x * scale,
        y / math.sqrt(n + 1),
        ramp,
        torch.full((n,), n),
        y.mean() * n,
        torch.tensor(n),
        range(n),
        n * 1.5,
    )


@stranger(
    *[
        (lambda n=n, m=m: (rand(n, m), rand(m, n, seed=1)))
        for n, m in ((2, 3), (3, 2), (5, 5), (1, 4), (4, 1), (6, 3))
    ]
)
def both_sizes_change(x, y):
    if x.shape[0] == x.shape[1]:
        return (x @ y).trace(), None
    wide = x if x.shape[1] > x.shape[0] else x.T
    return wide.amax(0), (x @ y).diagonal(), torch.outer(x[0], y[0]).flatten()[:: x.shape[1]]


@stranger(
    *[
        (lambda n=n, k=k: (rand(n), k))
        for n, k in ((6, 1), (6, 2), (6, 3), (9, 3), (9, -2), (4, 0), (4, 7))
    ]
)
def numbers_that_change(x, k):
    shifted = x.roll(k)
    if 0 < k <= x.shape[0]:
        shifted = shifted + x[:k].sum() * k
    return (
        shifted * k,
        x**k if k >= 0 else x,
        x.unsqueeze(k % 2).shape,
        k // 2,
        k % 3,
        torch.arange(k * k),
    )


@stranger(
    *[
        (lambda v=v: (rand(3), v))
        for v in (0.5, 0.25, 2.0, -1.0, 0.0, float("inf"), float("nan"), 1e-30, 3)
    ]
)
def floats_that_change(x, v):
    y = x * v + v
    if v > 1:
        y = y / v
    return (
        y,
        F.leaky_relu(x, v),
        x.clamp(max=v),
        torch.full((2,), v),
        v * 2,
        x.pow(2) if v == 2 else None,
    )
