"""Makes random programs. Each statement is tried in eager as it is made, so no rule of ours decides what is legal."""

from __future__ import annotations

import dataclasses
import itertools
import random
import re
import warnings
from typing import Any

import numpy
import torch
import torch.nn.functional as F

from tests.programs import wider
from tests.programs.inputs import COMPLEX, FLOATS, INTEGERS, KINDS, RARE, tensor

SHAPES = (
    (),
    (1,),
    (4,),
    (7,),
    (0,),
    (3, 4),
    (1, 5),
    (5, 1),
    (4, 4),
    (2, 0),
    (2, 3, 4),
    (1, 2, 5),
    (2, 3, 4, 5),
    (3, 3, 1),
)

UNARY = """abs acos asin atan ceil cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 floor frac i0 lgamma log log10 log1p
log2 logit neg positive rad2deg reciprocal relu round rsqrt sigmoid sign sgn signbit sin sinc sinh sqrt square tan tanh trunc
isnan isinf isfinite logical_not bitwise_not nan_to_num angle conj_physical asinh acosh atanh""".split()
BINARY = """add sub mul div true_divide floor_divide remainder fmod pow maximum minimum fmax fmin atan2 hypot eq ne lt le gt ge
logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor copysign nextafter xlogy heaviside logaddexp float_power
ldexp""".split()
INPLACE = """abs_ neg_ sin_ cos_ exp_ sqrt_ square_ sigmoid_ tanh_ relu_ round_ floor_ trunc_ zero_ reciprocal_ sgn_ erf_ log1p_
frac_ conj_physical_ logical_not_""".split()
REDUCE = """sum mean amax amin prod std var logsumexp any all argmax argmin nansum nanmean count_nonzero softmax log_softmax cumsum
cumprod logcumsumexp median max min sort argsort cummax cummin mode norm quantile""".split()
VIEWS = """{x}[1:]|{x}[::2]|{x}[-1]|{x}[..., :2]|{x}[None]|{x}[..., None]|{x}.t()|{x}.transpose(0, -1)|{x}.mT|{x}.unsqueeze({i})
{x}.squeeze()|{x}.squeeze({i})|{x}.reshape(-1)|{x}.view(-1)|{x}.flatten()|{x}.expand(3, *{x}.shape)|{x}.select({i}, 0)
{x}.diagonal()|{x}.narrow({i}, 0, 1)|{x}.unfold({i}, 2, 1)|{x}.movedim(0, -1)|{x}.permute(*range({x}.dim() - 1, -1, -1))|{x}.real
{x}.imag|{x}.conj()|torch.view_as_real({x})|{a}.view(torch.uint8)|{a}.view(torch.int32)|{a}.view(torch.float32)|{x}.detach()
{x}.chunk(2)[0]|{x}.split(2)[-1]|{x}.unbind()[0]|{x}.tensor_split(2)[0]|{x}.view_as({x})|{x}.as_strided((2,), (1,))
{x}.as_strided((2,), (1,), 1)|{x}.contiguous()|{x}.resolve_conj()|{x}.resolve_neg()|torch._neg_view({x})|{x}.T|{x}.adjoint()
{x}.data|{x}.view({x}.shape)|{x}.unflatten(0, (1, -1))|{x}.swapaxes(0, -1)|{x}.to({x}.dtype)|{x}.positive()|{x}.alias()""".replace(
    "\n", "|"
).split("|")
WRITES = """{x}.add_({y})|{x}.mul_({y})|{x}.sub_({y}, alpha=2)|{x}.div_(2)|{x}.clamp_(-1, 1)|{x}.fill_(1)|{x}.copy_({y})
{x}.masked_fill_({x} > 0, 2)|{x}.t_()|{x}.squeeze_()|{x}.unsqueeze_(0)|{x}.transpose_(0, -1)|{x}[0] = 1|{x}[1:] = {y}
{x}[...] = {y}|{x} += {y}|{x} *= 2|{x}[{x} > 0] = 0|{x}[..., 0] += 1|{x}.index_fill_({i}, torch.tensor([0]), 3)
{x}.scatter_({i}, torch.zeros_like({x}, dtype=torch.int64), {y})|{x}.index_add_({i}, torch.tensor([0]), {x}[:1])
torch.add({y}, 1, out={x})|torch.mul({x}, {y}, out={z})|{x}.data.mul_(2)|{x}.detach().add_(1)|{x}.lerp_({y}, 0.3)
{x}.addcmul_({y}, {z}, value=2)|{x}.pow_(2)|{x}.floor_divide_(2)|{x}.remainder_(3)|{x}.swapaxes_(0, -1)|{x}.eq_({y})
{x}.bitwise_and_({y})|{x}.logical_or_({y})|{x}.fill_diagonal_(1)|{x}.tril_()|{x}.cumsum_(0)
{x}.put_(torch.tensor([0]), {x}.reshape(-1)[:1])|{x}.index_copy_(0, torch.tensor([0]), {x}[1:2])|{x}.clamp_min_(0)
torch.sub({x}, 1, out={x}[:])|{x}.index_put_((torch.tensor([0, 0]),), {y}, accumulate=True)|{x}.masked_scatter_({x} > 0, {y})""".replace(
    "\n", "|"
).split("|")
OTHERS = """torch.where({x} > 0, {x}, {y})|torch.where({x} > {y}, 1, {y})|torch.lerp({x}, {y}, 0.3)|torch.addcmul({x}, {y}, {z})
torch.addcdiv({x}, {y}, {z}, value=2)|{x}.clamp(-1, 0.5)|torch.clamp({x}, {y}, {z})|{x} @ {y}|{x} @ {y}.mT|torch.outer({x}, {y})
torch.einsum("...i,...i->...", {x}, {y})|torch.kron({x}, {y})|torch.cat([{x}, {y}])|torch.stack([{x}, {x}], -1)
torch.stack([{x}, {y}])|{x}.gather({i}, torch.zeros_like({x}, dtype=torch.int64))|{x}.index_select({i}, torch.tensor([0, 0]))
{x}.take(torch.tensor([0, -1]))|{x}.roll(1, {i})|{x}.flip({i})|{x}.repeat(2, *[1] * ({x}.dim() - 1))|{x}.tile(2)|F.pad({x}, (1, 2))
F.pad({x}, (-1, 1), value=3)|{x}.tril()|{x}.triu(1)|{x}.to(torch.{d})|{x}.type_as({y})|{x}.float()|{x}.double()|{x}.long()
{x}.bool()|{x} * 2|{x} + 0.5|2 ** {x}|{x} // 2|-{x}|{x} % 3|1 / {x}|{x} ** 2|{x} - {y} * {z}|{x} == {y}|{x} & {y}|~{x}
F.layer_norm({x}, {x}.shape[-1:])|F.gelu({x})|F.silu({x})|F.softplus({x})|F.elu({x})|F.normalize({x}, dim=0)|{x}.clone()
F.mse_loss({x}, {y})|F.cross_entropy({x}, torch.zeros({x}.shape[0], dtype=torch.int64))|F.one_hot({x}.long().abs(), 110)
F.linear({x}, {y})|F.conv1d({x}, torch.ones(2, {x}.shape[1], 1, dtype={x}.dtype))|F.avg_pool1d({x}, 2)|F.max_pool1d({x}, 2)
F.embedding({x}.long().abs() % 3, {y})|torch.zeros_like({x})|torch.ones_like({x}) * {y}|torch.full_like({x}, 2)|{x}.new_zeros(3)
torch.arange({x}.shape[0]) + {x}|torch.linspace(0, 1, 4) * {x}|torch.tensor([1.0, 2.0]) * {x}|torch.eye(4) @ {x}
torch.tensor([{x}.sum(), {y}.sum()])|{x}[{x} > 0]|{x}.nonzero()|{x}[torch.tensor([0, -1])]|{x}[[0, 0]]|{x}[torch.tensor([True])]
{x}[..., torch.tensor([0])]|{x}.sum().item() * {y}|float({x}.sum()) + {y}|{x} * {y}.shape[0]|{x}.numel() + {y}|{x} * {y}.dim()
torch.from_numpy({x}.detach().numpy()) + 1|torch.from_numpy(np.sin({x}.detach().numpy()))|torch.as_tensor({x}.tolist())
{x}.storage_offset() + {y}|{x}.stride()[0] * {y}|{x} * {x}.is_contiguous()|{x}.is_neg() + {y}|{x}.is_conj() + {y}
{x}.reshape({x}.shape[::-1])|{x}.masked_fill({y} > 0, 3)|torch.cdist({x}, {y})|torch.addmm({x}, {y}, {z})|torch.bmm({x}, {y})
{x}.sort(dim={i}, descending=True)[1]|{x}.topk(1, {i})[0]|torch.cross({x}, {y}, dim=-1)|torch.diff({x})|torch.trapz({x})
torch.bucketize({x}, torch.tensor([-1.0, 0.0, 1.0]))|torch.searchsorted(torch.tensor([0.0, 1.0]), {x})|torch.isclose({x}, {y})
torch.allclose({x}, {y})|torch.equal({x}, {x})|{x}.unique()|torch.corrcoef({x})|torch.cov({x})|torch.diag({x})|torch.trace({x})
torch.vander({x})|torch.combinations({x})|torch.block_diag({x}, {y})|torch.tensordot({x}, {y}, 1)|{x}.index_add(0, torch.tensor([0]), {x}[:1])
{x}.scatter_reduce(0, torch.zeros_like({x}, dtype=torch.int64), {x}, "amax")|torch.complex({x}, {y})|torch.polar({x}, {y})
torch.fft.fft({x})|torch.fft.rfft({x})|{x}.abs().real|torch.linalg.norm({x})|torch.linalg.inv({x})|torch.linalg.cholesky({x} @ {x}.mH)
torch.addmv({x}, {y}, {z})|torch.aminmax({x})[0]|torch.logaddexp({x}, {y})|{x}.nanquantile(0.4)|torch.histc({x}, 4)|{x}.bincount()
F.interpolate({x}, scale_factor=2)|F.batch_norm({x}, None, None, training=True)|F.dropout({x}, 0.0)|F.softmax({x}, dim={i}) @ {y}
F.scaled_dot_product_attention({x}, {x}, {x})|torch.special.entr({x})|torch.special.xlog1py({x}, {y})|{x}.renorm(2, 0, 1.0)""".replace(
    "\n", "|"
).split("|")
BLOCKS = """with torch.no_grad(): {v} = {x} * 2|with torch.enable_grad(): {v} = {x} + 1|{v} = {x} if {x}.sum() > 0 else {y}
if {x}.shape[0] > 2: {v} = {x} * 2|for _ in range(2): {v} = {x} + 1|{v} = [t + 1 for t in ({x}, {y})][0]|{v} = ({x}, {y})[0]
{v} = {{'a': {x}, 'b': {y}}}['b']|{v}, *_ = {x}|{v} = (lambda t: t.mul_(2))({x}.clone())|{v} = max({x}.sum(), {y}.sum())""".replace(
    "\n", "|"
).split("|")


@dataclasses.dataclass
class Program:
    """A program as text."""

    inputs: list[str]  # expressions over `tensor`, `seed`
    lines: list[str]
    results: list[str]
    backend: str = "argand"
    dynamic: bool = False

    def text(self) -> str:
        """A file that can be read and replayed."""
        names = ", ".join(f"a{k}" for k in range(len(self.inputs)))
        made = "".join(f"        {expression},\n" for expression in self.inputs)
        body = "".join(f"    {line}\n" for line in self.lines)
        results = "".join(f"{name}, " for name in self.results)
        head = f"BACKEND, DYNAMIC = {self.backend!r}, {self.dynamic!r}\n\n\n"
        return f"{head}def inputs(seed):\n    return [\n{made}    ]\n\n\ndef program({names}):\n{body}    return ({results})\n"


def namespace() -> dict[str, Any]:
    """What the text of a program may use."""
    return {"torch": torch, "F": F, "np": numpy, "tensor": tensor}


def generate(seed: int) -> Program:
    """The program of a seed."""
    draw = random.Random(seed)
    inputs = [_input(draw) for _ in range(draw.randint(1, 3))]
    backend = draw.choice(["argand"] * 7 + ["aot_eager"] * 2 + ["eager"])
    program = Program(inputs, [], [], backend, dynamic=draw.random() < 0.15)
    space = namespace()
    exec(program.text().replace("return ()", "return None"), space)
    live: dict[str, Any] = {f"a{k}": value for k, value in enumerate(space["inputs"](0))}
    space.update(live)
    for _ in range(draw.randint(3, 14)):
        _extend(draw, program, space, live, wide=seed >= wider.FIRST)
    names = [
        name for name, value in live.items() if not name.startswith("a") or draw.random() < 0.2
    ]
    program.results = draw.sample(names, min(len(names), draw.randint(1, 6))) or ["a0"]
    return program


def _input(draw: random.Random) -> str:
    roll = draw.random()
    dtype = draw.choice(
        FLOATS if roll < 0.7 else INTEGERS if roll < 0.88 else COMPLEX if roll < 0.97 else RARE
    )
    shape = draw.choice(SHAPES)
    kind = draw.choice(KINDS)
    grad = draw.random() < 0.45
    return f"tensor({shape}, {dtype!r}, {kind!r}, {draw.randrange(100)} + seed, {grad})"


def _extend(
    draw: random.Random,
    program: Program,
    space: dict[str, Any],
    live: dict[str, Any],
    *,
    wide: bool,
) -> None:
    """One more statement that eager takes; rarely one that it does not."""
    for _ in range(12):
        line = _statement(draw, list(live), f"v{len(program.lines)}", wide=wide)
        if _writes_what_it_reads(line, live):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(line, space)
        except Exception:
            if draw.random() < 0.01:
                program.lines.append(line)
                return
            continue
        program.lines.append(line)
        target = f"v{len(program.lines) - 1}"
        value = space.get(target)
        if isinstance(value, torch.Tensor) and value.is_neg() and value.dtype is torch.bool:
            program.lines.pop()  # nothing can be done with it in eager
            continue
        if (
            isinstance(value, torch.Tensor)
            and value.numel() <= 4096
            and value.layout is torch.strided
        ):
            live[target] = value
        return


def _writes_what_it_reads(line: str, live: dict[str, Any]) -> bool:
    """Whether a write may read some of the memory that it writes, shifted: what it gives is up to the kernel."""
    if (
        "_(" not in line
        and "out=" not in line
        and "= " in line.split("(")[0]
        and "[" not in line.split("=")[0]
    ):
        return False
    used = [live[name] for name in dict.fromkeys(re.findall(r"\b[av]\d+\b", line)) if name in live]
    places = [(t.untyped_storage()._cdata, t.storage_offset(), t.shape, t.stride()) for t in used]
    shifted = any(a[0] == b[0] and a[1:] != b[1:] for a, b in itertools.combinations(places, 2))
    return shifted or (len(used) == 1 and "masked_scatter_" in line)


def torch_statement(draw: random.Random, names: list[str], target: str) -> str:
    """A statement over tensors, of both generations."""
    inputs = [name for name in names if name.startswith("a")] or names
    return _statement(draw, [*inputs, *names], target, wide=True)


def _statement(draw: random.Random, names: list[str], target: str, *, wide: bool) -> str:
    x, y, z = (draw.choice(names[-4:] if draw.random() < 0.6 else names) for _ in range(3))
    words = {
        "x": x,
        "y": y,
        "z": z,
        "i": draw.choice((0, 0, -1, 1)),
        "d": draw.choice((*FLOATS, *INTEGERS, *COMPLEX)),
        "v": target,
        # bits of what is computed are rounded
        "a": draw.choice([name for name in names if name.startswith("a")]),
    }
    if wide and draw.random() < 0.5:
        return draw.choice(draw.choice(wider.TABLES)).format(**words)
    roll = draw.random()
    if roll < 0.16:
        return f"{target} = torch.{draw.choice(UNARY)}({x})"
    if roll < 0.28:
        return f"{target} = torch.{draw.choice(BINARY)}({x}, {y})"
    if roll < 0.36:
        dim = draw.choice(("", ", dim=0", ", dim=-1", ", dim=1, keepdim=True"))
        name = draw.choice(REDUCE)
        first = f"torch.{name}({x}{', 0.3' if name == 'quantile' else ''}{dim})"
        return f"{target} = {first}" if draw.random() < 0.6 else f"{target} = {first}[0]"
    if roll < 0.56:
        return f"{target} = " + draw.choice(VIEWS).format(**words)
    if roll < 0.62:
        return f"{x}.{draw.choice(INPLACE)}()"
    if roll < 0.76:
        return draw.choice(WRITES).format(**words)
    if roll < 0.97:
        return f"{target} = " + draw.choice(OTHERS).format(**words)
    return draw.choice(BLOCKS).format(**words)
