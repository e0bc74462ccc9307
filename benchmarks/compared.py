"""benchmarks.compared: any model of the zoo for the command line, by its name.

``argand compare benchmarks/compared.py:tv:resnet18 --backends argand,openvino,onnxrt,inductor``
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.zoo import load_zoo


class Called(nn.Module):
    """A model with its keyword arguments."""

    def __init__(self, model: nn.Module, keywords: dict[str, Any]) -> None:
        super().__init__()
        self.model, self.keywords = model, keywords

    def forward(self, *args: Any) -> Any:
        """Run the model."""
        return self.model(*args, **self.keywords)


def make(name: str) -> tuple[nn.Module, tuple[Any, ...]]:
    """(model, inputs) of a zoo model, for inference."""
    torch.manual_seed(0)
    model, args, keywords = load_zoo().build(name)
    return Called(model.eval(), keywords), tuple(args)


def __getattr__(name: str) -> Callable[[], Any]:
    """The factory of a model."""
    if name.startswith("__"):
        raise AttributeError(name)
    return functools.partial(make, name)
