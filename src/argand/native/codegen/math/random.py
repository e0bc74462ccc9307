"""native.codegen.math.random: counter-based random numbers as LLVM text.

A number is a function of (seed, stream, index) and of nothing else: seed is drawn once per call
of a graph from torch's generator, stream numbers the operator in the graph, index the element.
So it does not matter which thread computes an element, or how often.

The seed and stream become two 32-bit keys (splitmix64); the index goes through two 32-bit
permutations of full avalanche (multiply, shift, xor), each keyed. tests/vector_math/test_random.py
has the statistics.
"""

from __future__ import annotations

import functools
import math

from argand.native.codegen.math import define
from argand.native.codegen.math.builder import Element, FunctionBody, Lanes
from argand.native.codegen.math.trigonometric import bounded_cos
from argand.native.codegen.text import Text


def _keys(body: FunctionBody) -> tuple[Lanes, Lanes]:
    """Two words per (seed, stream), the same in all lanes: scalar code."""
    steps = (
        "%k0 = mul i64 %stream, -7046029254386353131",
        "%k1 = add i64 %k0, %seed",
        *(
            "%k2 = lshr i64 %k1, 30",
            "%k3 = xor i64 %k1, %k2",
            "%k4 = mul i64 %k3, -4658895280553007687",
        ),
        *(
            "%k5 = lshr i64 %k4, 27",
            "%k6 = xor i64 %k4, %k5",
            "%k7 = mul i64 %k6, -7723592293110705685",
        ),
        *("%k8 = lshr i64 %k7, 31", "%k9 = xor i64 %k7, %k8"),
        *(
            "%low = trunc i64 %k9 to i32",
            "%shifted = lshr i64 %k9, 32",
            "%high = trunc i64 %shifted to i32",
        ),
    )
    body.lines += [f"  {step}" for step in steps]
    return _in_all_lanes(body, "%low"), _in_all_lanes(body, "%high")


def _in_all_lanes(body: FunctionBody, scalar: str) -> Lanes:
    if body.lanes == 1:
        return Lanes(body, scalar, "i32")
    vector = body.vector("i32")
    one = body.line(f"insertelement {vector} poison, i32 {scalar}, i32 0", "i32")
    shape = f"<{body.lanes} x i32> zeroinitializer"
    return body.line(f"shufflevector {vector} {one.text}, {vector} poison, {shape}", "i32")


def _permute(x: Lanes, rounds: tuple[tuple[int, int], ...], last: int) -> Lanes:
    for shift, factor in rounds:
        x = x.integer("xor", x.integer("lshr", shift)).integer("mul", factor)
    return x.integer("xor", x.integer("lshr", last))


def word(body: FunctionBody, index: Lanes, keys: tuple[Lanes, Lanes], number: int) -> Lanes:
    """32 random bits; `number` tells apart the words of one element."""
    low = body.convert("trunc", index, "i32")
    high = body.convert("trunc", index.integer("lshr", 32), "i32")
    first = keys[0].integer("add", number * 0x6A09E667)
    x = _permute(
        low.integer("xor", first), ((17, 0xED5AD4BB), (11, 0xAC4C1B51), (15, 0x31848BAB)), 14
    )
    x = x.integer("xor", keys[1]).integer("add", high.integer("mul", 0x9E3779B9))
    return _permute(x, ((16, 0x7FEB352D), (15, 0x846CA68B)), 16)


def uniform(body: FunctionBody, words: list[Lanes]) -> Lanes:
    """[0, 1): 24 bits of one word for a float, 53 of two for a double, as torch has them."""
    if body.element == "float":
        bits = words[0].integer("lshr", 8)
        return body.convert("uitofp", bits, "float") * 2.0**-24
    high = body.convert("uitofp", words[0].integer("lshr", 5), "double")
    low = body.convert("uitofp", words[1].integer("lshr", 6), "double")
    return body.fma(high, 2.0**-27, low * 2.0**-53)


def normal(body: FunctionBody, keys: tuple[Lanes, Lanes], index: Lanes) -> Lanes:
    """Box and Muller's cosine half; 1 - u lies in (0, 1]."""
    words = [word(body, index, keys, number) for number in range(4)]
    radius = body.sqrt(body.call("log", 1.0 - uniform(body, words[:2])) * -2.0)
    return radius * bounded_cos(body, uniform(body, words[2:]) * (2 * math.pi))


@functools.cache
def _definition(kind: str, element: Element, lanes: int) -> tuple[str, tuple[str, ...]]:
    body = FunctionBody(element, lanes)
    index = Lanes(body, "%index", "i64")
    keys = _keys(body)
    if kind == "normal":
        result = normal(body, keys, index)
    else:
        words = [
            word(body, index, keys, number) for number in range(2 if element == "double" else 1)
        ]
        result = words[0] if kind == "bits" else uniform(body, words)
    symbol = f"@argand.{kind}.{body.suffix(element)}"
    parameters = f"i64 %seed, i64 %stream, {body.vector('i64')} %index"
    return f"{body.vector(result.element)} {symbol}", define(body, symbol, parameters, result)


def emit_random(
    kind: str, text: Text, seed: str, stream: int, index: str, element: Element, lanes: int
) -> str:
    """Append a draw: `seed` an i64, `index` `lanes` i64 (the element's number in its tensor).

    "uniform" is in [0, 1), "normal" has variance 1, both of type `element`; "bits" are i32.
    """
    callee, needed = _definition(kind, element, lanes)
    for definition in needed:
        text.declare(definition)
    indices = "i64" if lanes == 1 else f"<{lanes} x i64>"
    return text.value(f"call {callee}(i64 {seed}, i64 {stream}, {indices} {index})")
