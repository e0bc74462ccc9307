"""Random aten programs over all element types and strides, for ``tests.native.fuzz``.

Integers, bool and double must agree with eager exactly or to 1e-9; float, half and bfloat16 values go through
continuous functions only and are judged against the same program in double: the compiled result
may be as far from it as eager's, not further.
"""

import random

import torch
import torch.nn.functional as F

FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
HALF = (torch.bfloat16, torch.float16)
ROUNDED = (torch.float32, *HALF)
SIZES = (
    (2, 3, 4),
    (5, 8),
    (3, 33),
    (4, 6, 8),
    (2, 3, 6, 5),
    (64,),
    (7, 1, 9),
    (2, 40, 12),
    (1, 2, 8, 8),
)

SMOOTH = {
    "exp": lambda x: torch.exp(-x.abs()),
    "log1p": lambda x: torch.log1p(x.abs()),
    "sqrt": lambda x: torch.sqrt(x.abs() + 0.25),
    "rsqrt": lambda x: torch.rsqrt(x.abs() + 1),
    "reciprocal": lambda x: torch.reciprocal(x.abs() + 1),
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "softplus": F.softplus,
    "mish": F.mish,
    "elu": F.elu,
    "hardswish": F.hardswish,
    "hardtanh": F.hardtanh,
    "leaky_relu": F.leaky_relu,
    "logsigmoid": F.logsigmoid,
    "erf": torch.erf,
    "sin": torch.sin,
    "cos": torch.cos,
    "atan": torch.atan,
    "expm1": lambda x: torch.expm1(x.clamp(-2, 2)),
    "pow": lambda x: (x.abs() + 0.5) ** 0.5,
    "cube": lambda x: x.clamp(-2, 2) ** 3,
    "nan_to_num": torch.nan_to_num,
}
STEPPED = {
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
    "trunc": torch.trunc,
    "frac": torch.frac,
    "floor_divide": lambda x: torch.floor_divide(x, 0.75),
    "remainder": lambda x: torch.remainder(x, 0.75),
    "fmod": lambda x: torch.fmod(x, -0.75),
}
WHOLE = {
    "not": torch.bitwise_not,
    "left": lambda x: x << 1,
    "right": lambda x: x >> 2,
    "floor_divide": lambda x: torch.floor_divide(x, 3),
    "divide_down": lambda x: torch.floor_divide(x, -3),
    "truncate": lambda x: torch.div(x, 3, rounding_mode="trunc"),
    "remainder": lambda x: torch.remainder(x, 3),
    "fmod": lambda x: torch.fmod(x, 3),
    "square": torch.square,
    "true_divide": lambda x: x / 4,
    "sum_of_bits": lambda x: (x & 5) + (x | 2),
    "half": lambda x: x * 0.5,
    "power": lambda x: x**2,
}
BINARY = ("add", "sub", "mul", "maximum", "minimum", "div", "where", "compare", "bits", "alpha",
          "logaddexp", "atan2", "lerp", "addcmul", "addcdiv", "hypot", "mask", "clamp")  # fmt: skip
KINDS = ("unary", "unary", "binary", "binary", "binary", "scalar", "reduce", "broadcast", "view", "view",
         "norm", "join", "index", "index", "write", "convert", "product", "image")  # fmt: skip


def strides(x):
    """Where the elements lie; the stride of a dimension of one element says nothing (torch's tests skip it, too)."""
    return [stride for size, stride in zip(x.shape, x.stride(), strict=True) if size > 1]


def is_exact(x):
    """A value whose rounding is eager's, so that steps and comparisons of it cannot differ."""
    return not x.dtype.is_floating_point or x.dtype == torch.float64


class TypedProgram:
    """The same seed gives the same operations; ``wide`` runs them with every float in double."""

    def __init__(self, seed):
        self.seed, self.wide = seed, False
        self.kinds, self.result_kinds, self.used = [], [], ()
        rng = random.Random(f"typed {seed}")
        sizes = rng.choice(SIZES)
        self.inputs_of = [(sizes, self.a_type(rng), rng.randrange(6))]
        for _ in range(rng.randint(2, 4)):
            shape = [s if rng.random() < 0.7 else 1 for s in sizes]
            shape = tuple(shape[rng.choice([0, 0, 0, 1]) :]) or (1,)
            self.inputs_of.append((shape, self.a_type(rng), rng.randrange(6)))
        self.steps = rng.randint(3, 12)

    @staticmethod
    def a_type(rng):
        choice = rng.random()
        if choice < 0.65:
            return rng.choice(FLOATS)
        return rng.choice(INTEGERS) if choice < 0.9 else torch.bool

    def inputs(self):
        generator = torch.Generator().manual_seed(self.seed)
        return [self.tensor(generator, *row) for row in self.inputs_of]

    @staticmethod
    def tensor(generator, shape, dtype, layout):
        """A tensor that lies in memory as it may: transposed, every other element, broadcast, offset."""
        real = list(shape)
        if layout == 2 and real:
            real[-1] *= 2
        if layout == 3 and real:
            real[0] = 1
        if layout == 4 and real:
            real[0] += 1
        if dtype == torch.bool:
            x = torch.randint(0, 2, real, generator=generator).bool()
        elif dtype.is_floating_point:
            x = torch.randn(real, generator=generator, dtype=torch.float64).to(dtype)
        else:
            low, high = (0, 255) if dtype == torch.uint8 else (-100, 100)
            x = torch.randint(low, high, real, generator=generator).to(dtype)
        if layout == 1 and x.dim() > 1:
            return x.transpose(0, -1).contiguous().transpose(0, -1)
        if layout == 2 and real:
            return x[..., ::2]
        if layout == 3 and real:
            return x.expand(shape)
        return x[1:] if layout == 4 and real else x

    def to(self, x, dtype):
        wide = self.wide and dtype.is_floating_point
        return x.to(torch.float64 if wide else dtype)

    def __call__(self, *inputs):
        rng = random.Random(f"steps {self.seed}")
        values, results = list(inputs), []
        # what a value is outside the double run decides what may be done with it
        types = [row[1] for row in self.inputs_of]
        kinds = []
        for _ in range(self.steps):
            name, place = rng.choice(KINDS), rng.randrange(max(0, len(values) - 4), len(values))
            step, keep = random.Random(rng.random()), rng.random() < 0.4
            kind = None
            # later runs do what the first did
            if not self.kinds or self.kinds[len(kinds)] is not None:
                value = self.tried(name, step, values, types, place)
                if value is not None and 0 < value.numel() <= 8000:
                    kind = self.kinds[len(kinds)] if self.kinds else self.kind_of(value)
            kinds.append(kind)
            if kind is None:
                continue
            value = value.double() if self.wide and value.is_floating_point() else value
            values.append(value)
            types.append(kind)
            if keep:
                results.append((value, kind))
        results.append((values[-1], types[-1]))
        self.kinds, self.result_kinds = kinds, [kind for _, kind in results]
        return tuple(value for value, _ in results)

    def tried(self, name, rng, values, types, place):
        try:
            return getattr(self, name)(rng, values[place], values, types, types[place])
        except (RuntimeError, IndexError, ValueError):  # eager has no such kernel for this type
            if self.kinds:
                raise
            return None

    def kind_of(self, value):
        """The element type; double that was made of something rounded counts as float."""
        rounded = any(t in ROUNDED for t in self.used) and value.dtype == torch.float64
        return torch.float32 if rounded else value.dtype

    def typed(self, value, *types):
        """The value, noting the types it was made of."""
        self.used = types
        return value

    def compare(self, got, eager, exact):
        """None, or what differs."""
        for number, (g, e, w, kind) in enumerate(
            zip(got, eager, exact, self.result_kinds, strict=True)
        ):
            if g.dtype != e.dtype or g.shape != e.shape:
                return f"result {number} is {g.dtype} {g.shape} instead of {e.dtype} {e.shape}"
            if strides(g) != strides(e):
                return f"result {number} has strides {g.stride()} instead of {e.stride()}"
            if kind not in ROUNDED:
                torch.testing.assert_close(g, e, rtol=1e-9, atol=1e-9, equal_nan=True)
                continue
            known = e.isfinite() & w.isfinite()
            g, e, w = (t[known].double() for t in (g, e, w))
            if not g.numel():
                continue
            ours, eagers = (g - w).abs().max(), (e - w).abs().max()
            limit = 3 * eagers + 16 * torch.finfo(kind).eps * w.abs().max()
            if not ours <= limit:
                return f"result {number} ({kind}) is {ours:.3g} off, eager {eagers:.3g}"
        return None

    # --- steps: each gives a value or None ------------------------------------------------

    def unary(self, rng, x, values, types, kind):
        if kind == torch.bool:
            return self.typed(torch.logical_not(x) if rng.random() < 0.5 else ~x, kind)
        if not kind.is_floating_point:
            name = rng.choice(["neg", "abs", "sign", *WHOLE])
            return self.typed(WHOLE[name](x) if name in WHOLE else getattr(torch, name)(x), kind)
        table = {**SMOOTH, "neg": torch.neg, "abs": torch.abs, "relu": torch.relu}
        if kind == torch.float64:
            table |= STEPPED
            if rng.random() < 0.1:
                tests = [torch.isnan, torch.isinf, torch.isfinite, torch.signbit]
                return self.typed(rng.choice(tests)(x), kind)
        return self.typed(rng.choice(list(table.values()))(x), kind)

    def partner(self, rng, x, values, types, kind):
        place = rng.randrange(len(values))
        y, other = values[place], types[place]
        try:
            torch.broadcast_shapes(x.shape, y.shape)
        except RuntimeError:
            return x, kind
        return y, other

    def binary(self, rng, x, values, types, kind):
        y, other = self.partner(rng, x, values, types, kind)
        name = rng.choice(BINARY)
        floating = kind.is_floating_point and other.is_floating_point
        result = torch.promote_types(kind, other)
        if name == "div":
            return self.typed(x / (y.abs() + 1 if other != torch.bool else 2), kind, other)
        if name == "where":
            mask = self.mask(rng, x, kind)
            return self.typed(torch.where(mask, x, y), kind, other)
        if name == "compare":
            if any(t in ROUNDED for t in (kind, other)):
                return None
            test = rng.choice([torch.lt, torch.le, torch.gt, torch.ge, torch.eq, torch.ne])
            return self.typed(test(x, y), kind)
        if name == "bits":
            if kind.is_floating_point or other.is_floating_point:
                return None
            return self.typed(
                rng.choice([torch.bitwise_and, torch.bitwise_or, torch.bitwise_xor])(x, y), kind
            )
        if name == "mask":
            return self.typed(x.masked_fill(self.mask(rng, x, kind), 0), kind)
        if name in ("logaddexp", "atan2", "lerp", "addcmul", "addcdiv", "hypot", "clamp", "alpha"):
            if not floating or kind != other:
                return None
            return self.typed(self.mixed(name, x, y.to(x.dtype)), kind)
        if result == torch.bool and name == "sub":
            return None
        return self.typed(getattr(torch, name)(x, y), kind, other)

    @staticmethod
    def mixed(name, x, y):
        if name == "logaddexp":
            return torch.logaddexp(x, y)
        if name == "atan2":
            return torch.atan2(x, y.abs() + 1)
        if name == "lerp":
            return torch.lerp(x, y, 0.25)
        if name == "addcmul":
            return torch.addcmul(x, y, x, value=0.5)
        if name == "addcdiv":
            return torch.addcdiv(x, y, y.abs() + 1, value=-0.5)
        if name == "hypot":
            return torch.hypot(x, y)
        if name == "clamp":
            return torch.clamp(x, y - 1, y + 1)
        return torch.sub(torch.add(x, y, alpha=0.5), y, alpha=2)

    @staticmethod
    def mask(rng, x, kind):
        """A condition that does not hang on rounding."""
        if kind in ROUNDED or rng.random() < 0.5:
            rows = torch.arange(x.shape[-1] if x.dim() else 1)
            return rows % 3 != 1
        return x if kind == torch.bool else x > 0

    def scalar(self, rng, x, values, types, kind):
        number = rng.choice([2, 3, -1, 0.5, -1.5])
        if kind == torch.bool or (not kind.is_floating_point and kind == torch.uint8):
            number = abs(number)
        if isinstance(number, float) and not kind.is_floating_point:
            kind = torch.float32
        name = rng.choice(["add", "mul", "rsub", "div", "max", "compare"])
        if name == "add":
            return self.typed(x + number, kind)
        if name == "mul":
            return self.typed(x * number, kind)
        if name == "rsub":
            return None if x.dtype == torch.bool else self.typed(number - x, kind)
        if name == "div":
            return self.typed(x / number, kind)
        if name == "compare" and is_exact(x) and kind not in ROUNDED:
            return self.typed(x >= number, kind)
        return None if x.dtype == torch.bool else self.typed(x.clamp_min(number), kind)

    def reduce(self, rng, x, values, types, kind):
        if x.dim() == 0:
            return None
        dims = sorted(rng.sample(range(x.dim()), rng.randint(1, x.dim())))
        keep = rng.random() < 0.6
        floating = ("mean", "var", "std", "logsumexp", "norm", "norm1")
        names = ["sum", "amax", "amin", "any", "all", "count", "cumsum", "prod"]
        if kind.is_floating_point:
            names = [*floating, "sum", "amax", "amin", "cumsum"]
        if is_exact(x) and kind not in (*ROUNDED, torch.bool):
            names += ["argmax", "argmin", "max", "min"]
        name = rng.choice(names)
        if name in ("argmax", "argmin"):
            return self.typed(getattr(torch, name)(x, dims[0], keep), kind)
        if name in ("max", "min"):
            value, index = getattr(torch, name)(x, dims[0], keep)
            return self.typed(value + index, kind)
        if name in ("var", "std"):
            if x[(0,) * x.dim()].numel() == 0 or all(x.shape[d] == 1 for d in dims):
                return None
            return self.typed(
                getattr(x, name)(dims, correction=rng.choice([0, 1]), keepdim=keep), kind
            )
        if name == "norm":
            return self.typed(torch.linalg.vector_norm(x, 2, dims, keep), kind)
        if name == "norm1":
            return self.typed(torch.linalg.vector_norm(x, 1, dims, keep), kind)
        if name in ("any", "all"):
            return self.typed(getattr(torch, name)(x, dims[0], keep), kind)
        if name == "count":
            return self.typed(torch.count_nonzero(x, dims[0]), kind)
        if name == "cumsum":
            return self.typed(torch.cumsum(x, dims[0]), kind)
        if name == "prod":
            return self.typed(torch.prod(x, dims[0], keep), kind)
        return self.typed(getattr(torch, name)(x, dims, keep), kind)

    def broadcast(self, rng, x, values, types, kind):
        """A reduction that comes back to its rows."""
        if x.dim() == 0 or kind == torch.bool:
            return None
        dim = rng.randrange(x.dim())
        if not kind.is_floating_point:
            return self.typed(x - x.amax(dim, keepdim=True) + x.sum(dim, keepdim=True), kind)
        centred = x - x.mean(dim, keepdim=True)
        name = rng.choice(["centre", "scale", "exp", "both"])
        if name == "scale":
            centred = centred / (centred.abs().amax(dim, keepdim=True) + 1)
        if name == "exp":
            power = torch.exp(x - x.amax(dim, keepdim=True))
            centred = power / power.sum(dim, keepdim=True)
        if name == "both":
            other = rng.randrange(x.dim())
            centred = centred * 0.5 + x.sum(other, keepdim=True) * 0.125
        return self.typed(centred, kind)

    def norm(self, rng, x, values, types, kind):
        if x.dim() == 0 or not kind.is_floating_point:
            return None
        dim = rng.randrange(x.dim())
        name = rng.choice(
            [
                "softmax",
                "log_softmax",
                "layer_norm",
                "rms_norm",
                "group_norm",
                "batch_norm",
                "cross_entropy",
            ]
        )
        if name == "layer_norm":
            return self.typed(F.layer_norm(x, x.shape[dim:], eps=0.01), kind)
        if name == "rms_norm":
            return self.typed(x * torch.rsqrt(x.pow(2).mean(dim, keepdim=True) + 0.01), kind)
        if name == "group_norm":
            if x.dim() < 3 or x.shape[1] % 2 or x.shape[1] < 4:
                return None
            return self.typed(F.group_norm(x, 2, eps=0.01), kind)
        if name == "batch_norm":
            if x.dim() < 2:
                return None
            weight = torch.arange(x.shape[1]).to(x.dtype) * 0.125
            return self.typed(F.batch_norm(x, weight * 0, weight + 1, weight, weight, False), kind)
        if name == "cross_entropy":
            if x.dim() != 2 or kind in HALF:
                return None
            return self.typed(F.cross_entropy(x, torch.arange(x.shape[0]) % x.shape[1]), kind)
        return self.typed(getattr(torch, name)(x, dim), kind)

    def view(self, rng, x, values, types, kind):
        value = self.viewed(rng, x)
        return None if value is None else self.typed(value, kind)

    @staticmethod
    def viewed(rng, x):
        names = ["permute", "reshape", "slice", "step", "expand", "flip", "select", "split", "unfold",
                 "diagonal", "roll", "repeat", "tril", "triu", "movedim", "narrow", "pixel", "flat"]  # fmt: skip
        name = rng.choice(names)
        if x.dim() == 0:
            return x.expand(3)
        dim = rng.randrange(x.dim())
        size = x.shape[dim]
        if name == "permute":
            dims = list(range(x.dim()))
            rng.shuffle(dims)
            return x.permute(dims)
        if name in ("reshape", "flat"):
            n = x.numel()
            a = rng.choice([d for d in range(1, n + 1) if n % d == 0])
            return x.reshape(n // a, a) if name == "reshape" else x.reshape(-1)
        if name == "slice":
            return x.narrow(dim, rng.randrange(size), 1) if size == 1 else x[1:]
        if name == "step":
            index = [slice(None)] * x.dim()
            index[dim] = slice(rng.randrange(size), None, rng.choice([2, 3]))
            return x[tuple(index)]
        if name == "expand":
            return x.unsqueeze(dim).expand(*x.shape[:dim], 2, *x.shape[dim:])
        if name == "flip":
            return x.flip(dim)
        if name == "select":
            return x.select(dim, rng.choice([0, -1]))
        if name == "split":
            return torch.stack(x.chunk(2, dim)) if size % 2 == 0 else None
        if name == "unfold":
            return x.unfold(dim, 2, 1) if size > 1 else None
        if name == "diagonal":
            return (
                x.diagonal(rng.choice([-1, 0, 1]), 0, -1)
                if x.dim() > 1 and min(x.shape[0], x.shape[-1]) > 1
                else None
            )
        if name == "roll":
            return x.roll(rng.choice([1, -2]), dim)
        if name == "repeat":
            return (
                x.repeat(2, *[1] * (x.dim() - 1))
                if rng.random() < 0.5
                else x.repeat_interleave(2, dim)
            )
        if name in ("tril", "triu"):
            return getattr(torch, name)(x, rng.choice([-1, 0, 1])) if x.dim() > 1 else None
        if name == "movedim":
            return x.movedim(dim, 0)
        if name == "pixel":
            return (
                F.pixel_unshuffle(x, 2)
                if x.dim() == 4 and x.shape[2] % 2 == x.shape[3] % 2 == 0
                else None
            )
        return x.narrow(dim, 0, max(1, size // 2))

    def join(self, rng, x, values, types, kind):
        if x.dim() == 0:
            return None
        dim = rng.randrange(x.dim())
        name = rng.choice(
            ["cat", "cat", "stack", "pad", "crop", "reflect", "slice_scatter", "select_scatter"]
        )
        place = rng.randrange(len(values))
        y, other = values[place], types[place]
        if y.shape != x.shape:
            y, other = x, kind
        if name == "cat":
            return self.typed(torch.cat([x, y, x], dim), kind, other)
        if name == "stack":
            return self.typed(torch.stack([x, self.like(y, x)], dim), kind)
        if name == "pad":
            return self.typed(F.pad(x, (1, 2), value=1), kind)
        if name == "crop":
            return self.typed(F.pad(x, (-1, 2)), kind) if x.shape[-1] > 1 else None
        if name == "reflect":
            fits = x.dim() == 3 and x.shape[-1] > 2 and kind.is_floating_point
            return self.typed(F.pad(x, (1, 2), mode="reflect"), kind) if fits else None
        if name == "slice_scatter":
            if x.shape[dim] < 3:
                return None
            piece = self.like(y, x).narrow(dim, 0, x.shape[dim] - 2)
            return self.typed(torch.slice_scatter(x, piece, dim, 1, x.shape[dim] - 1), kind)
        return self.typed(torch.select_scatter(x, self.like(y, x).select(dim, 0), dim, -1), kind)

    @staticmethod
    def like(y, x):
        return y.to(x.dtype) if is_exact(x) and is_exact(y) and not y.dtype.is_floating_point else x

    def index(self, rng, x, values, types, kind):
        if x.dim() == 0:
            return None
        dim = rng.randrange(x.dim())
        size = x.shape[dim]
        rows = (torch.arange(5) * 3 + rng.randrange(5)) % size
        name = rng.choice(
            [
                "rows",
                "select",
                "gather",
                "two",
                "negative",
                "embedding",
                "sorted",
                "one_hot",
                "computed",
            ]
        )
        if name == "rows":
            return self.typed(x[(slice(None),) * dim + (rows,)], kind)
        if name == "gather":
            index = (torch.arange(x.numel()).reshape(x.shape) * 7) % size
            return self.typed(torch.gather(x, dim, index), kind)
        if name == "two" and x.dim() > 1:
            return self.typed(x[rows % x.shape[0], rows % x.shape[1]], kind)
        if name == "negative":
            return self.typed(x[rows % x.shape[0] - x.shape[0]], kind)
        if name == "embedding" and x.dim() == 2:
            return self.typed(F.embedding(rows % x.shape[0], x), kind)
        if name == "sorted" and is_exact(x) and kind not in (*ROUNDED, torch.bool):
            return self.typed(torch.sort(x, stable=True, dim=dim)[0], kind)
        if name == "one_hot" and kind not in ROUNDED and is_exact(x):
            whole = x.round() if x.is_floating_point() else x
            rows = whole.to(torch.int64).clamp(0, 3).unsqueeze(-1)
            zeros = torch.zeros((*x.shape, 4), dtype=torch.int64)
            return self.typed(zeros.scatter(-1, rows, 1), torch.int64)
        if name == "computed" and not kind.is_floating_point:
            return self.typed(
                torch.take(values[0], x.to(torch.int64).remainder(values[0].numel())),
                types[0],
                kind,
            )
        return self.typed(torch.index_select(x, dim, rows), kind)

    def write(self, rng, x, values, types, kind):
        if x.dim() == 0:
            return None
        dim = rng.randrange(x.dim())
        size = x.shape[dim]
        once = (
            torch.arange(x.numel()).reshape(x.shape).remainder(size) if dim == x.dim() - 1 else None
        )
        again = (torch.arange(x.numel()).reshape(x.shape) * 7) % size
        rows = (torch.arange(5) * 3) % size
        name = rng.choice(
            [
                "scatter",
                "scatter_value",
                "scatter_add",
                "put",
                "put_add",
                "index_add",
                "index_fill",
                "reduce",
            ]
        )
        if name == "scatter" and once is not None:
            return self.typed(torch.scatter(x, dim, once.flip(dim), x), kind)
        if name == "scatter_value":
            return self.typed(torch.scatter(x, dim, again.narrow(dim, 0, 1), 1), kind)
        if name in ("scatter_add", "reduce") and kind != torch.bool:
            return self.typed(torch.scatter_add(x, dim, again, x), kind)
        if name == "put":
            return self.typed(x.index_put((torch.arange(x.shape[0]),), x.flip(0)), kind)
        if name == "put_add" and kind != torch.bool:
            given = x[(0,) * x.dim()]
            return self.typed(
                x.index_put(((torch.arange(6) * 5) % x.shape[0],), given, accumulate=True), kind
            )
        if name == "index_add" and kind != torch.bool:
            return self.typed(torch.index_add(x, dim, rows, x.index_select(dim, rows)), kind)
        return self.typed(x.index_fill(dim, rows, 1), kind)

    def convert(self, rng, x, values, types, kind):
        if kind.is_floating_point:
            if kind == torch.float64 and rng.random() < 0.4:
                wanted = rng.choice([*INTEGERS, torch.bool])
                return self.typed(torch.round(x.clamp(0, 100)).to(wanted), wanted)
            wanted = rng.choice(FLOATS[1:] if kind != torch.float64 else FLOATS)
            return self.typed(self.to(x, wanted), wanted)
        wanted = rng.choice([*FLOATS, *INTEGERS, torch.bool])
        return self.typed(self.to(x, wanted), wanted)

    def product(self, rng, x, values, types, kind):
        if x.dim() != 2 or x.numel() > 2000 or not kind.is_floating_point:
            return None
        return self.typed(
            (torch.mm(x, x.t()) if rng.random() < 0.5 else torch.mm(x.t(), x)) * 0.125, kind
        )

    def image(self, rng, x, values, types, kind):
        if not kind.is_floating_point or x.dim() < 3 or min(x.shape[-2:]) < 2 or x.dim() > 4:
            return None
        x = x if x.dim() == 4 else x.unsqueeze(0)
        name = rng.choice(
            [
                "avg",
                "avg_pad",
                "max",
                "adaptive",
                "adaptive_odd",
                "nearest",
                "nearest_odd",
                "bilinear",
                "corners",
            ]
        )
        if name == "avg":
            return self.typed(F.avg_pool2d(x, 2), kind)
        if name == "avg_pad":
            return self.typed(F.avg_pool2d(x, 2, 1, 1, count_include_pad=rng.random() < 0.5), kind)
        if name == "max":
            return self.typed(F.max_pool2d(x, 2, rng.choice([1, 2])), kind)
        if name == "adaptive":
            return self.typed(F.adaptive_avg_pool2d(x, rng.choice([1, 2])), kind)
        if name == "adaptive_odd":
            return self.typed(F.adaptive_avg_pool2d(x, (3, 2)), kind)
        if name in ("nearest", "nearest_odd"):
            return self.typed(F.interpolate(x, scale_factor=2 if name == "nearest" else 1.5), kind)
        corners = name == "corners"
        return self.typed(
            F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=corners), kind
        )
