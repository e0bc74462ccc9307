"""benchmarks.peers.export: a model as a file that other engines read. In: a name, a folder. Out: ONNX, inputs, result.

Runs in a process of its own: exporters change torch's state and import much.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

from benchmarks.peers.models import build

OPSET = 18


def export(name: str, folder: Path) -> None:
    """Write ``model.onnx``, ``inputs.npz`` and ``expected.npy``."""
    model, inputs = build(name)
    folder.mkdir(parents=True, exist_ok=True)
    with torch.no_grad():
        expected = model(*inputs)
        names = [f"input{k}" for k in range(len(inputs))]
        arguments = {"input_names": names, "opset_version": OPSET}
        path = str(folder / "model.onnx")
        try:
            torch.onnx.export(model, inputs, path, dynamo=False, **arguments)
        except Exception as error:  # what the tracing exporter cannot do, the other one may
            print(
                f"{name}: {type(error).__name__}: {str(error)[:200]}; by torch.export then",
                file=sys.stderr,
            )
            torch.onnx.export(model, inputs, path, dynamo=True, **arguments)
    np.savez(folder / "inputs.npz", **{n: x.numpy() for n, x in zip(names, inputs, strict=True)})
    np.save(folder / "expected.npy", expected.numpy())


if __name__ == "__main__":
    export(sys.argv[1], Path(sys.argv[2]))
