"""runtime.tensors: teaches the C extension where torch keeps a tensor's metadata.

``prepare()`` shows it sample tensors next to what Python says about them; it compares every field
it wants to read directly. If one disagrees (another torch), checks go through ``slow_match``.
"""

from __future__ import annotations

import functools

import torch

from argand.runtime import _native
from argand.runtime.guards import TensorSpec, tensor_spec


def slow_match(tensor: torch.Tensor, spec: TensorSpec) -> bool:
    """Whether a tensor has the metadata of ``spec``, asked through Python, but not through the tensor's class."""
    with torch._C.DisableTorchFunctionSubclass():
        return _matches(tensor, spec)


def _matches(tensor: torch.Tensor, spec: TensorSpec) -> bool:
    now = tensor_spec(tensor)
    if len(now.sizes) != len(spec.sizes) or (now.strides is None) != (spec.strides is None):
        return False
    pairs = [*zip(spec.sizes, now.sizes, strict=True)]
    real = tensor.stride() if now.strides is not None else ()
    pairs += [(spec.stride(i, tensor), found) for i, found in enumerate(real)]
    return (
        all(wanted is None or wanted == found for wanted, found in pairs)
        and now.dtype == spec.dtype
        and now.device == spec.device
        and now.requires_grad == spec.requires_grad
        and now.keys == spec.keys
    )


def _samples() -> list[torch.Tensor]:
    """Tensors that differ in each field the C code reads."""
    empty = functools.partial(torch.empty, device="cpu")
    with torch.inference_mode(False), torch.enable_grad():
        leaf = empty(3, 5, dtype=torch.float32, requires_grad=True)
        frozen = empty(7, dtype=torch.float64, requires_grad=True).requires_grad_(False)
        plain = empty((), dtype=torch.int64)
        many = empty(1, 2, 3, 4, 5, 6, 7, dtype=torch.uint8)
        five = empty(2, 3, 4, 5, 6, dtype=torch.bool).transpose(0, 4)
        result = leaf.neg()
        view = empty(4, 6, dtype=torch.bfloat16).t()
        parameter = torch.nn.Parameter(empty(2, 2, dtype=torch.float32))
        conjugate = empty(3, dtype=torch.complex64).conj()
        with torch.inference_mode():
            inference = empty(11)
    return [leaf, frozen, plain, many, five, result, view, parameter, conjugate, inference]


def _facts(tensor: torch.Tensor) -> tuple[object, ...]:
    return (
        tensor,
        tensor._cdata,
        tuple(tensor.shape),
        tensor.stride(),
        torch._C._dispatch_keys(tensor).raw_repr(),
        tensor.requires_grad,
        tensor._is_view(),
    )


@functools.cache
def prepare(*, fast: bool = True) -> bool:
    """Calibrate the extension, once per process; whether it reads metadata directly."""
    samples = _samples() if fast else []
    agreed = _native.calibrate(torch.Tensor, slow_match, tuple(_facts(s) for s in samples))
    headers = {_native.tensor_header(s): (s.dtype, s.device) for s in samples}
    if agreed and len(headers) != len({(s.dtype, s.device) for s in samples}):
        return _native.calibrate(torch.Tensor, slow_match, ())
    return agreed


@functools.cache
def header_of(dtype: torch.dtype, device: torch.device) -> int:
    """How torch stores this dtype and device in a tensor."""
    with torch.inference_mode(False):
        return _native.tensor_header(torch.empty(0, dtype=dtype, device=device))
