"""native.ir.verify_tensor: the rules of the tensor IR (T1 to T9 of docs/ir.md).

In: Graph. Out: the first broken rule, or None. The runner of the pass table asks after every pass when
``Options.verify`` is set.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from argand.native.ir.affine import Affine, span
from argand.native.ir.builder import broadcast, reduced
from argand.native.ir.faults import Fault
from argand.native.ir.tensor import OPS, ExternCall, Graph, Node, NodeKind, Output, TensorMeta
from argand.native.ir.types import DType, Shape, numel
from argand.support.errors import InternalError


def verify_graph(graph: Graph) -> Fault | None:
    """The first broken rule of a graph."""
    seen: set[Node] = set()
    for number, node in enumerate(graph.nodes):
        fault = _node_fault(graph, node, seen)
        if fault is not None:
            # after the line of inputs
            return Fault(fault.rule, f"%{number} {node.op}: {fault.what}", number + 1)
        seen.add(node)
    return _border_fault(graph, seen)


def _node_fault(graph: Graph, node: Node, seen: set[Node]) -> Fault | None:
    row = OPS.get(node.op)
    if row is None:
        return Fault("T1", "unknown op")
    if any(i not in seen for i in node.inputs):
        return Fault("T2", "used before it is defined")
    if row.arity not in (-1, len(node.inputs)):
        return Fault("T3", f"takes {row.arity} inputs, has {len(node.inputs)}")
    return (
        _type_fault(node)
        or _shape_fault(node)
        or _attribute_fault(node)
        or _leaf_fault(graph, node)
    )


def _type_fault(node: Node) -> Fault | None:
    row = OPS[node.op]
    operands = [i.dtype for i in (node.inputs[1:] if node.op == "select" else node.inputs)]
    if node.kind is NodeKind.POINTWISE and node.op != "cast" and len(set(operands)) > 1:
        return Fault("T4", f"inputs of different types: {operands}")
    if node.op == "select" and node.inputs[0].dtype is not DType.BOOL:
        return Fault("T4", "the condition is not bool")
    if row.result == "bool" and node.dtype is not DType.BOOL:
        return Fault("T4", "a comparison gives bool")
    if row.result == "same" and operands and node.dtype is not operands[-1]:
        return Fault("T4", f"result type {node.dtype}, inputs {operands[-1]}")
    if row.domain == "float" and node.dtype is not None and not node.dtype.is_float:
        return Fault("T4", "wants floating types")
    return None


def _shape_fault(node: Node) -> Fault | None:
    shapes = [i.shape for i in node.inputs]
    if node.kind is NodeKind.POINTWISE:
        try:
            found = broadcast(shapes)
        except InternalError:
            return Fault("T5", f"inputs {shapes} do not broadcast")
        return (
            None
            if found == node.shape
            else Fault("T5", f"inputs {shapes} do not broadcast to {node.shape}")
        )
    if node.kind is NodeKind.REDUCE:
        dims: Any = node.attribute
        if (
            not isinstance(dims, tuple)
            or len(set(dims)) != len(dims)
            or not _within(dims, len(shapes[0]))
        ):
            return Fault("T7", f"reduces dimensions {dims} of {shapes[0]}")
        if node.op.startswith("arg") and len(dims) != 1:
            return Fault("T7", f"an index counts along one dimension, not {dims}")
        if reduced(shapes[0], dims) != node.shape:
            return Fault("T5", f"{shapes[0]} over {dims} is not {node.shape}")
    if node.op == "reshape" and numel(shapes[0]) != numel(node.shape):
        return Fault("T5", f"reshape of {shapes[0]} to {node.shape}")
    if node.op == "concat":
        (dim,) = node.attribute  # type: ignore[misc]
        return _concat_fault(node, shapes, dim)  # type: ignore[arg-type]
    return None


def _concat_fault(node: Node, shapes: list[Shape], dim: int) -> Fault | None:
    if not 0 <= dim < len(node.shape):
        return Fault("T6", f"no dimension {dim} to concatenate along")
    total = sum(shape[dim] for shape in shapes)
    whole = [(*shape[:dim], total, *shape[dim + 1 :]) for shape in shapes]
    if any(shape != node.shape for shape in whole):
        return Fault("T5", f"{shapes} along {dim} are not {node.shape}")
    return None


def _attribute_fault(node: Node) -> Fault | None:
    """Index maps: one form per dimension they index, none of which leaves it."""
    attribute: Any = node.attribute
    if node.op == "view":
        return _forms_fault(attribute, node.inputs[0].shape, node.shape)
    if node.op == "update":
        return _forms_fault(attribute, node.shape, node.inputs[1].shape)
    if node.op == "gather":
        affine = [Affine() if isinstance(form, int) else form for form in attribute]
        if any(isinstance(form, int) and not 1 <= form < len(node.inputs) for form in attribute):
            return Fault("T6", f"{attribute} names an index that is no input")
        return _forms_fault(affine, node.inputs[0].shape, node.shape)
    if node.op == "item":
        call: Any = node.inputs[0].attribute
        if not isinstance(call, ExternCall) or not 0 <= attribute < len(call.outputs):
            return Fault("T6", f"no output {attribute} of a call")
    return None


def _forms_fault(forms: Iterable[Affine], indexed: Shape, over: Shape) -> Fault | None:
    listed = list(forms)
    if len(listed) != len(indexed):
        return Fault("T6", f"{len(listed)} forms for {len(indexed)} dimensions")
    if any(not _within(form.variables(), len(over)) for form in listed):
        return Fault("T6", f"a form of {[*map(str, listed)]} uses a dimension that is not there")
    if 0 in over:
        return None
    for form, size in zip(listed, indexed, strict=True):
        low, high = span(form, dict(enumerate(over)))
        if low < 0 or high >= size:
            return Fault("T6", f"reads {form} outside a dimension of {size}")
    return None


def _within(numbers: Iterable[int], count: int) -> bool:
    return all(0 <= number < count for number in numbers)


def _leaf_fault(graph: Graph, node: Node) -> Fault | None:
    if node.op != "input":
        return None
    position: Any = node.attribute
    spec = graph.inputs[position] if 0 <= position < len(graph.inputs) else None
    if not isinstance(spec, TensorMeta):
        return Fault("T8", f"input {position} of the graph is no tensor")
    if (spec.shape, spec.dtype) != (node.shape, node.dtype):
        return Fault("T8", f"input {position} of the graph is another: {spec.shape} {spec.dtype}")
    return None


def _border_fault(graph: Graph, seen: set[Node]) -> Fault | None:
    line = len(graph.nodes) + 1
    if any(node not in seen for node in graph.effects):
        return Fault("T2", "an effect is no node of the graph", line)
    for number, output in enumerate(graph.outputs):
        if not isinstance(output, Output):
            continue
        if output.node not in seen:
            return Fault("T2", f"result {number} is no node of the graph", line)
        if output.spec.shape != output.node.shape or output.spec.dtype is not output.node.dtype:
            return Fault(
                "T9",
                f"result {number} is promised as {output.spec.shape} {output.spec.dtype}",
                line,
            )
        if output.into >= len(graph.inputs):
            return Fault(
                "T9", f"result {number} goes into input {output.into}, which is not there", line
            )
    return None
