"""backends.bridges.of_peer: torch's own compiler beside ours, for ``argand bench``. Loaded when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def compiled_by_torch(model: Callable[..., Any]) -> Callable[..., Any]:
    """The model under ``torch.compile`` with its defaults."""
    compiled: Callable[..., Any] = torch.compile(model)
    return compiled
