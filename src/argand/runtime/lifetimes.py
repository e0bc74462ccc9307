"""runtime.lifetimes: what torch keeps for ever, let go with the graph it belongs to.

torch.fx keeps the text of every GraphModule it ever ran, for tracebacks. A compiler makes and drops
many, so the text is forgotten together with the module.
"""

from __future__ import annotations

import linecache
import weakref

import torch
from torch.fx.graph_module import _loader


def forget_text_with(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """When this graph module dies, forget the text of its ``forward``; returns the module."""
    # Each graph module has a class of its own, which knows the name of the text once it ran.
    weakref.finalize(module, _forget, type(module)).atexit = False
    return module


def _forget(kind: type) -> None:
    code = getattr(getattr(kind, "forward", None), "__code__", None)
    name = getattr(code, "co_filename", "")
    if name.startswith("<eval_with_key>"):
        _loader.eval_cache.pop(name, None)
        linecache.cache.pop(name, None)
