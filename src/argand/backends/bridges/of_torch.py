"""backends.bridges.of_torch: torch's own code generator, and compilers of other devices that its registry knows.

Offered where their package and device exist (``backends.registry.NEEDS``); loaded when chosen.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import torch


def _compile(
    name: str, package: str, gm: torch.fx.GraphModule, inputs: Sequence[Any], **keywords: Any
) -> Any:
    if package:
        importlib.import_module(package)  # it adds its backend to torch's registry
    registry = importlib.import_module("torch._dynamo.backends.registry")
    return registry.lookup_backend(name)(gm, inputs, **keywords)


def inductor(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **keywords: Any
) -> Callable[..., Any]:
    """Compile with torch's inductor; ``options`` are its config patches."""
    compile_fx = importlib.import_module("torch._inductor.compile_fx").compile_fx
    patches = keywords.get("options") or None
    compiled: Callable[..., Any] = compile_fx(gm, list(example_inputs), config_patches=patches)
    return compiled


cudagraphs = functools.partial(_compile, "cudagraphs", "")
openxla = functools.partial(_compile, "openxla", "torch_xla")
hpu_backend = functools.partial(_compile, "hpu_backend", "habana_frameworks.torch")
