"""Random aten programs against eager: ``python -m tests.native.fuzz [count] [first seed] [double] [checked]``.

Programs are chains of pointwise ops, reductions, views, concatenations, lookups and products on a few
tensors of random shape. The programs here (``double``) are compared with eager in double precision,
those of ``fuzz_typed`` run over all element types. With ``checked`` every load and store of a kernel is checked.
"""

import random
import sys
import traceback

import torch

from argand.native.compile import compile_graph
from argand.support.options import Options
from tests.native.fuzz_typed import TypedProgram, strides
from tests.native.tracing import aten_graph

UNARY = (
    "exp_",
    "tanh",
    "sigmoid",
    "neg",
    "abs",
    "relu",
    "gelu",
    "square",
    "floor",
    "cos",
    "log1p_",
    "sqrt_",
)
BINARY = ("add", "sub", "mul", "div_", "maximum", "minimum", "where", "lt")


class Program:
    """Chooses operations from a seed; the same seed gives the same operations for any dtype."""

    def __init__(self, seed):
        self.seed = seed
        rng = random.Random(seed)
        sizes = rng.choice(
            [
                (2, 3, 4),
                (5, 8),
                (3, 33),
                (16, 17),
                (4, 6, 8),
                (2, 2, 3, 5),
                (64,),
                (7, 1, 9),
                (2, 40, 12),
            ]
        )
        self.shapes = [sizes]
        for _ in range(rng.randint(1, 3)):
            shape = [s if rng.random() < 0.7 else 1 for s in sizes]
            self.shapes.append(tuple(shape[rng.choice([0, 0, 1]) :]) or (1,))
        self.transposed = [rng.random() < 0.25 for _ in self.shapes]
        self.steps = rng.randint(3, 14)

    def inputs(self, dtype):
        generator = torch.Generator().manual_seed(self.seed)
        made = []
        for shape, flipped in zip(self.shapes, self.transposed):
            x = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
            if flipped and x.dim() > 1:
                x = x.transpose(0, -1).contiguous().transpose(0, -1)
            made.append(x)
        return made

    def __call__(self, *inputs):
        rng = random.Random(self.seed + 1)
        values = list(inputs)
        results = []
        for _ in range(self.steps):
            value = self.step(rng, values)
            if value is None or value.numel() > 20000:
                continue
            if value.dtype == torch.bool or value.dtype == torch.int64:
                value = value.to(inputs[0].dtype) * 0.5
            values.append(value)
            if rng.random() < 0.3:
                results.append(value)
        return (*results, values[-1])

    def step(self, rng, values):
        x = rng.choice(values[-4:])
        kind = rng.choice(
            [
                "unary",
                "unary",
                "binary",
                "binary",
                "reduce",
                "view",
                "view",
                "norm",
                "cat",
                "index",
                "product",
            ]
        )
        return getattr(self, kind)(rng, x, values)

    def unary(self, rng, x, values):
        name = rng.choice(UNARY)
        if name == "exp_":
            return torch.exp(-x.abs())
        if name == "log1p_":
            return torch.log1p(x.abs())
        if name == "sqrt_":
            return torch.sqrt(x.abs() + 0.1)
        if name == "gelu":
            return torch.nn.functional.gelu(x)
        return getattr(torch, name)(x)

    def binary(self, rng, x, values):
        y = rng.choice(values)
        try:
            torch.broadcast_shapes(x.shape, y.shape)
        except RuntimeError:
            y = y.sum() * 0.01 if rng.random() < 0.3 else x
        name = rng.choice(BINARY)
        if name == "div_":
            return x / (y.abs() + 0.5)
        if name == "where":
            return torch.where(x > y, x, y * 0.5)
        if name == "lt":
            return x < y
        return getattr(torch, name)(x, y)

    def reduce(self, rng, x, values):
        if x.dim() == 0:
            return x + 1
        dims = sorted(rng.sample(range(x.dim()), rng.randint(1, x.dim())))
        keep = rng.random() < 0.6
        name = rng.choice(["sum", "mean", "amax", "amin", "var", "argmax", "logsumexp"])
        if name == "argmax":
            return x.argmax(dims[0], keep)
        if name == "var":
            return x.var(dims, correction=0, keepdim=keep)
        return getattr(torch, name)(x, dims, keep)

    def norm(self, rng, x, values):
        if x.dim() == 0:
            return None
        dim = rng.randrange(x.dim())
        name = rng.choice(["softmax", "log_softmax", "layer_norm", "rms"])
        if name == "layer_norm":
            return torch.nn.functional.layer_norm(x, x.shape[dim:])
        if name == "rms":
            return x * torch.rsqrt(x.pow(2).mean(dim, keepdim=True) + 1e-3)
        return getattr(torch, name)(x, dim)

    def view(self, rng, x, values):
        name = rng.choice(
            [
                "permute",
                "reshape",
                "slice",
                "expand",
                "flip",
                "select",
                "unsqueeze",
                "flat",
                "split",
            ]
        )
        if name == "permute" and x.dim() > 1:
            dims = list(range(x.dim()))
            rng.shuffle(dims)
            return x.permute(dims)
        if name in ("reshape", "flat") and x.numel():
            n = x.numel()
            divisors = [d for d in range(1, n + 1) if n % d == 0]
            a = rng.choice(divisors)
            return x.reshape(n // a, a) if name == "reshape" else x.reshape(-1)
        if name == "slice" and x.dim() and x.shape[0] > 1:
            return x[rng.randrange(x.shape[0] - 1) :: rng.choice([1, 2])]
        if name == "expand":
            return x.unsqueeze(0).expand(2, *x.shape)
        if name == "flip" and x.dim():
            return x.flip(rng.randrange(x.dim()))
        if name == "select" and x.dim() > 1:
            return x.select(rng.randrange(x.dim()), 0)
        if name == "split" and x.dim() and x.shape[-1] > 1:
            a, b = x.split([1, x.shape[-1] - 1], -1)
            return a * b
        return x.unsqueeze(-1)

    def cat(self, rng, x, values):
        if x.dim() == 0:
            return None
        dim = rng.randrange(x.dim())
        if rng.random() < 0.3:
            return torch.nn.functional.pad(x, (1, 2), value=0.5)
        return torch.cat([x, x * 2], dim) if rng.random() < 0.6 else torch.stack([x, x + 1], dim)

    def index(self, rng, x, values):
        if x.dim() == 0 or x.shape[0] == 0:
            return None
        index = torch.arange(5) * 3 % x.shape[0]
        return x[index] if rng.random() < 0.5 else torch.index_select(x, 0, index)

    def product(self, rng, x, values):
        if x.dim() != 2 or x.numel() > 4000:
            return None
        return torch.mm(x, x.t()) * 0.1 if rng.random() < 0.5 else torch.mm(x.t(), x) * 0.1


VERIFIED = Options(verify="forms")
CHECKED = Options(verify="forms", checked_kernels=True)


def check(seed, options=VERIFIED):
    """None when equal to eager, else what happened."""
    program = Program(seed)
    inputs = program.inputs(torch.float64)
    expected = program(*inputs)
    graph = aten_graph(program, *inputs)
    try:
        got = compile_graph(graph, inputs, options)(list(inputs))
        for e, g in zip(expected, got, strict=True):
            torch.testing.assert_close(g, e, rtol=1e-9, atol=1e-9, equal_nan=True)
            if e.numel() > 1 and strides(g) != strides(e):
                return f"strides {g.stride()} instead of {e.stride()}"
    except Exception:
        return traceback.format_exc(limit=-4) + "\n" + graph.code
    return None


def check_typed(seed, options=VERIFIED):
    """The same for a program over all element types."""
    program = TypedProgram(seed)
    inputs = program.inputs()
    eager = program(*inputs)
    program.wide = True
    exact = program(*[program.to(x, x.dtype) for x in inputs])
    program.wide = False
    graph = aten_graph(program, *inputs)
    try:
        got = compile_graph(graph, inputs, options)(list(inputs))
        reason = program.compare(got, eager, exact)
    except Exception:
        reason = traceback.format_exc(limit=-4)
    return None if reason is None else f"{reason}\n{graph.code}"


def main():
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    count, first = (*numbers, *(200, 0)[len(numbers) :])
    chosen = check if "double" in sys.argv else check_typed
    options = CHECKED if "checked" in sys.argv else VERIFIED
    bad = []
    for seed in range(first, first + count):
        reason = chosen(seed, options)
        if reason is not None:
            bad.append(seed)
            print(f"--- seed {seed}: {reason}", flush=True)
    print(f"{count - len(bad)} of {count} equal; bad: {bad}")


if __name__ == "__main__":
    main()
