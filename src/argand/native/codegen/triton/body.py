"""native.codegen.triton.body: the maths functions of ``codegen.math``, written as Triton source.

In: the writers of ``codegen.math``, which do arithmetic on ``Lanes``s. Out: the same operations, line by line, as a
function that Triton compiles; so both code generators round alike. Whatever a GPU has an instruction for is in
``functions.py`` instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from typing_extensions import override

from argand.native.codegen.math.builder import FunctionBody, Lanes, PlainNumber
from argand.native.codegen.text import rounded
from argand.native.codegen.triton.source import Refused, literal

TYPES: Final[Mapping[str, str]] = {
    "float": "tl.float32",
    "double": "tl.float64",
    **{f"i{bits}": f"tl.int{bits}" for bits in (1, 8, 16, 32, 64)},
}
_INFIX: Final[Mapping[str, str]] = {
    **{"fadd": "+", "fsub": "-", "fmul": "*", "add": "+", "sub": "-", "mul": "*"},
    **{"and": "&", "or": "|", "xor": "^", "shl": "<<", "ashr": ">>"},
}
_TESTS: Final[Mapping[str, str]] = {
    **{"olt": "<", "ogt": ">", "ole": "<=", "oge": ">=", "oeq": "==", "une": "!="},
    **{"eq": "==", "ne": "!=", "slt": "<", "sgt": ">"},
}
_CALLS: Final[Mapping[str, str]] = {
    "llvm.fma": "tl.fma",
    "llvm.fabs": "tl.abs",
    "llvm.copysign": "copysign",
    "llvm.rint": "rint",
}
_LARGE: Final[Mapping[str, str]] = {  # arguments too large for polynomials
    "sin_large": "tl.sin({0})",
    "cos_large": "tl.cos({0})",
    "tan_large": "tl.sin({0}) / tl.cos({0})",
}


@final
class TritonBody(FunctionBody):
    """The lines of one Triton function on tensors of any shape."""

    @override
    def line(self, instruction: str, element: str) -> Lanes:
        name = f"t{len(self.lines)}"
        self.lines.append(f"    {name} = {instruction}")
        return Lanes(self, name, element)

    @override
    def constant(self, value: PlainNumber, element: str | None = None) -> Lanes:
        kind = element or self.element
        if kind in ("float", "double"):
            return Lanes(self, literal(rounded(float(value), kind)), kind)
        if kind == "i1":
            return Lanes(self, str(bool(value)), kind)
        half = 1 << (int(kind[1:]) - 1)
        return Lanes(self, str((int(value) + half) % (2 * half) - half), kind)

    @override
    def binary(self, operation: str, left: Lanes, right: Lanes | PlainNumber) -> Lanes:
        other = self._operand(right, left.element)
        if operation == "fdiv":
            exact = left.element == "float"
            text = (
                f"tl.div_rn({left.text}, {other.text})" if exact else f"{left.text} / {other.text}"
            )
            return self.line(text, left.element)
        if operation == "lshr":
            bits = left.element[1:]
            plain = f"({left.text}.to(tl.uint{bits}, bitcast=True) >> {other.text})"
            return self.line(f"{plain}.to(tl.int{bits}, bitcast=True)", left.element)
        return self.line(f"{left.text} {_INFIX[operation]} {other.text}", left.element)

    @override
    def negate(self, value: Lanes) -> Lanes:
        return self.line(f"-{value.text}", value.element)

    @override
    def compare(self, condition: str, left: Lanes, right: Lanes | PlainNumber) -> Lanes:
        other = self._operand(right, left.element)
        return self.line(f"{left.text} {_TESTS[condition]} {other.text}", "i1")

    @override
    def select(self, mask: Lanes, yes: Lanes | PlainNumber, no: Lanes | PlainNumber) -> Lanes:
        kind = yes if isinstance(yes, Lanes) else no if isinstance(no, Lanes) else None
        element = kind.element if kind else self.element
        first, second = self._operand(yes, element), self._operand(no, element)
        chosen = f"tl.where({mask.text}, {first.text}, {second.text})"
        constants = first.text[0] in "-0123456789f" and second.text[0] in "-0123456789f"
        return self.line(f"{chosen}.to({TYPES[element]})" if constants else chosen, element)

    @override
    def convert(self, instruction: str, value: Lanes, element: str) -> Lanes:
        if value.element == element:
            return value
        if instruction == "sext" and value.element == "i1":
            return self.line(f"-({value.text}.to({TYPES[element]}))", element)
        source = value.text
        if instruction in ("uitofp", "zext") and value.element != "i1":
            source = f"{source}.to(tl.uint{value.element[1:]}, bitcast=True)"
        how = ", bitcast=True" if instruction == "bitcast" else ""
        return self.line(f"{source}.to({TYPES[element]}{how})", element)

    @override
    def intrinsic(self, name: str, *args: Lanes) -> Lanes:
        called = _CALLS.get(name)
        if name == "llvm.sqrt":
            called = "tl.sqrt_rn" if args[0].element == "float" else "tl.sqrt"
        if called is None:
            raise Refused(f"no Triton function for {name}")
        if not called.startswith("tl."):
            called = f"{called}_{'f32' if args[0].element == 'float' else 'f64'}"
            self.needed[called] = None
        return self.line(f"{called}({', '.join(arg.text for arg in args)})", args[0].element)

    @override
    def call(self, name: str, *args: Lanes) -> Lanes:
        symbol = f"{name}_{'f32' if self.element == 'float' else 'f64'}"
        self.needed[symbol] = None
        return self.line(f"{symbol}({', '.join(arg.text for arg in args)})", self.element)

    @override
    def unless_any(self, rare: Lanes, usual: Lanes, name: str, *args: Lanes) -> Lanes:
        other = _LARGE[name].format(*(arg.text for arg in args))
        return self.line(f"tl.where({rare.text}, {other}, {usual.text})", usual.element)

    @override
    def each_lane(self, symbol: str, *args: Lanes) -> Lanes:
        raise Refused(f"{symbol} of doubles is the C library's")
