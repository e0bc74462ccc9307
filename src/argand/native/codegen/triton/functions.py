"""native.codegen.triton.functions: what kernels call beside Triton's own functions.

A kernel names the functions it needs (``tanh_f32``); ``definitions`` gives their text, callees first. Maths that a GPU
has instructions for are expressions; the rest are the polynomials of ``codegen.math`` (see ``body``).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Final

from argand.native.codegen.math import BINARY, NAMES, writer_of
from argand.native.codegen.math import random as draws
from argand.native.codegen.math.builder import Element, Lanes
from argand.native.codegen.triton.body import TritonBody
from argand.native.codegen.triton.source import Refused
from argand.native.ir.types import DType

# Expressions of a float argument, in whatever type it has.
NATIVE: Final[Mapping[str, str]] = {
    **{
        name: f"tl.{name}({{0}})"
        for name in ("exp", "exp2", "log", "log2", "sin", "cos", "erf", "rsqrt", "sigmoid")
    },
    "silu": "{0} / (1.0 + tl.exp(-{0}))",
    "gelu": "0.5 * {0} * (1.0 + tl.erf(0.7071067811865476 * {0}))",
}

_EXTREME: Final = '''
def {name}(a, b):
    """The {word} of two; a NaN on either side is the result."""
    return tl.where(b != b, b, tl.where((a {test} b) | (a != a), a, b))
'''
_ARG: Final = '''
def {name}(a, i, b, k):
    """The {word} of two and its place, the earlier of equal ones; a NaN is {word} of all."""
    wins = (a {test} b) | ((a != a) & (b == b))
    ties = (a == b) | ((a != a) & (b != b))
    left = wins | (ties & (i < k))
    return tl.where(left, a, b), tl.where(left, i, k)
'''
_COPYSIGN: Final = '''
def copysign_{short}(x, y):
    """The magnitude of x with the sign of y."""
    sign = y.to(tl.int{bits}, bitcast=True) & {sign}
    return ((x.to(tl.int{bits}, bitcast=True) & {rest}) | sign).to(tl.float{bits}, bitcast=True)
'''
_RINT: Final = '''
def rint_{short}(x):
    """The nearest integer, even ones for halves: sums beyond {big} have no fraction."""
    big = tl.where(x < 0, -{big}, {big}).to(tl.float{bits})
    near = tl.where(tl.abs(x) < {big}, (x + big) - big, x)
    return copysign_{short}(near, x)
'''
_MULTIPLY: Final = '''
def multiply(a, b):
    """A step of a product."""
    return a * b
'''
_KEYS: Final = (
    "    t0 = seed ^ (seed.to(tl.uint64, bitcast=True) >> 30).to(tl.int64, bitcast=True)",
    "    t1 = t0 * -4658895280553007687",
    "    t2 = (t1 ^ (t1.to(tl.uint64, bitcast=True) >> 27).to(tl.int64, bitcast=True)) * -7723592293110705685",
    "    t3 = t2 ^ (t2.to(tl.uint64, bitcast=True) >> 31).to(tl.int64, bitcast=True)",
    "    t4 = t3.to(tl.int32)",
    "    t5 = (t3.to(tl.uint64, bitcast=True) >> 32).to(tl.int32)",
)


def _plain() -> dict[str, str]:
    found = {"multiply": _MULTIPLY}
    for name, word, test in (("maximum", "largest", ">"), ("minimum", "smallest", "<")):
        found[name] = _EXTREME.format(name=name, word=word, test=test)
        found[f"arg{name[:3]}"] = _ARG.format(name=f"arg{name[:3]}", word=word, test=test)
    for short, bits, big in (("f32", 32, 2.0**23), ("f64", 64, 2.0**52)):
        sign, rest = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        found[f"copysign_{short}"] = _COPYSIGN.format(short=short, bits=bits, sign=sign, rest=rest)
        found[f"rint_{short}"] = _RINT.format(short=short, bits=bits, big=big)
    return found


_PLAIN: Final[Mapping[str, str]] = _plain()
_PLAIN_NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    f"rint_{short}": (f"copysign_{short}",) for short in ("f32", "f64")
}


def symbol(name: str, dtype: DType) -> str:
    """What a function is called for a type."""
    return f"{name}_{'f64' if dtype is DType.F64 else 'f32'}"


@functools.cache
def _definition(name: str) -> tuple[str, tuple[str, ...]]:
    """The text of a function, and what it calls."""
    if name in _PLAIN:
        return "@triton.jit" + _PLAIN[name], _PLAIN_NEEDS.get(name, ())
    stem, _, short = name.rpartition("_")
    element: Element = "double" if short == "f64" else "float"
    body = TritonBody(element, 1)
    if stem in ("uniform", "normal"):
        parameters, result = ["seed", "index"], _draw(stem, body)
    else:
        parameters = ["x", "y"] if stem in BINARY else ["x"]
        if stem in NATIVE:
            result = body.line(NATIVE[stem].format("x"), element)
        elif stem in NAMES:
            result = writer_of(stem)(
                body, *(Lanes(body, argument, element) for argument in parameters)
            )
        else:
            raise Refused(f"{stem} has no Triton function")
    head = f"@triton.jit\ndef {name}({', '.join(parameters)}):"
    return "\n".join([head, *body.lines, f"    return {result.text}", ""]), tuple(body.needed)


def _draw(kind: str, body: TritonBody) -> Lanes:
    """The numbers that ``codegen.math.random`` draws, by the same steps."""
    body.lines += _KEYS
    keys = (Lanes(body, "t4", "i32"), Lanes(body, "t5", "i32"))
    index = Lanes(body, "index", "i64")
    if kind == "normal":
        return draws.normal(body, keys, index)
    return draws.uniform(
        body,
        [draws.word(body, index, keys, k) for k in range(2 if body.element == "double" else 1)],
    )


def definitions(names: Iterable[str]) -> list[str]:
    """The functions of these names and all they call, callees first."""
    found: dict[str, str] = {}

    def visit(name: str) -> None:
        if name in found:
            return
        text, needed = _definition(name)
        for other in needed:
            visit(other)
        found[name] = text

    for name in names:
        visit(name)
    return list(found.values())
