"""backends.bridges.onnx_readers: ONNX Runtime, OpenVINO and TVM, each as a reader of ONNX models.

One converter serves all three. OpenVINO's and TVM's own importers for torch need torch._dynamo or
torch.export; their ONNX importers do not. Each package is imported when its backend is chosen.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from argand.backends.bridges.onnx_models import RunArrays, compile_with_onnx, import_or_hint
from argand.support.errors import OptionError


def onnxrt(gm: GraphModule, example_inputs: Sequence[Any], **_: Any) -> Callable[..., Any]:
    """Compile with ONNX Runtime where it can, training included."""
    runtime = import_or_hint("onnxruntime", "onnxruntime")

    def open_model(model: Any) -> RunArrays:
        settings = runtime.SessionOptions()
        settings.log_severity_level = 4
        settings.intra_op_num_threads = torch.get_num_threads()
        session = runtime.InferenceSession(
            model.SerializeToString(), settings, providers=["CPUExecutionProvider"]
        )
        names = [value.name for value in model.graph.input]
        return lambda arrays: session.run(None, dict(zip(names, arrays, strict=True)))

    return compile_with_onnx(gm, example_inputs, open_model)


def openvino(
    gm: GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Compile with OpenVINO for the CPU; ``options`` are its properties."""
    core = import_or_hint("openvino", "openvino").Core()
    # Its default may compute in bfloat16, which eager does not.
    properties = {"INFERENCE_PRECISION_HINT": "f32", **(options or {})}

    def open_model(model: Any) -> RunArrays:
        compiled = core.compile_model(
            core.read_model(model.SerializeToString(), b""), "CPU", properties
        )

        def run(arrays: list[Any]) -> list[Any]:
            # A request of its own: two threads may run one compiled model, not one request.
            results = compiled.create_infer_request().infer(arrays)
            return [results[index] for index in range(len(compiled.outputs))]

        return run

    return compile_with_onnx(gm, example_inputs, open_model, narrow_integers=True)


def tvm(
    gm: GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Compile with TVM, untuned; options: ``opt_level`` (3) and ``scheduler`` (None, "default")."""
    chosen = {"opt_level": 3, "scheduler": None, **(options or {})}
    if unknown := set(chosen) - {"opt_level", "scheduler"}:
        raise OptionError(f"backend 'tvm' has no option {sorted(unknown)[0]!r}")
    if chosen["scheduler"] not in (None, "default"):
        raise NotImplementedError(f"scheduler {chosen['scheduler']!r}: tuning is not bridged")
    package = import_or_hint("tvm", "apache-tvm")
    importer = import_or_hint("tvm.relax.frontend.onnx", "apache-tvm")

    def open_model(model: Any) -> RunArrays:
        with package.transform.PassContext(opt_level=chosen["opt_level"]):
            program = package.compile(importer.from_onnx(model), target="llvm")
        machine = package.relax.VirtualMachine(program, package.cpu())
        lock = threading.Lock()  # a virtual machine has one stack
        single = len(model.graph.output) == 1

        def run(arrays: list[Any]) -> list[Any]:
            tensors = [package.runtime.tensor(array) for array in arrays]
            with lock:
                results = machine["main"](*tensors)
            return [result.numpy() for result in ((results,) if single else results)]

        return run

    return compile_with_onnx(gm, example_inputs, open_model)
