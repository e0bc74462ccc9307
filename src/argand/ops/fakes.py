"""ops.fakes: run torch code on tensors without data (design D2).

A fake is a plain CPU tensor from ``torch.empty_strided``: untouched virtual memory. Under ``FakeMode``
no kernel runs: views are made for real (C++ keeps aliasing and metadata right), every other op
answers from our type rules, and only an op without a row asks torch's meta kernels.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


def fake_of(real: torch.Tensor) -> torch.Tensor:
    """A fake with the metadata of a real tensor, ``requires_grad`` included."""
    fake = torch.empty_strided(real.size(), real.stride(), dtype=real.dtype, device="cpu")
    return fake.requires_grad_(real.requires_grad)


def _to_meta(value: Any) -> Any:
    return value.to("meta") if isinstance(value, torch.Tensor) else value


class FakeMode(TorchDispatchMode):
    """Inside it, torch functions on fakes give fakes."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True would import torch._dynamo at the first call (design D2)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Answer one aten op."""
        kwargs = kwargs or {}
        if func.is_view or func is torch.ops.aten.detach.default:
            return func(*args, **kwargs)
        raise NotImplementedError(func)
