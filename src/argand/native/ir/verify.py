"""native.ir.verify: the rules of both IRs, checked after each pass when ``Options.verify`` is set.

Numbers in messages: T1 known op, T2 inputs before users, T3 number of inputs, T4 types, T5 shapes,
T6 attributes; L1 a value is defined before it is used, L2 indices only use loops around them,
L3 buffers exist, L4 a kernel stores something.
"""

from __future__ import annotations

from argand.native.ir.affine import Affine, Var
from argand.native.ir.builder import broadcast, reduced
from argand.native.ir.loops import Accumulate, Block, Kernel, Load, Loop, Statement, Store, indices_of, uses_of, walk
from argand.native.ir.loops_text import print_kernel
from argand.native.ir.tensor import OPS, Graph, Kind, Node
from argand.native.ir.tensor_text import print_graph
from argand.native.ir.types import DType, numel
from argand.support.errors import InternalError


def verify_graph(graph: Graph, after: str) -> Graph:
    """The graph itself, or InternalError naming the pass and the broken rule."""
    seen: set[Node] = set()
    for number, node in enumerate(graph.nodes):
        fault = _node_fault(node, seen)
        if fault:
            message = f"after pass {after!r}: %{number} {node.op}: {fault}"
            raise InternalError("native.verify", message, dump=print_graph(graph))
        seen.add(node)
    return graph


def _node_fault(node: Node, seen: set[Node]) -> str:
    row = OPS.get(node.op)
    if row is None:
        return "T1 unknown op"
    if any(i not in seen for i in node.inputs):
        return "T2 used before it is defined"
    if row.arity not in (-1, len(node.inputs)):
        return f"T3 takes {row.arity} inputs, has {len(node.inputs)}"
    return _type_fault(node) or _shape_fault(node)


def _type_fault(node: Node) -> str:
    row = OPS[node.op]
    operands = [i.dtype for i in (node.inputs[1:] if node.op == "select" else node.inputs)]
    if node.kind is Kind.POINTWISE and node.op != "cast" and len(set(operands)) > 1:
        return f"T4 inputs of different types: {operands}"
    if node.op == "select" and node.inputs[0].dtype is not DType.BOOL:
        return "T4 the condition is not bool"
    if row.result == "bool" and node.dtype is not DType.BOOL:
        return "T4 a comparison gives bool"
    if row.result == "same" and operands and node.dtype is not operands[-1]:
        return f"T4 result type {node.dtype}, inputs {operands[-1]}"
    if row.domain == "float" and node.dtype is not None and not node.dtype.is_float:
        return "T4 wants floating types"
    return ""


def _shape_fault(node: Node) -> str:
    shapes = [i.shape for i in node.inputs]
    match node.kind:
        case Kind.POINTWISE if broadcast(shapes) != node.shape:
            return f"T5 inputs {shapes} do not broadcast to {node.shape}"
        case Kind.REDUCE if reduced(shapes[0], node.attribute) != node.shape:  # type: ignore[arg-type]
            return f"T5 {shapes[0]} over {node.attribute} is not {node.shape}"
        case Kind.VIEW if node.op == "reshape" and numel(shapes[0]) != numel(node.shape):
            return f"T5 reshape of {shapes[0]}"
        case Kind.VIEW if node.op == "view":
            return _view_fault(node, shapes[0])
        case Kind.GATHER if len(node.attribute) != len(shapes[0]):  # type: ignore[arg-type]
            return "T6 one form per dimension of the source"
        case _:
            return ""


def _view_fault(node: Node, below: tuple[int, ...]) -> str:
    forms: tuple[Affine, ...] = node.attribute  # type: ignore[assignment]
    if len(forms) != len(below):
        return "T6 one form per dimension of the input"
    if 0 in node.shape:
        return ""
    for form, size in zip(forms, below, strict=True):
        low = form.constant + sum(c * (node.shape[d] - 1) for d, c in form.terms if c < 0)
        high = form.constant + sum(c * (node.shape[d] - 1) for d, c in form.terms if c > 0)
        if low < 0 or high >= size:
            return f"T6 reads {form} outside a dimension of {size}"
    return ""


def verify_kernel(kernel: Kernel) -> Kernel:
    """The kernel itself, or InternalError with the broken rule."""
    variables = frozenset(v for v, _ in kernel.outer)
    fault = _block_fault(kernel, kernel.body, set(), variables)
    if not fault and not any(isinstance(s, Store) for s in walk(kernel.body)):
        fault = "L4 nothing is stored"
    if fault:
        raise InternalError("native.verify", fault, dump=print_kernel(kernel))
    return kernel


def _block_fault(kernel: Kernel, block: Block, known: set[int], variables: frozenset[Var]) -> str:
    for statement in block:
        if isinstance(statement, Loop):
            fault = _block_fault(kernel, statement.body, set(known), variables | {statement.var})
            known.update(s.result for s in walk(statement.body) if isinstance(s, Accumulate))
        else:
            fault = _statement_fault(kernel, statement, known, variables)
            if not isinstance(statement, Store | Accumulate):
                known.add(statement.result)
        if fault:
            return fault
    return ""


def _statement_fault(kernel: Kernel, statement: Statement, known: set[int], variables: frozenset[Var]) -> str:
    for value in uses_of(statement):
        if value not in known:
            return f"L1 v{value} is used before it is defined"
    for form in indices_of(statement):
        for var in form.variables():
            if var not in variables:
                return f"L2 {form} uses d{var}, which is no loop around it"
    known_buffers = range(-len(kernel.scratch), len(kernel.buffers))
    if isinstance(statement, Load | Store) and statement.buffer not in known_buffers:
        return f"L3 no buffer {statement.buffer}"
    return ""
