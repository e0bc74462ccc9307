"""autograd.zero_tensors: torch's zeros without memory, which some derivatives are (that of ``sgn``, of ``round``).

In eager a product with one is such a zero again, whatever the other factor is: zero times NaN or infinity is zero. In
graphs they are ``aten.zeros``; here is what makes products of them zeros too.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import torch

from argand.ops.fakes import infer

_aten: Final = torch.ops.aten
# the places of factors: one zero of them makes the result zero
_FACTORS: Final = {
    _aten.mul.Tensor: 2,
    _aten.mul.Scalar: 1,
    _aten.div.Tensor: 1,
    _aten.linalg_cross.default: 2,
}


class ZeroRecorder(Protocol):
    """What a recorder does for this module."""

    zeros: set[int]  # storages of such zeros
    cut: bool  # whether some history is not in the graph

    def record(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a pure call."""


def make(recorder: ZeroRecorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``_efficientzerotensor``: a tensor with memory, for kernels read it, that is known to be zero."""
    made: torch.Tensor = recorder.record(_aten.zeros.default, args, kwargs)
    recorder.zeros.add(made.untyped_storage()._cdata)
    recorder.cut = True  # they have histories in eager, which graphs do not tell
    return made


def product(
    recorder: ZeroRecorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """The zeros that a product with zeros is; NotImplemented for other calls."""
    factors = args[: _FACTORS.get(func, 0)]
    if not any(
        isinstance(x, torch.Tensor) and x.untyped_storage()._cdata in recorder.zeros
        for x in factors
    ):
        return NotImplemented
    like = infer(func, args, kwargs)
    return make(recorder, func, (list(like.shape),), {"dtype": like.dtype, "device": like.device})
