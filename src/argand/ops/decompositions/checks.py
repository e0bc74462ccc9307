"""ops.decompositions.checks: what eager's kernels check of values, kept by what an op is taken apart into."""

from __future__ import annotations

import torch
from torch import Tensor


def require(condition: Tensor, text: str) -> None:
    """Raise a RuntimeError of this text when the graph runs and the condition does not hold."""
    torch.ops.aten._assert_async.msg(condition, text)
