"""native.codegen.math: transcendental functions as LLVM text, for any vector width.

In: the name of a function and LLVM operands. Out: one call instruction in the caller's text, and
the function's definition, once per module; the inliner does the rest. Errors in units of the last
place are tested in tests/math and printed by `python -m tests.vector_math.ulp_table`.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Final

from argand.native.codegen.math.builder import Element, FunctionBody, Lanes, symbol_of
from argand.native.codegen.text import Text, vector

MathWriter = Callable[..., Lanes]


# Each is written by the function of its name.
_FAMILIES: Final = {
    "exponential": "exp exp2 expm1 sigmoid silu gelu_tanh softplus tanh sinh cosh",
    "logarithm": "log log2 log10 log1p asinh acosh atanh",
    "trigonometric": "sin cos tan asin acos atan atan2",
    "power": "pow rsqrt",
    "error": "erf erfc gelu",
}
# What is only called for arguments that hardly occur: not inlined, and not for others to call.
_RARE: Final = {f"{name}_large": name for name in ("sin", "cos", "tan")}
_FAMILY_OF: Final = {name: family for family, names in _FAMILIES.items() for name in names.split()}
BINARY: Final = frozenset({"atan2", "pow"})
SUPPORTED: Final = frozenset(_FAMILY_OF)
NAMES: Final = SUPPORTED | _RARE.keys()


def writer_of(name: str) -> MathWriter:
    """What writes a function; its family is loaded when somebody uses one of it."""
    family = importlib.import_module(f"{__name__}.{_FAMILY_OF.get(name, 'trigonometric')}")
    found: MathWriter = family.by_libm(_RARE[name]) if name in _RARE else getattr(family, name)
    return found


@functools.cache
def definitions(name: str, element: Element, lanes: int) -> tuple[str, ...]:
    """The declarations and definitions that a call of `name` needs, callees first."""
    body = FunctionBody(element, lanes)
    names = ["%x", "%y"] if name in BINARY else ["%x"]
    result = writer_of(name)(body, *(Lanes(body, argument, element) for argument in names))
    parameters = ", ".join(f"{vector(element, lanes)} {argument}" for argument in names)
    inline = "noinline cold" if name in _RARE else "alwaysinline"
    return define(body, symbol_of(name, element, lanes), parameters, result, inline)


def define(
    body: FunctionBody, symbol: str, parameters: str, result: Lanes, inline: str = "alwaysinline"
) -> tuple[str, ...]:
    """The definition of a function whose body is written, after all that it needs."""
    kind = body.vector(result.element)
    head = f"define internal {kind} {symbol}({parameters}) {inline} nounwind {{\nentry:"
    text = "\n".join([head, *body.lines, f"  ret {kind} {result.text}", "}"])
    callees = (line for name in body.needed for line in definitions(name, body.element, body.lanes))
    return tuple(dict.fromkeys((*callees, *body.declared, text)))


def emit(name: str, text: Text, args: Sequence[str], element: Element, lanes: int) -> str:
    """Append a call of `name` (one of SUPPORTED) to `text`; the name of its result."""
    for definition in definitions(name, element, lanes):
        text.declare(definition)
    kind = vector(element, lanes)
    operands = ", ".join(f"{kind} {argument}" for argument in args)
    return text.value(f"call {kind} {symbol_of(name, element, lanes)}({operands})")
