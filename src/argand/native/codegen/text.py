"""native.codegen.text: LLVM IR as text, the fastest way to write it from Python.

(llvmlite's IR objects cost 80 us per instruction, a formatted line 0.6 us.)
"""

from __future__ import annotations

import struct
from typing import final


@final
class Text:
    """Lines of one function; declarations are shared by a module and kept once."""

    def __init__(self, declarations: dict[str, None]) -> None:
        self.declarations = declarations
        self.entry: list[str] = []  # start of the function: stack slots and pointers
        self.lines: list[str] = []
        self._next = 0

    def value(self, instruction: str) -> str:
        """Append an instruction; the name of its result."""
        self._next += 1
        name = f"%t{self._next}"
        self.lines.append(f"  {name} = {instruction}")
        return name

    def line(self, instruction: str) -> None:
        """Append an instruction without result."""
        self.lines.append(f"  {instruction}")

    def slot(self, kind: str, count: int = 1) -> str:
        """A stack slot, made at function entry."""
        self._next += 1
        name = f"%s{self._next}"
        self.entry.append(f"  {name} = alloca {kind}, i64 {count}, align 64")
        return name

    def once(self, name: str, kind: str, count: int) -> str:
        """A stack slot of this name, made at the first question for it."""
        line = f"  %{name} = alloca {kind}, i64 {count}, align 64"
        if line not in self.entry:
            self.entry.append(line)
        return f"%{name}"

    def label(self, stem: str) -> str:
        """A fresh block label."""
        self._next += 1
        return f"{stem}{self._next}"

    def begin_block(self, label: str) -> None:
        """Start a block."""
        self.lines.append(f"{label}:")

    def declare(self, text: str) -> None:
        """Add a declaration or definition to the module, once."""
        self.declarations[text] = None

    def intrinsic(self, name: str, kind: str, arguments: list[str], extra: str = "") -> str:
        """Call an intrinsic overloaded on one type, all of whose arguments have that type."""
        symbol = f"@llvm.{name}.{mangled(kind)}"
        parameters = ", ".join([kind] * len(arguments) + ([extra.split()[0]] if extra else []))
        self.declare(f"declare {kind} {symbol}({parameters})")
        given = ", ".join([*(f"{kind} {a}" for a in arguments), *([extra] if extra else [])])
        return self.value(f"call {kind} {symbol}({given})")


def vector(element: str, lanes: int) -> str:
    """The LLVM type of some lanes; one lane is the plain scalar."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


def mangled(kind: str) -> str:
    """The suffix of an intrinsic's name for a type."""
    if kind.startswith("<"):
        count, _, element = kind[1:-1].split(" ")
        return f"v{count}{mangled(element)}"
    return {"float": "f32", "double": "f64", "half": "f16"}.get(kind, kind)


def number(element: str, value: bool | int | float) -> str:
    """A scalar constant."""
    if element in ("float", "double"):
        return f"0x{struct.unpack('<Q', struct.pack('<d', rounded(float(value), element)))[0]:016X}"
    if element == "i1":
        return "true" if value else "false"
    return str(int(value))


def splat(element: str, lanes: int, value: bool | int | float) -> str:
    """A constant operand with the value in every lane."""
    scalar = number(element, value)
    return scalar if lanes == 1 else f"splat ({element} {scalar})"


def rounded(value: float, element: str) -> float:
    """The nearest number of a floating type."""
    if element == "double":
        return value
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
