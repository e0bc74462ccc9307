"""backends.bridges.onnx_models: graphs for compilers that read ONNX; torch runs what they do not take.

In: a torch-level graph and ``open_model``, which makes a function on numpy arrays of an ONNX model. Out:
the compiled graph. Works on aten graphs after ahead-of-time autograd, so training works too. A run of
nodes the other compiler declines is halved until it takes the parts (backends.segments).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import torch
from torch.fx import GraphModule, Node

from argand.backends.aot import aot_autograd, make_boxed_func
from argand.backends.bridges.onnx_ops import ROWS, Declined, OnnxWriter
from argand.backends.segments import Segment, find_segments, run_in_segments
from argand.support.errors import InvalidBackend

OPSET: Final = 20  # the first with Gelu
IR_VERSION: Final = 10
_DTYPES: Final = frozenset({torch.float32, torch.int64, torch.int32, torch.bool})

RunArrays: TypeAlias = Callable[[list[Any]], Sequence[Any]]  # numpy arrays in, numpy arrays out
OpenModel: TypeAlias = Callable[[Any], RunArrays]  # in: a ModelProto


def import_or_hint(module: str, package: str) -> Any:
    """A module, or the error that says what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InvalidBackend(
            f"this backend needs the package {package!r}: {error}", hint=f"pip install {package}"
        ) from error


def _takes(node: Node, narrow_integers: bool) -> bool:
    value = node.meta.get("val")
    if node.target not in ROWS or not isinstance(value, torch.Tensor):
        return False
    tensors = [value, *(source.meta.get("val") for source in node.all_input_nodes)]
    refused = torch.int64 if narrow_integers else None
    return all(
        isinstance(t, torch.Tensor) and t.dtype in _DTYPES and t.dtype is not refused
        for t in tensors
    )


def _model_of(segment: Segment, onnx: Any) -> Any:
    writer = OnnxWriter(onnx)
    for node in segment.nodes:
        try:
            ROWS[node.target](writer, node)
        except Declined:
            raise
        except (TypeError, AttributeError, ValueError) as error:
            raise Declined(f"{node.target}: {error}") from error
    helper = onnx.helper

    def describe(node: Node) -> Any:
        value = node.meta["val"]
        return helper.make_tensor_value_info(
            node.name, writer.type_code(value.dtype), list(value.shape)
        )

    graph = helper.make_graph(
        writer.nodes,
        "segment",
        [describe(node) for node in segment.inputs],
        [describe(node) for node in segment.outputs],
        writer.constants,
    )
    opsets = [helper.make_opsetid("", OPSET)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


def _on_tensors(segment: Segment, run: RunArrays) -> Callable[..., Sequence[torch.Tensor]]:
    strides = [node.meta["val"].stride() for node in segment.outputs]

    def call(*inputs: torch.Tensor) -> list[torch.Tensor]:
        arrays = run([value.detach().contiguous().numpy() for value in inputs])
        results = [torch.from_numpy(array) for array in arrays]
        return [_with_strides(t, s) for t, s in zip(results, strides, strict=True)]

    return call


def _with_strides(tensor: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """Eager's strides: views between segments depend on them."""
    if tensor.stride() == tuple(strides):
        return tensor
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype).copy_(tensor)


def compile_with_onnx(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    open_model: OpenModel,
    *,
    narrow_integers: bool = False,
) -> Callable[..., Any]:
    """Compile a torch-level graph; ``narrow_integers``: the compiler computes int64 in 32 bits."""
    onnx = import_or_hint("onnx", "onnx")
    import_or_hint("onnx.numpy_helper", "onnx")

    def compile_segment(segment: Segment) -> Callable[..., Sequence[torch.Tensor]]:
        return _on_tensors(segment, open_model(_model_of(segment, onnx)))

    def compile_aten(graph: GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        segments = find_segments(graph, lambda node: _takes(node, narrow_integers))
        return make_boxed_func(run_in_segments(graph, segments, compile_segment))

    return aot_autograd(fw_compiler=compile_aten)(gm, example_inputs)
