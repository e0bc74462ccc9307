"""native.ir.loops_text: loop IR as text and back.

kernel(f32, f32) outer d0:7
  v0 = load f32 b0[33*d0 + d1]
  for d1:33 vector
    ...
"""

from __future__ import annotations

import re
from typing import Final

from argand.native.ir import loops as ir
from argand.native.ir.affine import Affine
from argand.native.ir.tensor_text import parse_affine
from argand.native.ir.types import DType
from argand.support.dataclass import replace
from argand.support.errors import InternalError


def print_kernel(kernel: ir.Kernel | ir.Contraction) -> str:
    """The kernel as text."""
    if isinstance(kernel, ir.Contraction):
        return _contraction(kernel)
    outer = "".join(f" d{v}:{n}" for v, n in kernel.outer)
    vector = "" if kernel.vector is None else f" vector d{kernel.vector}"
    scratch = "".join(f" scratch {d.value}*{n}" for d, n in kernel.scratch)
    head = f"kernel({', '.join(d.value for d in kernel.buffers)}) outer{outer}{vector}{scratch}"
    return "\n".join([head, *_lines(kernel.body, 1)])


def _contraction(kernel: ir.Contraction) -> str:
    sizes = f"d0:{kernel.batch[0]} d1:{kernel.batch[1]} d2:{kernel.rows} d3:{kernel.columns} inner {kernel.inner}"
    left, right = (
        f"b{f.buffer}[{f.batch[0]},{f.batch[1]},{f.across},{f.inner}]{f' + {f.offset}' if f.offset else ''}"
        f"{_quantization(f.quantized)}"
        for f in (kernel.left, kernel.right)
    )
    head = f"contraction({', '.join(d.value for d in kernel.buffers)}) {sizes}"
    value = f"  v{kernel.result} = product {kernel.dtype.value} {left} {right}"
    return "\n".join([head, value, *_lines(kernel.body, 1)])


def _quantization(given: ir.Quantization | None) -> str:
    """q4 groups 32 zero 8.0 scale b2[4,1]"""
    if given is None:
        return ""
    zero, scale = (
        f"b{t.buffer}[{t.across},{t.along}]{f' + {t.offset}' if t.offset else ''}"
        if isinstance(t, ir.PerGroup)
        else t
        for t in (given.zero, given.scale)
    )
    return f" q{given.bits} groups {given.group} zero {zero}{'' if scale is None else f' scale {scale}'}"


def _lines(block: ir.Block, depth: int) -> list[str]:
    result: list[str] = []
    for statement in block:
        if isinstance(statement, ir.Loop):
            vector = " vector" if statement.vector else ""
            vector += "" if statement.limit is None else f" limit [{statement.limit}]"
            result.append("  " * depth + f"for d{statement.var}:{statement.extent}{vector}")
            result.extend(_lines(statement.body, depth + 1))
        else:
            result.append("  " * depth + _statement(statement))
    return result


def _statement(statement: ir.Statement) -> str:
    match statement:
        case ir.Literal(result, dtype, value):
            return f"v{result} = constant {dtype.value} {value!r}"
        case ir.Coordinate(result, index):
            return f"v{result} = coordinate [{index}]"
        case ir.Load(result, dtype, buffer, index, indirect, flag, marks):
            extra = "".join(f" + v{v}*{stride}<{bound}" for v, stride, bound in indirect)
            mark = f" flag b{flag}" if flag >= 0 else ""
            mark += f" marks {','.join(map(str, marks))}" if any(marks) else ""
            return f"v{result} = load {dtype.value} b{buffer}[{index}]{extra}{mark}"
        case ir.Compute(result, dtype, op, arguments, operand):
            listed = ", ".join(f"v{a}" for a in arguments)
            return f"v{result} = {op} {dtype.value} {operand.value}({listed})"
        case ir.Store(dtype, buffer, index, value):
            return f"store {dtype.value} b{buffer}[{index}] = v{value}"
        case ir.Accumulate(result, dtype, op, value, operand, position):
            return f"v{result} += {op} {dtype.value} {operand.value} v{value} at [{position}]"
        case ir.Loop():
            raise InternalError("native.ir", "a loop is printed by its block")


_FORMS: Final = {
    "constant": re.compile(r"v(\d+) = constant (\w+) (\S+)$"),
    "coordinate": re.compile(r"v(\d+) = coordinate \[(.*)\]$"),
    "load": re.compile(r"v(\d+) = load (\w+) b(-?\d+)\[(.*?)\](.*)$"),
    "store": re.compile(r"store (\w+) b(-?\d+)\[(.*)\] = v(\d+)$"),
    "accumulate": re.compile(r"v(\d+) \+= (\w+) (\w+) (\w+) v(\d+) at \[(.*)\]$"),
    "compute": re.compile(r"v(\d+) = (\w+) (\w+) (\w+)\((.*)\)$"),
}


def parse_kernel(text: str) -> ir.Kernel | ir.Contraction:
    """The kernel of a text; InternalError names the line that cannot be read."""
    head, *lines = [line for line in text.splitlines() if line.strip()]
    if head.strip().startswith("contraction"):
        return _parse_contraction(head, lines)
    found = re.match(r"\s*kernel\((.*?)\) outer((?: d\d+:\d+)*)(?: vector d(\d+))?(.*)$", head)
    if found is None:
        raise InternalError("native.ir", f"cannot read {head!r}")
    buffers = tuple(DType(name) for name in found[1].split(", ") if name)
    outer = tuple((int(v), int(n)) for v, n in re.findall(r"d(\d+):(\d+)", found[2]))
    scratch = tuple((DType(d), int(n)) for d, n in re.findall(r"scratch (\w+)\*(\d+)", found[4]))
    vector = None if found[3] is None else int(found[3])
    base = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
    body, _ = _parse_block(lines, 0, base)
    return ir.Kernel(buffers, outer, body, vector, scratch)


_SIZES: Final = re.compile(
    r"\s*contraction\((.*?)\) d0:(\d+) d1:(\d+) d2:(\d+) d3:(\d+) inner (\d+)$"
)
_FACTOR: Final = r"b(\d+)\[(-?\d+),(-?\d+),(-?\d+),(-?\d+)\](?: \+ (\d+))?"
_TABLE: Final = r"b\d+\[-?\d+,-?\d+\](?: \+ \d+)?"
_QUANTIZED: Final = rf" q(\d) groups (\d+) zero ({_TABLE}|\S+)(?: scale ({_TABLE}))?"
_PRODUCT: Final = re.compile(rf"\s*v(\d+) = product (\w+) {_FACTOR} {_FACTOR}(?:{_QUANTIZED})?$")


def _parse_contraction(head: str, lines: list[str]) -> ir.Contraction:
    sizes, value = _SIZES.match(head), _PRODUCT.match(lines[0] if lines else "")
    if sizes is None or value is None:
        raise InternalError("native.ir", f"cannot read {(lines[0] if sizes and lines else head)!r}")
    buffers = tuple(DType(name) for name in sizes[1].split(", ") if name)
    b0, b1, rows, columns, inner = map(int, sizes.groups()[1:])

    def factor(parts: tuple[str, ...]) -> ir.Factor:
        buffer, first, second, across, along = map(int, parts[:5])
        return ir.Factor(
            buffer, buffers[buffer], (first, second), across, along, int(parts[5] or 0)
        )

    def table(text: str) -> ir.PerGroup:
        buffer, across, along, *offset = map(int, re.findall(r"-?\d+", text))
        return ir.PerGroup(buffer, buffers[buffer], across, along, *offset)

    left, right = factor(value.groups()[2:8]), factor(value.groups()[8:14])
    bits, group, zero, scale = value.groups()[14:]
    if bits is not None:
        zeros = table(zero) if zero.startswith("b") else float(zero)
        quantized = ir.Quantization(
            int(bits), int(group), zeros, None if scale is None else table(scale)
        )
        right = replace(right, quantized=quantized)
    body, _ = _parse_block(lines[1:], 0, 2)
    return ir.Contraction(
        buffers=buffers,
        batch=(b0, b1),
        rows=rows,
        columns=columns,
        inner=inner,
        left=left,
        right=right,
        result=int(value[1]),
        dtype=DType(value[2]),
        body=body,
    )


def _parse_block(lines: list[str], at: int, indent: int) -> tuple[ir.Block, int]:
    result: list[ir.Statement] = []
    while at < len(lines):
        line = lines[at]
        depth = len(line) - len(line.lstrip())
        if depth < indent:
            break
        loop = re.match(r"for d(\d+):(\d+)( vector)?$", line.strip())
        if loop is None:
            result.append(_parse_statement(line.strip()))
            at += 1
            continue
        body, at = _parse_block(lines, at + 1, indent + 2)
        result.append(ir.Loop(int(loop[1]), int(loop[2]), body, bool(loop[3])))
    return tuple(result), at


def _parse_statement(line: str) -> ir.Statement:
    for name, form in _FORMS.items():
        found = form.match(line)
        if found is not None:
            return _made(name, *found.groups())
    raise InternalError("native.ir", f"cannot read {line!r}")


def _made(name: str, *parts: str) -> ir.Statement:
    if name == "constant":
        dtype = DType(parts[1])
        kind = float if dtype.is_float else int
        value = parts[2] == "True" if dtype is DType.BOOL else kind(parts[2])
        return ir.Literal(int(parts[0]), dtype, value)
    if name == "coordinate":
        return ir.Coordinate(int(parts[0]), parse_affine(parts[1]))
    if name == "load":
        extra = re.findall(r"\+ v(\d+)\*(-?\d+)<(\d+)", parts[4])
        indirect = tuple((int(v), int(stride), int(bound)) for v, stride, bound in extra)
        index = parse_affine(parts[3])
        flag = re.search(r"flag b(\d+)", parts[4])
        number = -1 if flag is None else int(flag[1])
        listed = re.search(r"marks ([\d,]+)", parts[4])
        marks = () if listed is None else tuple(map(int, listed[1].split(",")))
        return ir.Load(
            result=int(parts[0]),
            dtype=DType(parts[1]),
            buffer=int(parts[2]),
            index=index,
            indirect=indirect,
            flag=number,
            marks=marks,
        )
    if name == "store":
        return ir.Store(DType(parts[0]), int(parts[1]), parse_affine(parts[2]), int(parts[3]))
    if name == "accumulate":
        position: Affine = parse_affine(parts[5])
        return ir.Accumulate(
            int(parts[0]), DType(parts[2]), parts[1], int(parts[4]), DType(parts[3]), position
        )
    arguments = tuple(int(a.strip()[1:]) for a in parts[4].split(",") if a.strip())
    return ir.Compute(int(parts[0]), DType(parts[2]), parts[1], arguments, DType(parts[3]))
