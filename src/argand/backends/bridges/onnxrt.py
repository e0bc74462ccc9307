"""backends.bridges.onnxrt: ONNX Runtime runs what it can of each graph, torch runs the rest.

Works on aten graphs after ahead-of-time autograd, so training works too. The packages ``onnx`` and
``onnxruntime`` are imported when the backend is chosen.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch.fx import GraphModule, Node

from argand.backends.aot import aot_autograd, make_boxed_func
from argand.backends.bridges.onnx_ops import ROWS, Declined, Writer
from argand.backends.segments import Segment, find_segments, run_in_segments
from argand.support.errors import InvalidBackend

OPSET: Final = 20  # the first with Gelu
IR_VERSION: Final = 10


def import_or_hint(module: str, package: str) -> Any:
    """A module, or the error that says what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InvalidBackend(
            f"this backend needs the package {package!r}: {error}", hint=f"pip install {package}"
        ) from error


def _takes(node: Node) -> bool:
    value = node.meta.get("val")
    if node.target not in ROWS or not isinstance(value, torch.Tensor):
        return False
    tensors = [value, *(source.meta.get("val") for source in node.all_input_nodes)]
    return all(isinstance(t, torch.Tensor) and t.dtype in _DTYPES for t in tensors)


_DTYPES: Final = frozenset({torch.float32, torch.int64, torch.int32, torch.bool})


def _compile_segment(segment: Segment, onnx: Any, runtime: Any) -> Callable[..., Sequence[Any]]:
    writer = Writer(onnx)
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
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
    settings = runtime.SessionOptions()
    settings.log_severity_level = 4
    settings.intra_op_num_threads = torch.get_num_threads()
    session = runtime.InferenceSession(
        model.SerializeToString(), settings, providers=["CPUExecutionProvider"]
    )
    names = [node.name for node in segment.inputs]
    strides = [node.meta["val"].stride() for node in segment.outputs]

    def run(*inputs: torch.Tensor) -> list[torch.Tensor]:
        feeds = {
            name: value.detach().contiguous().numpy()
            for name, value in zip(names, inputs, strict=True)
        }
        results = [torch.from_numpy(array) for array in session.run(None, feeds)]
        return [_with_strides(t, s) for t, s in zip(results, strides, strict=True)]

    return run


def _with_strides(tensor: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """Eager's strides: views between segments depend on them."""
    if tensor.stride() == tuple(strides):
        return tensor
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype).copy_(tensor)


def onnxrt(gm: GraphModule, example_inputs: Sequence[Any], **_: Any) -> Callable[..., Any]:
    """Compile a torch-level graph with ONNX Runtime where it can, training included."""
    onnx = import_or_hint("onnx", "onnx")
    import_or_hint("onnx.numpy_helper", "onnx")
    runtime = import_or_hint("onnxruntime", "onnxruntime")

    def compile_aten(graph: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        segments = find_segments(graph, _takes)
        return make_boxed_func(
            run_in_segments(graph, segments, lambda s: _compile_segment(s, onnx, runtime))
        )

    return aot_autograd(fw_compiler=compile_aten)(gm, example_inputs)
