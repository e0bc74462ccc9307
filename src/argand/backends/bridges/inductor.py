"""backends.bridges.inductor: torch's own code generator on our graphs, imported when chosen."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import torch


def inductor(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **keywords: Any) -> Callable[..., Any]:
    """Compile with torch's inductor; ``options`` are its config patches."""
    compile_fx = importlib.import_module("torch._inductor.compile_fx").compile_fx
    patches = keywords.get("options") or None
    compiled: Callable[..., Any] = compile_fx(gm, list(example_inputs), config_patches=patches)
    return compiled
