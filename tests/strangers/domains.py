"""Programs by trade: simulation, reinforcement learning, graphs, signals, language, vision, statistics."""

import dataclasses
import enum
import functools
import math
import typing

import torch
import torch.nn.functional as F
from torch import nn

from tests.strangers.harness import made, rand, stranger


@stranger(
    lambda: (rand(6, 3), rand(6, 3, seed=1) * 0.1, 0.01),
    lambda: (rand(9, 3), rand(9, 3, seed=1), 0.02),
)
def bodies_under_gravity(position, velocity, dt):
    energies = []
    for _ in range(3):
        gap = position[None] - position[:, None]
        distance = (gap.square().sum(-1) + 1e-2).sqrt()
        pull = (gap / distance[..., None] ** 3).sum(1)
        velocity = velocity + dt * pull
        position = position + dt * velocity
        energies.append(0.5 * velocity.square().sum() - (1 / distance).triu(1).sum())
    return position, velocity, torch.stack(energies)


@stranger(lambda: (rand(20, 1, grad=True),), lambda: (rand(7, 1, grad=True),))
def residual_of_an_equation(x):
    torch.manual_seed(3)
    layers = [torch.randn(1, 8), torch.randn(8, 1)]
    u = torch.tanh(x @ layers[0]) @ layers[1]
    (du,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    (ddu,) = torch.autograd.grad(du.sum(), x, create_graph=True)
    return (ddu + u * du).square().mean()


@stranger(lambda: ([1.0, 0.0, -1.0, 2.0], 0.9), lambda: ([0.5] * 6, 0.99), lambda: ([], 0.5))
def discounted_returns(rewards, gamma):
    total, returns = 0.0, []
    for reward in reversed(rewards):
        total = reward + gamma * total
        returns.insert(0, total)
    found = torch.tensor(returns)
    if len(returns) > 1:
        found = (found - found.mean()) / (found.std() + 1e-8)
    return found


@stranger(
    lambda: (rand(5, 4), torch.tensor([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 0, 2]])),
    lambda: (rand(3, 4), torch.tensor([[0, 1], [1, 2]])),
    lambda: (rand(3, 4), torch.zeros(2, 0, dtype=torch.long)),
)
def messages_over_edges(nodes, edges):
    source, target = edges
    messages = torch.relu(nodes[source] - nodes[target])
    summed = torch.zeros_like(nodes).index_add_(0, target, messages)
    count = torch.zeros(len(nodes)).scatter_add_(0, target, torch.ones(edges.shape[1]))
    highest = torch.full_like(nodes, -1e9).scatter_reduce_(
        0, target[:, None].expand(-1, nodes.shape[1]), messages, "amax", include_self=True
    )
    return summed / count.clamp(min=1)[:, None], torch.where(highest < -1e8, 0.0, highest)


@stranger(lambda: (rand(64), 16), lambda: (rand(100), 20))
def spectrum_of_a_signal(signal, width):
    window = torch.hann_window(width)
    frames = signal.unfold(0, width, width // 2) * window
    power = torch.fft.rfft(frames).abs().pow(2)
    mel = power @ torch.linspace(0, 1, power.shape[-1])[:, None]
    return 10 * torch.log10(mel.clamp(min=1e-10)), power.argmax(-1)


@stranger(lambda: (rand(2, 5, 8), 3), lambda: (rand(1, 9, 8), 0))
def rotary_positions(x, start):
    half = x.shape[-1] // 2
    rates = 1.0 / (10000 ** (torch.arange(half).float() / half))
    angles = torch.outer(torch.arange(start, start + x.shape[1]).float(), rates)
    turns = torch.polar(torch.ones_like(angles), angles)
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], half, 2).contiguous())
    return torch.view_as_real(pairs * turns).flatten(-2)


@stranger(
    lambda: (rand(4, 10), 3, 0.8), lambda: (rand(4, 10), 10, 1.0), lambda: (rand(1, 6), 2, 0.1)
)
def filtered_scores(scores, k, p):
    worst = scores.topk(k).values[..., -1, None]
    scores = scores.masked_fill(scores < worst, float("-inf"))
    ordered, order = scores.sort(descending=True)
    over = ordered.softmax(-1).cumsum(-1) > p
    over[..., 1:] = over[..., :-1].clone()
    over[..., 0] = False
    return scores.masked_fill(over.scatter(1, order, over), float("-inf")).softmax(-1)


@stranger(lambda: (rand(2, 3, 8, 8),), lambda: (rand(1, 3, 10, 6),))
def warped_images(image):
    theta = torch.tensor([[0.9, 0.1, 0.0], [-0.1, 0.9, 0.2]]).expand(image.shape[0], 2, 3)
    grid = F.affine_grid(theta, list(image.shape), align_corners=False)
    warped = F.grid_sample(image, grid, mode="bilinear", padding_mode="border", align_corners=False)
    return F.interpolate(
        warped, scale_factor=0.5, mode="bilinear", align_corners=False, antialias=False
    )


@stranger(
    lambda: (rand(10, 4).abs(), rand(10, 4, seed=1).abs()),
    lambda: (rand(1, 4).abs(), rand(1, 4, seed=2).abs()),
)
def boxes_over_boxes(first, second):
    first = torch.cat([first[:, :2], first[:, :2] + first[:, 2:]], 1)
    second = torch.cat([second[:, :2], second[:, :2] + second[:, 2:]], 1)
    corner = torch.max(first[:, None, :2], second[:, :2])
    other = torch.min(first[:, None, 2:], second[:, 2:])
    inner = (other - corner).clamp(min=0).prod(-1)
    area = [(b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1]) for b in (first, second)]
    return inner / (area[0][:, None] + area[1] - inner)


@stranger(lambda: (rand(8, 4).abs(), rand(8)), lambda: (rand(3, 4).abs(), rand(3)))
def greedy_suppression(boxes, scores):
    order = scores.argsort(descending=True)
    kept = []
    while order.numel() > 0:
        best = order[0]
        kept.append(int(best))
        rest = order[1:]
        gaps = (boxes[rest] - boxes[best]).abs().sum(-1)
        order = rest[gaps > 1.0]
    return torch.tensor(kept), boxes[kept]


@stranger(lambda: (rand(30, 5),), lambda: (rand(12, 3),))
def principal_parts(data):
    centred = data - data.mean(0)
    covariance = centred.T @ centred / (len(data) - 1)
    values, vectors = torch.linalg.eigh(covariance)
    signs = vectors[vectors.abs().argmax(0), torch.arange(vectors.shape[1])].sign()
    return values.flip(0), (vectors * signs).flip(1), centred @ (vectors * signs)


@stranger(lambda: (rand(12, 2), 3), lambda: (rand(20, 2), 2))
def clusters(points, k):
    centres = points[:k].clone()
    for step in range(5):
        nearest = torch.cdist(points, centres).argmin(1)
        fresh = torch.stack(
            [points[nearest == j].mean(0) if (nearest == j).any() else centres[j] for j in range(k)]
        )
        if torch.allclose(fresh, centres):
            break
        centres = fresh
    return centres, nearest, step


@stranger(lambda: (rand(6, 6),), lambda: (rand(3, 3),))
def solved_systems(a):
    spd = a @ a.mT + len(a) * torch.eye(len(a))
    factor = torch.linalg.cholesky(spd)
    b = torch.arange(float(len(a)))
    x = torch.cholesky_solve(b[:, None], factor).squeeze(1)
    logdet = 2 * factor.diagonal().log().sum()
    return x, logdet, torch.linalg.slogdet(spd).logabsdet - logdet < 1e-3


class Mode(enum.Enum):
    TRAIN = "train"
    TEST = "test"


@dataclasses.dataclass
class Config:
    width: int = 4
    rate: float = 0.5
    mode: Mode = Mode.TRAIN
    names: list[str] = dataclasses.field(default_factory=lambda: ["a", "b"])


@stranger(
    lambda: (rand(3, 4), Config()),
    lambda: (rand(3, 4), Config(rate=0.1)),
    lambda: (rand(3, 4), Config(mode=Mode.TEST, names=["b"])),
)
def configured(x, config):
    out = {}
    for name in config.names:
        match config:
            case Config(mode=Mode.TRAIN, rate=rate):
                out[name] = x * rate + len(name)
            case Config(mode=Mode.TEST):
                out[name] = x.mean(-1)
    return dataclasses.replace(config, width=x.shape[0]), out


class Transition(typing.NamedTuple):
    state: torch.Tensor
    action: int
    reward: float = 0.0


@stranger(
    lambda: ([Transition(rand(3), 1, 0.5), Transition(rand(3, seed=1), 0)],),
    lambda: ([Transition(rand(3), 2)],),
)
def batch_of_transitions(transitions):
    batch = Transition(*zip(*transitions, strict=True))
    states = torch.stack(batch.state)
    actions = torch.tensor(batch.action)
    return batch._replace(state=states, action=F.one_hot(actions, 4)), states.sum() + sum(
        batch.reward
    )


@made(
    lambda: (
        torch.randint(0, 9, (4, 5), generator=torch.Generator().manual_seed(0)),
        torch.tensor([5, 3, 3, 1]),
    )
)
def packed_sequences():
    torch.manual_seed(0)
    embedding, cell = (
        nn.Embedding(9, 6, padding_idx=0),
        nn.GRU(6, 7, batch_first=True, bidirectional=True),
    )

    def run(tokens, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(embedding(tokens), lengths, batch_first=True)
        out, last = cell(packed)
        padded, sizes = nn.utils.rnn.pad_packed_sequence(out, batch_first=True, padding_value=-1.0)
        return padded, sizes, last

    return run, [embedding, cell]


@made(lambda: (rand(5, 8),), lambda: (rand(2, 8),))
def low_rank_adapter():
    torch.manual_seed(0)

    class Adapted(nn.Module):
        def __init__(self, base, rank=2):
            super().__init__()
            self.base = base
            for p in base.parameters():
                p.requires_grad_(False)
            self.down = nn.Parameter(torch.randn(rank, base.in_features) * 0.1)
            self.up = nn.Parameter(torch.randn(base.out_features, rank) * 0.1)
            self.merged = False

        def forward(self, x):
            if self.merged:
                return self.base(x)
            return self.base(x) + (x @ self.down.T) @ self.up.T

        def merge(self):
            self.base.weight.data += self.up @ self.down
            self.merged = True

    model = Adapted(nn.Linear(8, 3))
    calls = iter(range(100))

    def run(x):
        out = model(x)
        if next(calls) == 1:
            model.merge()
        return out, model(x)

    return run, model


@made(lambda: (rand(6, 4), rand(6, 2, seed=4)), lambda: (rand(6, 4, seed=2), rand(6, 2, seed=3)))
def step_with_accumulation():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=5)

    def step(x, y):
        optimizer.zero_grad()
        losses = []
        for a, b in zip(x.chunk(3), y.chunk(3), strict=True):
            loss = F.mse_loss(model(a), b) / 3
            loss.backward()
            losses.append(loss.item())
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        scheduler.step()
        return sum(losses), norm, scheduler.get_last_lr()

    return step, model


@made(lambda: (rand(3, 4),), lambda: (rand(3, 4, seed=9),))
def targets_that_follow():
    torch.manual_seed(0)
    online, target = nn.Linear(4, 4), nn.Linear(4, 4)
    target.load_state_dict(online.state_dict())
    target.requires_grad_(False)

    def step(x):
        loss = F.smooth_l1_loss(online(x), target(x.roll(1, 0)).detach() + 1)
        grads = torch.autograd.grad(loss, list(online.parameters()))
        with torch.no_grad():
            for p, g in zip(online.parameters(), grads, strict=True):
                p -= 0.1 * g
            for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
                slow.lerp_(fast, 0.05)
        return loss.detach()

    return step, [online, target]


@made(lambda: (rand(2, 3, 8, 8, grad=True),), lambda: (rand(3, 3, 8, 8),))
def normalised_weights():
    torch.manual_seed(0)
    first = nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 4, 3))
    second = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)).eval()

    def run(x):
        hidden = first(x).mean((2, 3))
        return second(hidden), first.weight.norm()

    return run, [first, second]


@made(lambda: (rand(4, 6, grad=True),), lambda: (rand(2, 6, grad=True),))
def checkpointed_blocks():
    torch.manual_seed(0)
    blocks = nn.ModuleList(nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(3))

    def run(x):
        for block in blocks:
            x = x + torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
        return x

    return run, blocks


@stranger(lambda: (rand(3, 4, grad=True),), lambda: (rand(5, 4, grad=True),))
def penalty_of_gradients(x):
    scale = torch.arange(4.0, requires_grad=True)
    score = (x * scale).sin().sum(-1)
    (g,) = torch.autograd.grad(score.sum(), x, create_graph=True)
    return ((g.norm(dim=-1) - 1) ** 2).mean() + score.mean()


@stranger(lambda: (rand(16, 3),), lambda: (rand(7, 3),))
def sampled_twice(x):
    noise = torch.randn_like(x)
    rows = torch.randperm(x.shape[0])[:4]
    chosen = torch.multinomial(x.abs(), 2, replacement=True)
    return x[rows] + noise[: len(rows)], chosen, F.dropout(x, 0.3), torch.rand(2)


@functools.lru_cache(maxsize=None)
def _mask(n, window):
    rows = torch.arange(n)
    return (rows[:, None] >= rows) & (rows[:, None] - rows < window)


@stranger(
    lambda: (rand(2, 2, 6, 4), 3), lambda: (rand(1, 2, 9, 4), 2), lambda: (rand(2, 2, 6, 4), 3)
)
def attention_in_a_window(q, window):
    mask = _mask(q.shape[-2], window)
    scores = (q @ q.transpose(-1, -2)) / math.sqrt(q.shape[-1])
    weights = scores.masked_fill(~mask, float("-inf")).softmax(-1)
    other = F.scaled_dot_product_attention(q, q, q, attn_mask=mask)
    return weights @ q, other


@stranger(
    lambda: (torch.tensor([3, 1, 2, 2, 5]),),
    lambda: (torch.tensor([0]),),
    lambda: (torch.tensor([7, 7]),),
)
def counted(values):
    unique, inverse, counts = values.unique(return_inverse=True, return_counts=True)
    bins = torch.bincount(values, minlength=4)
    edges = torch.searchsorted(unique, values, right=True)
    return unique, inverse, counts, bins, edges, torch.histc(values.float(), 4), values.median()


@stranger(
    lambda: (rand(4, 6), rand(4, 6, seed=2) > 0),
    lambda: (rand(2, 3), torch.ones(2, 3, dtype=torch.bool)),
)
def masked_statistics(x, mask):
    kept = x[mask]
    x = x.clone()
    x[~mask] = float("nan")
    mean = x.nanmean(-1, keepdim=True)
    filled = torch.where(mask, x, mean)
    return kept.sum(), filled.nan_to_num(0.5), mask.float().mean(0), x.nansum()


@stranger(lambda: ("the cat sat on the mat the end",), lambda: ("a a b",), lambda: ("",))
def words_as_numbers(text):
    table = {}
    ids = [table.setdefault(word, len(table)) for word in text.split()]
    if not ids:
        return None, table
    counts = torch.zeros(len(table))
    for i in ids:
        counts[i] += 1
    return counts / counts.sum(), {word: f"{counts[i].item():.1f}" for word, i in table.items()}


@stranger(lambda: (rand(2, 3, 5),), lambda: (rand(1, 4, 7),))
def sums_by_letters(x):
    square = torch.einsum("bij,bkj->bik", x, x)
    traces = torch.einsum("bii->b", square)
    outer = torch.einsum("bi,bj->ij", x[..., 0], x[..., 1])
    return square, traces, outer, torch.tensordot(x, x, dims=([0, 2], [0, 2]))


@made(lambda: (rand(2, 4),), lambda: (rand(3, 4),))
def blocks_by_name():
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleDict({"in": nn.Linear(4, 4), "out": nn.Linear(4, 2)})
            self.extra = nn.ParameterDict({"scale": nn.Parameter(torch.ones(2))})
            self.register_buffer("seen", torch.zeros((), dtype=torch.long))
            self.log = []

        def forward(self, x):
            self.seen += x.shape[0]
            for name, block in self.blocks.items():
                x = block(x)
                self.log.append((name, tuple(x.shape)))
                if name != "out":
                    x = getattr(F, "leaky_relu")(x, negative_slope=0.2)
            return x * self.extra["scale"]

    model = Net()
    return model, model


@stranger(lambda: (rand(5, 5), 2), lambda: (rand(5, 5), -1), lambda: (rand(3, 3), 0))
def life(board, shift):
    cells = (board > 0).int()
    around = sum(
        torch.roll(cells, (dy, dx), (0, 1))
        for dy in (-1, 0, 1)
        for dx in (-1, 0, 1)
        if (dy, dx) != (0, 0)
    )
    alive = ((around == 3) | ((cells == 1) & (around == 2))).int()
    return (
        alive << abs(shift),
        alive ^ cells,
        ~alive,
        alive.sum(dtype=torch.uint8),
        cells // 2 - 7 // (around + 1),
    )


@stranger(
    lambda: (rand(4, 3, grad=True), rand(4, 3, seed=1)),
    lambda: (rand(2, 3, grad=True), rand(2, 3, seed=1)),
)
def losses_side_by_side(a, b):
    target = b.softmax(-1)
    labels = target.argmax(-1)
    return {
        "ce": F.cross_entropy(a, labels, label_smoothing=0.1),
        "soft": F.cross_entropy(a, target, reduction="none"),
        "kl": F.kl_div(a.log_softmax(-1), target, reduction="batchmean"),
        "huber": F.huber_loss(a, b, delta=0.3),
        "cos": F.cosine_embedding_loss(a, b, torch.ones(len(a))),
        "nll": F.nll_loss(a.log_softmax(-1), labels, weight=torch.tensor([1.0, 2.0, 0.5])),
        "bce": F.binary_cross_entropy_with_logits(a, (b > 0).float(), pos_weight=torch.tensor(2.0)),
        "margin": F.multi_margin_loss(a, labels),
        "triplet": F.triplet_margin_loss(a, b, a.roll(1, 0)),
        "ctc": F.ctc_loss(
            a.log_softmax(-1)[:, None],
            torch.tensor([[1]]),
            torch.tensor([len(a)]),
            torch.tensor([1]),
        ),
    }
