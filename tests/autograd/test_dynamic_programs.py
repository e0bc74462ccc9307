"""Random programs with open sizes against eager, over random sizes.

``python -m tests.autograd.test_dynamic_programs [count] [first]`` runs more of them.
"""

import collections
import random
import sys
import traceback

import pytest
import torch
import torch.nn.functional as F

from argand.backends.argand_backend import compile_graph
from argand.protocol import CompiledGraph
from argand.support.options import make_options
from tests.autograd.test_dynamic import make, open_graph

UNARY = ("tanh", "sigmoid", "neg", "abs", "relu", "square", "cos")
BINARY = ("add", "sub", "mul", "maximum", "minimum")


class Program:
    """``program(a, b, *tensors)``; shapes are kept as text over a and b, so it looks at no size."""

    def __init__(self, seed):
        self.seed = seed
        rng = random.Random(seed)
        self.specs = [rng.choice(["a,b", "a,8", "a,b,6", "b,a", "a,4,b", "a", "2,a,16", "b,33"])]
        sizes = self.specs[0].split(",")
        self.specs += [",".join(sizes[rng.randrange(len(sizes)) :]), self.specs[0]]
        self.steps = rng.randint(3, 10)
        self.__name__ = f"program{seed}"
        self.__qualname__ = self.__name__

    def function(self):
        def program(a, b, x, y, z):
            rng = random.Random(self.seed + 1)
            size = {"a": a, "b": b}
            values = [(v, s.split(",")) for v, s in zip((x, y, z), self.specs)]
            for _ in range(self.steps):
                kind = rng.choice(KINDS)
                made = kind(rng, values, lambda text: eval(text, dict(size)))
                if made is not None and len(made[1]) < 6:
                    values.append(made)
            return tuple(v for v, _ in values[3:]) or (x * 2,)

        return program


def pick(rng, values):
    return values[max(0, len(values) - 1 - rng.randrange(4))]


def unary(rng, values, of):
    x, s = pick(rng, values)
    return getattr(torch, rng.choice(UNARY))(x), s


def binary(rng, values, of):
    x, s = pick(rng, values)
    fitting = [(y, t) for y, t in values if len(t) <= len(s) and s[len(s) - len(t) :] == t]
    y, _ = rng.choice(fitting)
    return getattr(torch, rng.choice(BINARY))(x, y), s


def reduce(rng, values, of):
    x, s = pick(rng, values)
    if not s:
        return None
    dims = sorted(rng.sample(range(len(s)), rng.randint(1, len(s))))
    name = rng.choice(["sum", "mean", "amax", "var", "logsumexp"])
    if name == "var":
        total = x.var(dims, correction=0, keepdim=True)
    else:
        total = getattr(torch, name)(x, dims, True)
    if rng.random() < 0.5:
        return x - total, s
    return total.squeeze(dims), [t for d, t in enumerate(s) if d not in dims]


def norm(rng, values, of):
    x, s = pick(rng, values)
    if not s:
        return None
    if rng.random() < 0.3:
        return F.layer_norm(x, [of(s[-1])]), s
    return getattr(torch, rng.choice(["softmax", "log_softmax"]))(x, rng.randrange(len(s))), s


def permute(rng, values, of):
    x, s = pick(rng, values)
    dims = list(range(len(s)))
    rng.shuffle(dims)
    return x.permute(dims), [s[d] for d in dims]


def merge(rng, values, of):
    x, s = pick(rng, values)
    if len(s) < 2:
        return None
    d = rng.randrange(len(s) - 1)
    shape = [*s[:d], f"({s[d]}*{s[d + 1]})", *s[d + 2 :]]
    return x.reshape([of(t) for t in shape]), shape


def divide(rng, values, of):
    """Cut a product: the inner factor in front, too."""
    x, s = pick(rng, values)
    found = [d for d, t in enumerate(s) if t.startswith("(") and "*" in t and t.count("(") == 1]
    if not found:
        return None
    d = rng.choice(found)
    left, right = s[d][1:-1].split("*")
    pair = [left, right] if rng.random() < 0.7 else [right, left]
    shape = [*s[:d], *pair, *s[d + 1 :]]
    return x.reshape([of(t) for t in shape]), shape


def cut(rng, values, of):
    x, s = pick(rng, values)
    if not s or s[0] not in ("a", "b"):
        return None
    kind = rng.randrange(4)
    if kind == 0:
        return x[1:], [f"({s[0]}-1)", *s[1:]]
    if kind == 1:
        return x[:2], ["2", *s[1:]]
    if kind == 2:
        return x[-1], s[1:]
    return x[of(s[0]) - 2], s[1:]


def flip(rng, values, of):
    x, s = pick(rng, values)
    return (x.flip(rng.randrange(len(s))), s) if s else None


def expand(rng, values, of):
    x, s = pick(rng, values)
    front = rng.choice(["3", "a", "b"])
    return x.unsqueeze(0).expand(of(front), *map(of, s)), [front, *s]


def join(rng, values, of):
    x, s = pick(rng, values)
    if not s:
        return None
    d = rng.randrange(len(s))
    if rng.random() < 0.3:
        return F.pad(x, (1, 2), value=0.5), [*s[:-1], f"({s[-1]}+3)"]
    if rng.random() < 0.5:
        return torch.stack([x, x + 1], d), [*s[:d], "2", *s[d:]]
    return torch.cat([x, x * 2], d), [*s[:d], f"({s[d]}*2)", *s[d + 1 :]]


def product(rng, values, of):
    x, s = pick(rng, values)
    if len(s) not in (2, 3):
        return None
    return (x @ x.transpose(-1, -2)) * 0.1, [*s[:-2], s[-2], s[-2]]


def counted(rng, values, of):
    x, s = pick(rng, values)
    if not s:
        return None
    places = torch.arange(of(s[-1])) if rng.random() < 0.5 else torch.arange(1, of(s[-1]) + 1)
    return x * 0.1 + places * 0.01 + of(s[0]), s


def triangle(rng, values, of):
    x, s = pick(rng, values)
    return (torch.tril(x), s) if len(s) > 1 else None


KINDS = (
    *(unary, binary, binary, reduce, norm, permute, merge, divide),
    *(cut, flip, expand, join, product, counted, triangle),
)


def run(seed, counts=None):
    """Compile one program and compare it at several sizes; what it counts goes to ``counts``."""
    program = Program(seed)
    rng = random.Random(seed)
    function = program.function()
    requires = (0, 1) if seed % 3 == 0 else ()
    first = {"a": rng.randint(2, 9), "b": rng.randint(2, 9)}
    gm, example, context = open_graph(function, ["a", "b"], program.specs, first, requires)
    made = compile_graph(gm, example, context, make_options(None, {"verify": True, "strict": True}))
    if not isinstance(made, CompiledGraph):
        if counts is not None:
            counts[str(made)] += 1
        return 0
    facts, compiled = made.facts, made.takes_inputs
    checked = 0
    for _ in range(6):
        sizes = {"a": rng.choice([2, 3, 5, 8, 17, 33]), "b": rng.choice([2, 3, 4, 7, 16, 31])}
        if not all(f.holds({s: sizes[s.name] for s in f.symbols}) for f in facts):
            continue
        outs = []
        for call in (function, compiled):
            tensors = [make(spec, sizes, k) for k, spec in enumerate(program.specs)]
            wanted = [tensors[k].requires_grad_() for k in requires]
            out = call(*sizes.values(), *tensors)
            if requires:
                sum((o.tanh().sum() for o in out if o.requires_grad), wanted[0].sum()).backward()
            outs.append([*out, *(t.grad for t in wanted)])
        for e, g in zip(*outs, strict=True):
            scale = max(1.0, e.abs().max().item()) if isinstance(e, torch.Tensor) else 1.0
            torch.testing.assert_close(g, e, rtol=1e-3, atol=1e-4 * scale, equal_nan=True)
        checked += 1
    return checked


@pytest.mark.parametrize("first", range(0, 30, 10))
def test_random_programs(first):
    assert sum(run(seed) for seed in range(first, first + 10)) > 20


def main():
    count, first = (int(v) for v in (*sys.argv[1:], 100, 0)[:2])
    counts, failed, checked = collections.Counter(), [], 0
    for seed in range(first, first + count):
        try:
            checked += run(seed, counts)
        except Exception:
            failed.append(seed)
            print(seed, traceback.format_exc(limit=-3))
    print(f"{count} programs, {checked} calls checked, failed: {failed}")
    for reason, times in counts.most_common():
        print(times, reason)


if __name__ == "__main__":
    main()
