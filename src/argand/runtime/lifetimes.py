"""runtime.lifetimes: what torch keeps for ever, let go with the graph it belongs to.

torch.fx keeps the text of every GraphModule it ever ran, for tracebacks. A compiler makes and drops
many, so the text is forgotten together with the module.
"""

from __future__ import annotations

import linecache
import weakref
from typing import Any, ClassVar

import torch
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.graph_module import _loader
from typing_extensions import override

from argand.support.locks import make_lock


class LazyGraph(_LazyGraphModule):
    """A graph module that writes its ``forward`` at the first call, by one thread, and forgets the text when it dies."""

    _writing: ClassVar = make_lock()

    def __init__(self, root: Any, graph: torch.fx.Graph, class_name: str) -> None:
        super().__init__(root, graph, class_name)
        # Each graph module has a class of its own, which knows the name of the text once it ran.
        weakref.finalize(self, _forget, type(self)).atexit = False

    def _lazy_forward(self, *args: Any, **kwargs: Any) -> Any:
        """The first call: not by `__call__`, where hooks for the user's modules would meet ours."""
        self.real_recompile()
        return self.forward(*args, **kwargs)

    @override
    def real_recompile(self) -> None:
        with self._writing:
            super().real_recompile()


def _forget(kind: type) -> None:
    code = getattr(getattr(kind, "forward", None), "__code__", None)
    name = getattr(code, "co_filename", "")
    if name.startswith("<eval_with_key>"):
        _loader.eval_cache.pop(name, None)
        linecache.cache.pop(name, None)
