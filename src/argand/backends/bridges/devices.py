"""backends.bridges.devices: compilers of other devices, as torch's own registry knows them.

Offered where their package and device exist (``backends.registry.NEEDS``); loaded when chosen.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from typing import Any

import torch


def _compile(name: str, package: str, gm: torch.fx.GraphModule, inputs: Sequence[Any], **keywords: Any) -> Any:
    if package:
        importlib.import_module(package)  # it adds its backend to torch's registry
    registry = importlib.import_module("torch._dynamo.backends.registry")
    return registry.lookup_backend(name)(gm, inputs, **keywords)


cudagraphs = functools.partial(_compile, "cudagraphs", "")
openxla = functools.partial(_compile, "openxla", "torch_xla")
hpu_backend = functools.partial(_compile, "hpu_backend", "habana_frameworks.torch")
