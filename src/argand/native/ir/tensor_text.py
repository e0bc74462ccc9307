"""native.ir.tensor_text: tensor IR as text and back, one line per node.

    graph(f32[2,3], f32[3])
    %0 = input[0]() : f32[2,3]
    %1 = view[d1, d0](%0) : f32[3,2]
    return %1

Calls of torch's kernels print their operator; the parser gives them tensor arguments only. It also takes strides
behind inputs and results (``f32[2,3] strides [1,2]``, ``return %1 strides [1,2]``) and whose memory a result has
in eager (``return %1 memory -1``: that of input 0), which are not printed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch

from argand.native.ir.affine import Affine
from argand.native.ir.tensor import (
    Attribute,
    Baked,
    ExternCall,
    Graph,
    Lookup,
    Node,
    Output,
    TensorArgument,
    TensorMeta,
)
from argand.native.ir.types import DType, Shape, contiguous_strides
from argand.runtime.marks import OutOfRange
from argand.support.errors import InternalError

_INPUT: Final = re.compile(r"none|(\w+\[[\d,]*\])(?: strides \[([\d,]*)\])?")
_RESULT: Final = re.compile(r"%(\w+)(?: into (\d+))?(?: memory (-?\d+))?(?: strides \[([\d,]*)\])?")
_ITEM: Final = re.compile(r"%\w+ = item\[(\d+)\]\(%(\w+)\) : (\S+)$")
_LINE: Final = re.compile(r"%(\w+) = (\w+)(?:\[(.*?)\])?\((.*?)\) : (\S+)$")


def print_type(shape: Shape, dtype: DType | None) -> str:
    """``f32[2,3]``; ``torch[...]`` for a type we only hand through."""
    return f"{dtype.value if dtype else 'torch'}[{','.join(map(str, shape))}]"


def print_graph(graph: Graph) -> str:
    """The graph as text."""
    names = {node: f"%{k}" for k, node in enumerate(graph.nodes)}
    inputs = [
        print_type(s.shape, s.dtype) if isinstance(s, TensorMeta) else "none" for s in graph.inputs
    ]
    lines = [f"graph({', '.join(inputs)})"]
    for node in graph.nodes:
        attribute = print_attribute(node)
        arguments = ", ".join(names[i] for i in node.inputs)
        kind = print_type(node.shape, node.dtype)
        lines.append(f"{names[node]} = {node.op}{attribute}({arguments}) : {kind}")
    results = [
        _print_output(o, names[o.node]) if isinstance(o, Output) else repr(o) for o in graph.outputs
    ]
    lines.append(f"return {', '.join(results)}")
    return "\n".join(lines)


def _print_output(output: Output, name: str) -> str:
    return name if output.into < 0 else f"{name} into {output.into}"


def print_attribute(node: Node) -> str:
    """The attribute in brackets, or nothing."""
    match node.attribute:
        case None:
            return ""
        case ExternCall(target):
            return f"[{target}]"
        case Baked(tensor):
            return f"[{tuple(tensor.shape)}]"
        case tuple() as items:
            listed = (str(i) for i in items)
            return f"[{', '.join(listed)}]"
        case number:
            return f"[{number!r}]"


def parse_graph(text: str) -> Graph:
    """The graph of a text; InternalError names the line that cannot be read."""
    lines = [line for line in (raw.strip() for raw in text.splitlines()) if line]
    nodes: dict[str, Node] = {}
    inputs: tuple[TensorMeta | None, ...] = ()
    outputs: list[Output | object] = []
    made = _call_outputs(lines)
    for line in lines:
        if line.startswith("graph("):
            inputs = tuple(
                None if found[0] == "none" else _spec_of(found)
                for found in _INPUT.finditer(line[6:-1])
            )
        elif line.startswith("return"):
            for name, into, memory, strides in _RESULT.findall(line[6:]):
                spec = _spec(nodes[name].shape, nodes[name].dtype, strides)
                outputs.append(
                    Output(nodes[name], spec, memory=int(memory or 0), into=int(into or -1))
                )
        else:
            name, node = _parse_line(line, nodes, made)
            nodes[name] = node
    return Graph.of(inputs, tuple(outputs))


def _call_outputs(lines: Sequence[str]) -> dict[str, tuple[TensorMeta | None, ...]]:
    """What calls of torch give, by their names: read from the lines that take it."""
    found: dict[str, dict[int, TensorMeta]] = {}
    for line in lines:
        if item := _ITEM.match(line):
            found.setdefault(item[2], {})[int(item[1])] = _spec(*_parse_type(item[3]))
    return {
        name: tuple(specs.get(k) for k in range(1 + max(specs))) for name, specs in found.items()
    }


def _parse_line(
    line: str, nodes: dict[str, Node], made: Mapping[str, tuple[TensorMeta | None, ...]]
) -> tuple[str, Node]:
    found = _LINE.match(line)
    if found is None:
        raise InternalError("native.ir", f"cannot read {line!r}")
    name, op, attribute, arguments, kind = found.groups()
    shape, dtype = _parse_type(kind)
    given = tuple(nodes[a.strip()[1:]] for a in arguments.split(",") if a.strip())
    if op == "extern":
        return name, Node(op, given, shape, dtype, _extern(attribute, given, made.get(name, ())))
    value = None if attribute is None else _parse_attribute(op, attribute, dtype)
    return name, Node(op, given, shape, dtype, value)


def _parse_type(text: str) -> tuple[Shape, DType | None]:
    name, _, sizes = text.partition("[")
    shape = tuple(int(s) for s in sizes.rstrip("]").split(",") if s)
    return shape, None if name == "torch" else DType(name)


def _spec(shape: Shape, dtype: DType | None, strides: str = "") -> TensorMeta:
    kind = torch.complex64 if dtype is None else dtype.row.torch_dtype
    found = tuple(int(s) for s in strides.split(",")) if strides else contiguous_strides(shape)
    return TensorMeta(shape, found, kind, dtype)


def _spec_of(found: re.Match[str]) -> TensorMeta:
    return _spec(*_parse_type(found[1]), found[2] or "")


def parse_affine(text: str) -> Affine:
    """``2*d0 + d1 + 3``."""
    result = Affine()
    for part in text.split("+"):
        factor, _, var = part.strip().rpartition("d")
        if not part.strip().count("d"):
            result = result.shift(int(part))
        else:
            result = result + Affine.of(int(var)).scale(int(factor.rstrip("*") or 1))
    return result


def _parse_attribute(op: str, text: str, dtype: DType | None) -> Attribute:
    items = [item.strip() for item in text.split(",") if item.strip()]
    simple: dict[str, Callable[[], Any]] = {
        "input": lambda: int(text),
        "item": lambda: int(text),
        "seed": lambda: int(text),
        "view": lambda: tuple(parse_affine(i) for i in items),
        "update": lambda: tuple(parse_affine(i) for i in items),
        "gather": lambda: tuple(_lookup(i) if i[0] == "#" else parse_affine(i) for i in items),
        "constant": lambda: _number(text, dtype),
    }
    return simple[op]() if op in simple else tuple(int(i) for i in items)


def _number(text: str, dtype: DType | None) -> bool | int | float:
    if dtype is DType.BOOL:
        return text == "True"
    return float(text) if dtype is not None and dtype.is_float else int(text)


def _extern(
    text: str, inputs: tuple[Node, ...], outputs: tuple[TensorMeta | None, ...]
) -> ExternCall:
    target: Any = torch.ops
    for part in text.split("."):
        target = getattr(target, part)
    slots = tuple(TensorArgument(k) for k in range(len(inputs)))
    layouts = tuple(contiguous_strides(i.shape) for i in inputs)
    return ExternCall(target, slots, {}, layouts, outputs, len(outputs) <= 1)


def _lookup(text: str) -> Lookup:
    number, _, error = text[1:].partition(":")
    return Lookup(int(number), OutOfRange[error.upper()] if error else OutOfRange.SELF)
