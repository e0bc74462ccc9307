"""native.codegen.math: transcendental functions as LLVM text, for any vector width.

In: the name of a function and LLVM operands. Out: one call instruction in the caller's text, and
the function's definition, once per module; the inliner does the rest. Errors in units of the last
place are tested in tests/math and printed by `python -m tests.vector_math.ulp_table`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Final

from argand.native.codegen.math import error, exponential, logarithm, power, trigonometric
from argand.native.codegen.math.builder import Body, Element, Text, Value, symbol_of

Writer = Callable[..., Value]


_WRITERS: Final[dict[str, tuple[int, Writer]]] = {
    "exp": (1, exponential.exp),
    "exp2": (1, exponential.exp2),
    "expm1": (1, exponential.expm1),
    "sigmoid": (1, exponential.sigmoid),
    "silu": (1, exponential.silu),
    "gelu_tanh": (1, exponential.gelu_tanh),
    "softplus": (1, exponential.softplus),
    "tanh": (1, exponential.tanh),
    "sinh": (1, exponential.sinh),
    "cosh": (1, exponential.cosh),
    "log": (1, logarithm.log),
    "log2": (1, logarithm.log2),
    "log10": (1, logarithm.log10),
    "log1p": (1, logarithm.log1p),
    "asinh": (1, logarithm.asinh),
    "acosh": (1, logarithm.acosh),
    "atanh": (1, logarithm.atanh),
    "sin": (1, trigonometric.sin),
    "cos": (1, trigonometric.cos),
    "tan": (1, trigonometric.tan),
    "sin_large": (1, trigonometric.sin_large),
    "cos_large": (1, trigonometric.cos_large),
    "tan_large": (1, trigonometric.tan_large),
    "asin": (1, trigonometric.asin),
    "acos": (1, trigonometric.acos),
    "atan": (1, trigonometric.atan),
    "atan2": (2, trigonometric.atan2),
    "pow": (2, power.power),
    "rsqrt": (1, power.rsqrt),
    "erf": (1, error.erf),
    "erfc": (1, error.erfc),
    "gelu": (1, error.gelu),
}
# What is only called for arguments that hardly occur: not inlined, and not for others to call.
_RARE: Final = frozenset({"sin_large", "cos_large", "tan_large"})
SUPPORTED: Final = frozenset(_WRITERS) - _RARE


@functools.cache
def definitions(name: str, element: Element, lanes: int) -> tuple[str, ...]:
    """The declarations and definitions that a call of `name` needs, callees first."""
    arity, write = _WRITERS[name]
    body = Body(element, lanes)
    names = ["%x", "%y"][:arity]
    result = write(body, *(Value(body, argument, element) for argument in names))
    vector = body.vector(element)
    parameters = ", ".join(f"{vector} {argument}" for argument in names)
    symbol = symbol_of(name, element, lanes)
    inline = "noinline cold" if name in _RARE else "alwaysinline"
    head = f"define internal {vector} {symbol}({parameters}) {inline} nounwind {{\nentry:"
    text = "\n".join([head, *body.lines, f"  ret {vector} {result.text}", "}"])
    found: dict[str, None] = {}
    for callee in body.needed:
        found.update(dict.fromkeys(definitions(callee, element, lanes)))
    found.update(body.declared)
    found[text] = None
    return tuple(found)


def emit(name: str, text: Text, args: Sequence[str], element: Element, lanes: int) -> str:
    """Append a call of `name` (one of SUPPORTED) to `text`; the name of its result."""
    for definition in definitions(name, element, lanes):
        text.declare(definition)
    vector = element if lanes == 1 else f"<{lanes} x {element}>"
    operands = ", ".join(f"{vector} {argument}" for argument in args)
    return text.value(f"call {vector} {symbol_of(name, element, lanes)}({operands})")
