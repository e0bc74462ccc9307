"""backends.bridges.devices: compilers of other devices, as torch's own registry knows them.

Offered where their package and device exist (``backends.registry.NEEDS``); loaded when chosen.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import torch


def _from_torch(name: str, package: str = "") -> Callable[..., Any]:
    def backend(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **keywords: Any) -> Callable[..., Any]:
        if package:
            importlib.import_module(package)  # it adds its backend to torch's registry
        registry = importlib.import_module("torch._dynamo.backends.registry")
        compiled: Callable[..., Any] = registry.lookup_backend(name)(gm, example_inputs, **keywords)
        return compiled

    backend.__name__ = name
    return backend


cudagraphs = _from_torch("cudagraphs")
openxla = _from_torch("openxla", "torch_xla")
hpu_backend = _from_torch("hpu_backend", "habana_frameworks.torch")
