"""native.codegen.math.builder: write the body of one maths function as LLVM text.

In: Python arithmetic on `Lanes`s. Out: the text of an `alwaysinline` function on one float type,
scalar or vector. Floating-point operations are exactly the ones written: no fast-math flags, and
`fma` is one rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Literal, final

from argand.native.codegen.text import mangled, splat, vector
from argand.support.dataclass import dataclass

Element = Literal["float", "double"]
PlainNumber = float | int


@final
@dataclass(frozen=True, slots=True, eq=False)
class Lanes:
    """An SSA name or a constant, with the element type it has (float, double, iN, i1)."""

    body: FunctionBody
    text: str
    element: str

    def __add__(self, other: Lanes | PlainNumber) -> Lanes:
        return self.body.binary("fadd", self, other)

    def __sub__(self, other: Lanes | PlainNumber) -> Lanes:
        return self.body.binary("fsub", self, other)

    def __rsub__(self, other: PlainNumber) -> Lanes:
        return self.body.binary("fsub", self.body.constant(other, self.element), self)

    def __mul__(self, other: Lanes | PlainNumber) -> Lanes:
        return self.body.binary("fmul", self, other)

    def __truediv__(self, other: Lanes | PlainNumber) -> Lanes:
        return self.body.binary("fdiv", self, other)

    def __rtruediv__(self, other: PlainNumber) -> Lanes:
        return self.body.binary("fdiv", self.body.constant(other, self.element), self)

    def __neg__(self) -> Lanes:
        return self.body.negate(self)

    def __lt__(self, other: Lanes | PlainNumber) -> Lanes:
        return self.body.compare("olt", self, other)

    def __gt__(self, other: Lanes | PlainNumber) -> Lanes:
        return self.body.compare("ogt", self, other)

    def __le__(self, other: Lanes | PlainNumber) -> Lanes:
        return self.body.compare("ole", self, other)

    def __ge__(self, other: Lanes | PlainNumber) -> Lanes:
        return self.body.compare("oge", self, other)

    def equals(self, other: Lanes | PlainNumber) -> Lanes:
        """Ordered equality; false on NaN."""
        return self.body.compare("oeq", self, other)

    def integer(self, operation: str, other: Lanes | PlainNumber) -> Lanes:
        """An integer or mask instruction: add, sub, mul, and, or, xor, shl, lshr, ashr."""
        return self.body.binary(operation, self, other)


@dataclass(slots=True, eq=False)
class FunctionBody:
    """The instructions of one function on `lanes` elements (1: scalar types).

    ``codegen.triton`` writes the same functions in another language: it has a body of its own.
    """

    element: Element
    lanes: int
    lines: list[str] = field(default_factory=list)
    block: str = "entry"
    declared: dict[str, None] = field(default_factory=dict)
    needed: dict[str, None] = field(default_factory=dict)

    @property
    def bits(self) -> int:
        """Width of the element."""
        return 32 if self.element == "float" else 64

    @property
    def whole(self) -> str:
        """The integer type as wide as the element."""
        return f"i{self.bits}"

    def vector(self, element: str) -> str:
        """The LLVM type of `lanes` elements."""
        return vector(element, self.lanes)

    def suffix(self, element: str) -> str:
        """How intrinsic names end: f32, v8f32, v4i64."""
        return mangled(self.vector(element))

    def line(self, instruction: str, element: str) -> Lanes:
        """Append an instruction; its result."""
        name = f"%v{len(self.lines)}"
        self.lines.append(f"  {name} = {instruction}")
        return Lanes(self, name, element)

    def constant(self, value: PlainNumber, element: str | None = None) -> Lanes:
        """The same constant in all lanes."""
        kind = element or self.element
        return Lanes(self, splat(kind, self.lanes, value), kind)

    def _operand(self, value: Lanes | PlainNumber, element: str) -> Lanes:
        return value if isinstance(value, Lanes) else self.constant(value, element)

    def binary(self, operation: str, left: Lanes, right: Lanes | PlainNumber) -> Lanes:
        """`operation` on two operands of one type."""
        other = self._operand(right, left.element)
        kind = self.vector(left.element)
        return self.line(f"{operation} {kind} {left.text}, {other.text}", left.element)

    def negate(self, value: Lanes) -> Lanes:
        """-x, the sign bit turned."""
        return self.line(f"fneg {self.vector(value.element)} {value.text}", value.element)

    def compare(self, condition: str, left: Lanes, right: Lanes | PlainNumber) -> Lanes:
        """fcmp, or icmp for integer operands; a mask."""
        other = self._operand(right, left.element)
        instruction = "icmp" if left.element.startswith("i") else "fcmp"
        kind = self.vector(left.element)
        return self.line(f"{instruction} {condition} {kind} {left.text}, {other.text}", "i1")

    def select(self, mask: Lanes, yes: Lanes | PlainNumber, no: Lanes | PlainNumber) -> Lanes:
        """Lane by lane `mask ? yes : no`."""
        kind = yes if isinstance(yes, Lanes) else no if isinstance(no, Lanes) else None
        element = kind.element if kind else self.element
        first, second = self._operand(yes, element), self._operand(no, element)
        vector = self.vector(element)
        return self.line(
            f"select {self.vector('i1')} {mask.text}, {vector} {first.text}, {vector} {second.text}",
            element,
        )

    def convert(self, instruction: str, value: Lanes, element: str) -> Lanes:
        """bitcast, sitofp, fptosi, sext, zext, fpext, fptrunc."""
        if value.element == element:
            return value
        source, target = self.vector(value.element), self.vector(element)
        return self.line(f"{instruction} {source} {value.text} to {target}", element)

    def bits_of(self, value: Lanes) -> Lanes:
        """The bits of a float as an integer."""
        return self.convert("bitcast", value, "i32" if value.element == "float" else "i64")

    def float_of(self, value: Lanes) -> Lanes:
        """The float with these bits."""
        return self.convert("bitcast", value, "float" if value.element == "i32" else "double")

    def intrinsic(self, name: str, *args: Lanes) -> Lanes:
        """A call of an LLVM intrinsic whose operands and result have one type."""
        element = args[0].element
        vector = self.vector(element)
        symbol = f"@{name}.{self.suffix(element)}"
        self.declared[f"declare {vector} {symbol}({', '.join([vector] * len(args))})"] = None
        operands = ", ".join(f"{vector} {arg.text}" for arg in args)
        return self.line(f"call {vector} {symbol}({operands})", element)

    def fma(self, a: Lanes, b: Lanes | PlainNumber, c: Lanes | PlainNumber) -> Lanes:
        """a * b + c with one rounding."""
        return self.intrinsic(
            "llvm.fma", a, self._operand(b, a.element), self._operand(c, a.element)
        )

    def absolute(self, value: Lanes) -> Lanes:
        """|x|, sign bit cleared."""
        return self.intrinsic("llvm.fabs", value)

    def sqrt(self, value: Lanes) -> Lanes:
        """Correctly rounded square root."""
        return self.intrinsic("llvm.sqrt", value)

    def with_sign(self, magnitude: Lanes, sign: Lanes) -> Lanes:
        """The magnitude of the first with the sign of the second."""
        return self.intrinsic("llvm.copysign", magnitude, sign)

    def at_most(self, value: Lanes, limit: PlainNumber) -> Lanes:
        """min, NaN passes through (one minps, limit first)."""
        bound = self.constant(limit, value.element)
        return self.select(bound < value, bound, value)

    def at_least(self, value: Lanes, limit: PlainNumber) -> Lanes:
        """max, NaN passes through."""
        bound = self.constant(limit, value.element)
        return self.select(bound > value, bound, value)

    def polynomial(self, x: Lanes, coefficients: Sequence[float]) -> Lanes:
        """Horner's rule, lowest coefficient first.

        The high terms of a long one are two chains, even and odd powers: a chain of dependent
        instructions is what a core cannot overlap. The two low terms decide the error.
        """
        if len(coefficients) > 8:
            square, high = x * x, coefficients[2:]
            even = self.polynomial(square, high[::2])
            result = self.fma(self.polynomial(square, high[1::2]), x, even)
            return self.fma(self.fma(result, x, coefficients[1]), x, coefficients[0])
        result = self.constant(coefficients[-1], x.element)
        for coefficient in reversed(coefficients[:-1]):
            result = self.fma(result, x, coefficient)
        return result

    def call(self, name: str, *args: Lanes) -> Lanes:
        """Another function of this library, on the same type."""
        self.needed[name] = None
        vector = self.vector(self.element)
        operands = ", ".join(f"{vector} {arg.text}" for arg in args)
        return self.line(
            f"call {vector} {symbol_of(name, self.element, self.lanes)}({operands})", self.element
        )

    def unless_any(self, rare: Lanes, usual: Lanes, name: str, *args: Lanes) -> Lanes:
        """`usual`, or the library function `name` in the lanes where `rare` holds.

        The function is only called if there is such a lane; the others keep `usual`, so that no
        result depends on its neighbours.
        """
        if self.lanes == 1:
            any_lane = rare
        else:
            packed = f"bitcast {self.vector('i1')} {rare.text} to i{self.lanes}"
            bits = self.line(packed, "i1")
            any_lane = self.line(f"icmp ne i{self.lanes} {bits.text}, 0", "i1")
        slow, end, before = f"slow{len(self.lines)}", f"end{len(self.lines)}", self.block
        # Instruction names count lines, so labels and branches may be lines, too.
        self.lines += [f"  br i1 {any_lane.text}, label %{slow}, label %{end}", f"{slow}:"]
        result = self.select(rare, self.call(name, *args), usual)
        self.lines += [f"  br label %{end}", f"{end}:"]
        self.block = end
        return self.line(
            f"phi {self.vector(usual.element)} [{usual.text}, %{before}], [{result.text}, %{slow}]",
            usual.element,
        )

    def each_lane(self, symbol: str, *args: Lanes) -> Lanes:
        """A C function called lane by lane, for what is too rare to vectorise."""
        self.declared[
            f"declare {self.element} @{symbol}({', '.join([self.element] * len(args))})"
        ] = None
        if self.lanes == 1:
            operands = ", ".join(f"{self.element} {arg.text}" for arg in args)
            return self.line(f"call {self.element} @{symbol}({operands})", self.element)
        vector = self.vector(self.element)
        result = Lanes(self, "poison", self.element)
        for lane in range(self.lanes):
            scalars = [
                self.line(f"extractelement {vector} {arg.text}, i32 {lane}", self.element)
                for arg in args
            ]
            operands = ", ".join(f"{self.element} {scalar.text}" for scalar in scalars)
            value = self.line(f"call {self.element} @{symbol}({operands})", self.element)
            result = self.line(
                f"insertelement {vector} {result.text}, {self.element} {value.text}, i32 {lane}",
                self.element,
            )
        return result


def symbol_of(name: str, element: Element, lanes: int) -> str:
    """The LLVM name of a library function."""
    return f"@argand.{name}.{mangled(vector(element, lanes))}"
