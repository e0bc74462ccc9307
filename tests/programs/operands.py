"""Programs about operands: every op with types that do not match, numbers at the edges of types, tensors of one number.

Seeds from ``FIRST`` on. Lines are tried in eager, one by one; each reads the inputs, so one program asks many questions.
"""

from __future__ import annotations

import random
import warnings
from typing import Final

import torch

from tests.programs.generator import BINARY, REDUCE, UNARY, Program, namespace
from tests.programs.inputs import COMPLEX, FLOATS, INTEGERS, RARE

FIRST: Final = 6_000_000
_KINDS: Final = ("edge", "edge", "odd", "plain", "large", "zeros", "whole")
_SHAPES: Final = ("()", "()", "(9,)", "(9,)", "(1,)", "(3, 1)", "(0,)")
NUMBERS: Final = (
    *("0", "1", "-1", "2", "3", "7", "255", "256", "-129", "2**31", "2**53 + 1", "True", "False"),
    *("2**63 - 1", "-2**63", "0.0", "-0.0", "0.5", "-1.5", "2.0", "1e-9", "1e30", "1e300", "0.1"),
    *("float('nan')", "float('inf')", "-float('inf')", "1 + 1e-12", "2j", "1 - 1j", "65504.0"),
    *("65520.0", "1e-40", "2.0001", "-3", "31", "63", "64", "0.3333333"),
)
_MIXED: Final = """torch.where({x} > 0, {x}, {y})|torch.where({y} > 0, {n}, {x})|torch.lerp({x}, {y}, {n})|torch.lerp({x}, {y}, {z})
torch.addcmul({x}, {y}, {z}, value={n})|torch.addcdiv({x}, {y}, {z}, value={n})|torch.clamp({x}, {n}, {m})
torch.clamp({x}, {y}, {z})|torch.clamp({x}, min={n})|torch.clamp({x}, max={y})|torch.add({x}, {y}, alpha={n})
torch.sub({x}, {y}, alpha={n})|torch.rsub({x}, {y}, alpha={n})|torch.rsub({x}, {n})|{x}.masked_fill({y} > 0, {n})
{x}.masked_fill({y} != 0, {z}.sum())|{x}.to(torch.{d})|{x}.to(torch.{d}).to(torch.{e})|{x}.to(torch.{d}) + {y}
torch.sum({x}, 0, dtype=torch.{d})|torch.prod({x}, 0, dtype=torch.{d})|{x}.cumsum(0, dtype=torch.{d})|{x}.mean(0, dtype=torch.{d})
{x}.cumprod(0, dtype=torch.{d})|{x}.softmax(0, dtype=torch.{d})|torch.full_like({x}, {n})|torch.full((2,), {n}, dtype=torch.{d})
torch.tensor([{n}, {m}])|torch.tensor({n}, dtype=torch.{d}) + {x}|torch.tensor([{n}]) * {x}|torch.nan_to_num({x}, {n}, {m})
torch.bitwise_left_shift({x}, {y})|torch.bitwise_right_shift({x}, {y})|{x} << {n}|{x} >> {n}|torch.gcd({x}, {y})|torch.lcm({x}, {y})
torch.isin({x}, {y})|torch.isclose({x}, {y})|torch.bucketize({x}, {y}.reshape(-1).sort()[0])|torch.floor_divide({x}, {y})
torch.div({x}, {y}, rounding_mode='floor')|torch.div({x}, {y}, rounding_mode='trunc')|torch.div({x}, {n}, rounding_mode='floor')
torch.div({x}, {n}, rounding_mode='trunc')|torch.round({x}, decimals=2)|torch.round({x}, decimals=-1)|torch.pow({n}, {x})
torch.pow({x}, {n})|{n} ** {x}|{x} ** {n}|{x} // {n}|{n} // {x}|{x} % {n}|{n} % {x}|{x} / {n}|{n} / {x}|{x} * {n}|{x} + {n}|{n} - {x}
{x} == {n}|{x} < {n}|{x} >= {n}|{x} != {n}|{x} & {n}|{x} | {n}|{x} ^ {n}|torch.fmod({x}, {n})|torch.remainder({n}, {x})
torch.maximum({x}, {y})|torch.fmin({x}, {y})|torch.xlogy({x}, {n})|torch.xlogy({n}, {x})|torch.float_power({x}, {n})
torch.copysign({x}, {n})|torch.heaviside({x}, {y})|torch.ldexp({x}, {y})|torch.logit({x}, eps=0.1)|torch.hypot({x}, {y})
torch.special.zeta({x}, {y})|torch.special.xlog1py({x}, {y})|torch.special.entr({x})|torch.special.ndtri({x})
torch.special.log_ndtr({x})|torch.special.erfcx({x})|torch.special.i1({x})|torch.special.i0e({x})|torch.polygamma(1, {x})
torch.special.bessel_j0({x})|torch.special.modified_bessel_k0({x})|torch.mvlgamma({x}, 2)|torch.igamma({x}, {y})
F.hardshrink({x}, 0.5)|F.softshrink({x}, 0.5)|F.threshold({x}, 0.5, 7)|F.celu({x}, 0.3)|F.leaky_relu({x}, 0.1)|F.elu({x}, 2)
F.hardtanh({x}, -1, 2)|F.relu6({x})|F.hardswish({x})|F.gelu({x})|F.mish({x})|F.softplus({x}, 2, 10)|F.logsigmoid({x})|F.silu({x})
{x}.abs().max()|{x}.min()|{x}.argmax()|{x}.argmin()|{x}.sum()|{x}.prod()|{x}.mean()|{x}.std()|{x}.var(correction=0)|{x}.any()
{x}.all()|{x}.amax()|{x}.logsumexp(0)|{x}.norm()|{x}.norm(3)|{x}.norm(float('inf'))|{x}.norm(0)|{x}.cummax(0)|{x}.logcumsumexp(0)
{x}.sort()[0]|{x}.sort(descending=True, stable=True)[1]|{x}.argsort(stable=True)|{x}.median()|{x}.nanmedian()|{x}.mode()[0]
{x}.kthvalue(1)[0]|{x}.topk(1)[0]|{x}.unique()|{x}.nansum()|{x}.count_nonzero()|{x}.aminmax()[1]|torch.nanmean({x})
torch.histc({x}, 4, -2, 2)|torch.cat([{x}.reshape(-1), {y}.reshape(-1)])|torch.stack([{x}, {x}.to(torch.{d})])
torch.dot({x}, {y})|torch.outer({x}, {y})|F.mse_loss({x}, {y})|F.l1_loss({x}, {y})|F.smooth_l1_loss({x}, {y})|F.huber_loss({x}, {y})
{x}.item() if {x}.numel() == 1 else {x}.sum().item()|float({x}.sum())|int({x}.any())|bool({x}.sum() > 0)
{x}.view(torch.int16)|{x}.view(torch.uint8)|torch.frexp({x})[1]|torch.signbit({x})|torch.nextafter({x}, {y})
torch.arange({n}, {n} + 3, dtype=torch.{d})|torch.linspace({n}, {m}, 5, dtype=torch.{d})|torch.logspace(0, 2, 4, dtype=torch.{d})
torch.result_type({x}, {n}) == torch.{d}|torch.can_cast({x}.dtype, torch.{d})|torch.promote_types({x}.dtype, {y}.dtype) == torch.{d}
torch.scalar_tensor({n}, dtype=torch.{d}) - {x}|{x}.index_fill(0, torch.tensor([0]), {n})|{x}.new_full((2,), {n})
{x}.new_tensor([{n}, {m}])|{x}.scatter(0, torch.tensor([0]), {n})|F.pad({x}, (1, 1), value={n})|{x}.fill_diagonal_({n})
torch.scatter({x}, 0, torch.tensor([0, 1]), 2, reduce='multiply')|{x}.index_add(0, torch.tensor([0, 0]), {x}[:2], alpha={n})
torch.complex({x}, {y})|torch.polar({x}, {y})|torch.angle({x})|{x}.to(torch.{d}).real|torch.view_as_real({x})|torch.sgn({x})
torch.baddbmm({x}.reshape(1, 1, -1), {y}.reshape(1, 1, 1), {x}.reshape(1, 1, -1), beta=0, alpha={n})
torch.quantile({x}, 0.3)|torch.cov({x})|torch.diff({x}, n=2)|torch.trapz({x}, dx=0.5)|torch.renorm({x}.reshape(-1, 1), 2, 0, 1.0)""".replace(
    "\n", "|"
)
_QUESTIONS: Final = [row for row in _MIXED.split("|") if row.count("(") == row.count(")")]
_WRITES: Final = """{v}.add_({y}, alpha={n})|{v}.sub_({y})|{v}.mul_({y})|{v}.div_({y})|{v}.div_({n}, rounding_mode='trunc')|{v}.pow_({n})
{v}.fill_({n})|{v}.fill_({z}.sum())|{v}.copy_({y})|{v}.clamp_({n})|{v}.clamp_(max={y})|{v}.lerp_({y}, {n})|{v}[...] = {n}|{v}[...] = {y}
{v}.masked_fill_({y} > 0, {n})|{v}.remainder_({n})|{v}.fmod_({y})|{v}.floor_divide_({n})|{v}.bitwise_and_({n})|{v}.logical_or_({y})
{v}.eq_({y})|{v}.lt_({n})|{v}.copysign_({y})|{v}.addcmul_({y}, {z}, value={n})|{v}.addcdiv_({y}, {z}, value={n})|{v} += {n}|{v} *= {n}
{v} -= {y}|{v} /= {n}|{v} //= {n}|{v} %= {n}|{v} **= {n}|{v} <<= {n}|{v} >>= {n}|{v}.cumsum_(0)|{v}.cumprod_(0)|{v}.nan_to_num_({n})
torch.add({x}, {y}, out={v})|torch.mul({x}, {n}, out={v})|torch.eq({x}, {y}, out={v})|torch.sum({x}, 0, out={v})|torch.neg({x}, out={v})
torch.div({x}, {y}, out={v})|torch.sqrt({x}, out={v})|torch.where({y} > 0, {x}, {y}, out={v})|torch.cat([{x}, {y}], out={v})
{v}.put_(torch.tensor([0]), {y}.reshape(-1)[:1].to({v}.dtype))|{v}.index_fill_(0, torch.tensor([0]), {n})|{v}.zero_()|{v}.neg_()""".replace(
    "\n", "|"
).split("|")


def generate(seed: int) -> Program:
    """The program of a seed."""
    draw = random.Random(seed)
    inputs = [_input(draw) for _ in range(draw.randint(2, 3))]
    backend = draw.choice(["argand"] * 8 + ["aot_eager"])
    program = Program(inputs, [], [], backend, dynamic=draw.random() < 0.1)
    space = namespace()
    exec(program.text().replace("return ()", "return None"), space)
    space.update({f"a{k}": value for k, value in enumerate(space["inputs"](0))})
    for _ in range(60):
        target = f"v{len(program.lines)}"
        lines = _lines(draw, len(inputs), target)
        if len(program.lines) < 14 and _runs(lines, space):
            program.lines += lines
            program.results.append(lines[0].split(" = ")[0])
    program.results = program.results or ["a0"]
    return program


def _input(draw: random.Random) -> str:
    dtype = draw.choice(
        draw.choice((FLOATS, FLOATS, ("float16", "bfloat16"), INTEGERS, INTEGERS, COMPLEX, RARE))
    )
    grad = draw.random() < 0.15
    shape, kind = draw.choice(_SHAPES), draw.choice(_KINDS)
    return f"tensor({shape}, {dtype!r}, {kind!r}, {draw.randrange(100)} + seed, {grad})"


def _lines(draw: random.Random, count: int, target: str) -> list[str]:
    words = {hole: f"a{draw.randrange(count)}" for hole in "xyz"}
    words |= {hole: draw.choice(NUMBERS) for hole in "nm"}
    words |= {
        hole: draw.choice((*FLOATS, *INTEGERS, *COMPLEX, "uint16", "uint32", "uint64"))
        for hole in "de"
    }
    words["v"] = target
    for hole in "nm":  # `-1 ** x` is not `(-1) ** x`
        words[hole] = f"({words[hole]})"
    roll = draw.random()
    if roll < 0.3:
        return [f"{target} = torch.{draw.choice(BINARY)}({words['x']}, {words['y']})"]
    if roll < 0.4:
        return [f"{target} = torch.{draw.choice(UNARY)}({words['x']})"]
    if roll < 0.45:
        return [f"{target} = torch.{draw.choice(REDUCE)}({words['x']})"]
    if roll < 0.6:
        write = draw.choice(_WRITES).format(**words)
        return [f"{target} = {words['x']}.clone()", write]
    return [f"{target} = {draw.choice(_QUESTIONS).format(**words)}"]


def _runs(lines: list[str], space: dict[str, object]) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for line in lines:
                exec(line, space)
        except Exception:
            return False
    value = space[lines[0].split(" = ")[0]]
    odd = isinstance(value, torch.Tensor) and (value.is_neg() or value.numel() > 4096)
    return not odd
