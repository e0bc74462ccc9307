"""Aten graphs as text: what `lower` cases are written in, and what `decompose` cases give.

    x: f32[4,8] strides [1,4]
    a = aten.add.Tensor(x, 2)
    return a

Each value's metadata comes from running the graph in eager on tensors of zeros.
"""

import ast
import operator
import re

import torch
import torch.fx

from argand.native.ir.types import DType, contiguous_strides

INPUT = re.compile(r"^(\w+): (\w+)\[([\d,]*)\](?: strides \[([\d,]*)\])?$")


def numbers(text):
    return tuple(int(part) for part in text.split(",") if part)


def tensor_of(kind, sizes, strides):
    """A tensor of zeros of a written type."""
    dtype = (
        DType(kind).row.torch_dtype if kind in {d.value for d in DType} else getattr(torch, kind)
    )
    shape = numbers(sizes)
    made = torch.empty_strided(
        shape, numbers(strides) if strides else contiguous_strides(shape), dtype=dtype
    )
    return made.zero_()


def split_inputs(body):
    """The inputs a program declares, by name, and the lines behind them."""
    lines = body.split("\n")
    inputs = {}
    while lines and (found := INPUT.match(lines[0])):
        inputs[found[1]] = tensor_of(*found.groups()[1:])
        lines.pop(0)
    return inputs, lines


def parse_aten(body):
    """(graph module with meta["val"], example inputs)."""
    inputs, lines = split_inputs(body)
    graph, values = torch.fx.Graph(), {}
    for name, value in inputs.items():
        values[name] = graph.placeholder(name)
        values[name].meta["val"] = value
    for statement in (
        ast.parse("def f():\n" + "\n".join(f"  {line}" for line in lines)).body[0].body
    ):
        if isinstance(statement, ast.Return):
            results = (
                statement.value.elts
                if isinstance(statement.value, ast.Tuple)
                else [statement.value]
            )
            graph.output(tuple(read(result, values) for result in results))
            continue
        (target,) = statement.targets
        values[target.id] = call(graph, statement.value, values)
    return torch.fx.GraphModule({}, graph), list(inputs.values())


def read(node, values):
    """The argument an expression stands for."""
    if isinstance(node, ast.Name) and node.id in values:
        return values[node.id]
    if isinstance(node, ast.List | ast.Tuple):
        return [read(item, values) for item in node.elts]
    return eval(ast.unparse(node), {"torch": torch, "inf": float("inf"), "nan": float("nan")})


def call(graph, node, values):
    """A call of an aten op, or one result of it (``a[0]``)."""
    if isinstance(node, ast.Subscript):
        target, args, kwargs = (
            operator.getitem,
            (values[node.value.id], ast.literal_eval(node.slice)),
            {},
        )
    else:
        target = eval(ast.unparse(node.func), {"aten": torch.ops.aten})
        args = tuple(read(item, values) for item in node.args)
        kwargs = {item.arg: read(item.value, values) for item in node.keywords}
    made = graph.call_function(target, args, kwargs)
    real = torch.fx.node.map_arg((args, kwargs), lambda n: n.meta["val"])
    made.meta["val"] = target(*real[0], **real[1])
    return made


def print_type(value):
    kinds = {d.row.torch_dtype: d.value for d in DType}
    kind = kinds.get(value.dtype, str(value.dtype).removeprefix("torch."))
    strides = value.stride() != contiguous_strides(value.shape)
    tail = f" strides [{','.join(map(str, value.stride()))}]" if strides else ""
    return f"{kind}[{','.join(map(str, value.shape))}]{tail}"


def print_aten(graph):
    """The graph as text, in the form `parse_aten` reads."""
    lines = []
    for node in graph.nodes:
        if node.op == "placeholder":
            lines.append(f"{node.name}: {print_type(node.meta['val'])}")
        elif node.op == "output":
            lines.append(f"return {', '.join(map(str, node.args[0]))}")
        elif node.target is operator.getitem:
            lines.append(f"{node.name} = {node.args[0]}[{node.args[1]}]")
        else:
            args = [*map(str, node.args), *(f"{k}={v}" for k, v in node.kwargs.items())]
            lines.append(f"{node.name} = {node.target}({', '.join(args)})")
    return "\n".join(lines)
