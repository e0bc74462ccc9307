"""backends.bridges.onnx_ops: aten ops as ONNX nodes, one row each.

A row gets a ``OnnxWriter`` and the fx node and writes ONNX nodes that leave the result under the node's name, or
raises ``Declined``. Shapes are known. No indexing: other compilers do not refuse indices out of range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import torch
from torch.fx import Node

aten = torch.ops.aten


class Declined(Exception):
    """This node cannot be written in ONNX; torch runs it."""


class OnnxWriter:
    """Collects ONNX nodes and constants; ``onnx`` is the package, imported by the bridge."""

    def __init__(self, onnx: Any) -> None:
        self.onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._fresh = 0

    def constant(self, value: Any, dtype: torch.dtype) -> str:
        """The name of a constant tensor."""
        name = f"constant_{len(self.constants)}"
        array = torch.as_tensor(value, dtype=dtype).numpy()
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def emit(self, op: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        """Write one node; the name of its output."""
        if not output:
            output = f"between_{self._fresh}"
            self._fresh += 1
        made = self.onnx.helper.make_node(op, list(inputs), [output], **attributes)
        self.nodes.append(made)
        return output

    def value(self, argument: Any, like: Node) -> str:
        """The name of an argument: a node, or a number in the dtype of the result."""
        if isinstance(argument, Node):
            name = argument.name
            wanted = like.meta["val"].dtype
            if argument.meta["val"].dtype != wanted:
                return self.cast(name, wanted)
            return name
        if isinstance(argument, bool | int | float):
            return self.constant(argument, like.meta["val"].dtype)
        raise Declined(f"argument {argument!r}")

    def cast(self, name: str, dtype: torch.dtype, output: str = "") -> str:
        """Convert to a dtype."""
        return self.emit("Cast", [name], output, to=self.type_code(dtype))

    def type_code(self, dtype: torch.dtype) -> int:
        """ONNX's number of a dtype."""
        name = _TYPES.get(dtype)
        if name is None:
            raise Declined(f"dtype {dtype}")
        return int(getattr(self.onnx.TensorProto, name))


OnnxRow: TypeAlias = Callable[[OnnxWriter, Node], object]

_TYPES: Final[Mapping[torch.dtype, str]] = {
    torch.float32: "FLOAT",
    torch.float64: "DOUBLE",
    torch.int64: "INT64",
    torch.int32: "INT32",
    torch.bool: "BOOL",
}


def _elementwise(op: str) -> OnnxRow:
    def write(writer: OnnxWriter, node: Node) -> None:
        if set(node.kwargs) - {"memory_format"}:
            raise Declined("keywords")
        arguments = [writer.value(argument, node) for argument in node.args]
        writer.emit(op, arguments, node.name)

    return write


def _with_alpha(op: str) -> OnnxRow:
    def write(writer: OnnxWriter, node: Node) -> None:
        first, second = (writer.value(argument, node) for argument in node.args[:2])
        alpha = node.kwargs.get("alpha", 1)
        if alpha != 1:
            scale = writer.constant(alpha, node.meta["val"].dtype)
            second = writer.emit("Mul", [second, scale])
        writer.emit(op, [first, second], node.name)

    return write


def _compare(op: str) -> OnnxRow:
    def write(writer: OnnxWriter, node: Node) -> None:
        first, second = node.args
        if not isinstance(first, Node):
            raise Declined("number on the left")
        if isinstance(second, Node) and second.meta["val"].dtype != first.meta["val"].dtype:
            raise Declined("mixed dtypes")
        other = second.name if isinstance(second, Node) else writer.value(second, first)
        writer.emit(op, [first.name, other], node.name)

    return write


def _to_shape(op: str) -> OnnxRow:
    def write(writer: OnnxWriter, node: Node) -> None:
        shape = writer.constant(list(node.meta["val"].shape), torch.int64)
        writer.emit(op, [node.args[0].name, shape], node.name)

    return write


def _permute(writer: OnnxWriter, node: Node) -> None:
    rank = node.meta["val"].ndim
    order = [int(dim) % rank for dim in node.args[1]]
    writer.emit("Transpose", [node.args[0].name], node.name, perm=order)


def _transpose(writer: OnnxWriter, node: Node) -> None:
    rank = node.meta["val"].ndim
    order = list(range(rank))
    first, second = (0, 1) if node.target is aten.t.default else node.args[1:3]
    if rank > 1:
        one, two = int(first) % rank, int(second) % rank
        order[one], order[two] = order[two], order[one]
    writer.emit("Transpose", [node.args[0].name], node.name, perm=order)


def _addmm(writer: OnnxWriter, node: Node) -> None:
    bias, left, right = (argument.name for argument in node.args)
    alpha, beta = float(node.kwargs.get("alpha", 1)), float(node.kwargs.get("beta", 1))
    writer.emit("Gemm", [left, right, bias], node.name, alpha=alpha, beta=beta)


def _softmax(op: str) -> OnnxRow:
    def write(writer: OnnxWriter, node: Node) -> None:
        source, dim, to_float = node.args
        if to_float:
            raise Declined("half to float")
        writer.emit(op, [source.name], node.name, axis=int(dim))

    return write


def _reduce(op: str) -> OnnxRow:
    def write(writer: OnnxWriter, node: Node) -> None:
        source = node.args[0]
        dims = node.args[1] if len(node.args) > 1 else None
        keep = bool(node.args[2]) if len(node.args) > 2 else False
        axes = dims if dims else list(range(source.meta["val"].ndim))
        if source.meta["val"].dtype != node.meta["val"].dtype:
            raise Declined("dtype of the result")
        names = [source.name, writer.constant(list(axes), torch.int64)]
        writer.emit(op, names, node.name, keepdims=int(keep))

    return write


def _cat(writer: OnnxWriter, node: Node) -> None:
    parts = node.args[0]
    dim = node.args[1] if len(node.args) > 1 else 0
    names = [writer.value(part, node) for part in parts]
    writer.emit("Concat", names, node.name, axis=int(dim))


def _convolution(writer: OnnxWriter, node: Node) -> None:
    source, weight, bias, stride, padding, dilation, transposed, _, groups = node.args
    if transposed:
        raise Declined("transposed convolution")
    names = [source.name, weight.name] + ([bias.name] if bias is not None else [])
    writer.emit(
        "Conv",
        names,
        node.name,
        strides=list(stride),
        pads=[*padding, *padding],
        dilations=list(dilation),
        group=int(groups),
    )


def _where(writer: OnnxWriter, node: Node) -> None:
    condition, first, second = node.args
    names = [condition.name, writer.value(first, node), writer.value(second, node)]
    writer.emit("Where", names, node.name)


def _gelu(writer: OnnxWriter, node: Node) -> None:
    form = str(node.kwargs.get("approximate", "none"))
    writer.emit("Gelu", [node.args[0].name], node.name, approximate=form)


def _rsqrt(writer: OnnxWriter, node: Node) -> None:
    root = writer.emit("Sqrt", [node.args[0].name])
    writer.emit("Reciprocal", [root], node.name)


_UNARY: Final = (
    "neg",
    "abs",
    "exp",
    "log",
    "sqrt",
    "reciprocal",
    "sin",
    "cos",
    "tanh",
    "sigmoid",
    "erf",
    "relu",
)
_COMPARE: Final = {"eq": "Equal", "gt": "Greater", "lt": "Less"}

ROWS: Final[Mapping[Any, OnnxRow]] = {
    **{getattr(aten, name).default: _elementwise(name.capitalize()) for name in _UNARY},
    **dict.fromkeys((aten.add.Tensor, aten.add.Scalar), _with_alpha("Add")),
    **dict.fromkeys((aten.sub.Tensor, aten.sub.Scalar), _with_alpha("Sub")),
    **dict.fromkeys((aten.mul.Tensor, aten.mul.Scalar), _elementwise("Mul")),
    **dict.fromkeys((aten.div.Tensor, aten.div.Scalar), _elementwise("Div")),
    **dict.fromkeys((aten.pow.Tensor_Scalar, aten.pow.Tensor_Tensor), _elementwise("Pow")),
    aten.rsqrt.default: _rsqrt,
    aten.gelu.default: _gelu,
    aten.maximum.default: _elementwise("Max"),
    aten.minimum.default: _elementwise("Min"),
    **{getattr(aten, name).Tensor: _compare(op) for name, op in _COMPARE.items()},
    **{getattr(aten, name).Scalar: _compare(op) for name, op in _COMPARE.items()},
    aten.ge.Scalar: _compare("GreaterOrEqual"),
    aten.le.Scalar: _compare("LessOrEqual"),
    aten.where.self: _where,
    **dict.fromkeys((aten.mm.default, aten.bmm.default), _elementwise("MatMul")),
    aten.addmm.default: _addmm,
    aten.convolution.default: _convolution,
    aten._softmax.default: _softmax("Softmax"),
    aten._log_softmax.default: _softmax("LogSoftmax"),
    aten.sum.dim_IntList: _reduce("ReduceSum"),
    aten.mean.dim: _reduce("ReduceMean"),
    aten.amax.default: _reduce("ReduceMax"),
    aten.amin.default: _reduce("ReduceMin"),
    aten.cat.default: _cat,
    **dict.fromkeys(
        (aten.view.default, aten._unsafe_view.default, aten.reshape.default), _to_shape("Reshape")
    ),
    **dict.fromkeys((aten.unsqueeze.default, aten.squeeze.dim), _to_shape("Reshape")),
    aten.permute.default: _permute,
    **dict.fromkeys((aten.transpose.int, aten.t.default), _transpose),
    aten.expand.default: _to_shape("Expand"),
    aten.clone.default: _elementwise("Identity"),
    aten._to_copy.default: lambda writer, node: writer.cast(
        node.args[0].name, node.meta["val"].dtype, node.name
    ),
}
