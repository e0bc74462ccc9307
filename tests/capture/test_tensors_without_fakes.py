"""Tensors that have no fake (sparse, quantized, nested, on another device): what a frame asks of them is guarded, or a break."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import argand

DENSE = torch.tensor([[0.0, 2.0], [3.0, 0.0]])
pytestmark = pytest.mark.filterwarnings("ignore")


def tensors() -> list[torch.Tensor]:
    """One of each kind, and some that differ in one fact alone."""
    with_grad = DENSE.to_sparse()
    with_grad.grad = DENSE.to_sparse()
    return [
        DENSE,
        torch.ones(4, 2),
        DENSE.to_sparse(),
        DENSE.to_sparse(1),
        DENSE.to_sparse_csr(),
        DENSE.double().to_sparse(),
        DENSE.to(torch.complex64).to_sparse(),
        torch.ones(3, 2).to_sparse(),
        torch.ones(3).to_sparse(),
        torch.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (2, 2)),
        torch.sparse_coo_tensor([[0], [1]], [1.0], (2, 2)),
        DENSE.to_sparse().requires_grad_(),
        DENSE.to_sparse().requires_grad_() * 2,
        with_grad,
        torch.quantize_per_tensor(DENSE, 0.5, 0, torch.qint8),
        torch.quantize_per_tensor(DENSE, 0.25, 0, torch.qint8),
        DENSE.to_mkldnn(),
        torch.nested.nested_tensor([DENSE]),
        torch.ones(4, 2, device="meta"),
    ]


QUESTIONS: dict[str, Callable[[Any], Any]] = {
    "layout": lambda s: s.layout is torch.sparse_coo,
    "is_sparse": lambda s: s.is_sparse,
    "dtype": lambda s: s.dtype is torch.float32,
    "shape": lambda s: s.shape[0],
    "size": lambda s: s.size(0),
    "dim": lambda s: s.dim(),
    "ndim": lambda s: s.ndim,
    "numel": lambda s: s.numel(),
    "len": len,
    "stored": lambda s: s._nnz() if s.is_sparse else 0,
    "coalesced": lambda s: s.is_sparse and s.is_coalesced(),
    "requires_grad": lambda s: s.requires_grad,
    "is_quantized": lambda s: s.is_quantized,
    "scale": lambda s: s.q_scale() if s.is_quantized else 2.0,
    "is_complex": torch.is_complex,
    "is_floating_point": lambda s: s.is_floating_point(),
    "grad": lambda s: s.grad is None,
    "is_leaf": lambda s: s.is_leaf,
    "device": lambda s: s.device.type == "cpu",
    "is_mkldnn": lambda s: s.is_mkldnn,
    "is_nested": lambda s: s.is_nested,
    "is_contiguous": lambda s: s.is_contiguous(),
    "names": lambda s: len(s.names),
    "itemsize": lambda s: s.itemsize,
    "hasattr": lambda s: hasattr(s, "note"),
    "isinstance": lambda s: isinstance(s, torch.Tensor),
    "several": lambda s: len({str(s.dtype), str(s.layout), s.device.type}),
}


def _tried(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args).tolist()
    except Exception as error:
        return type(error).__name__


@pytest.mark.parametrize("name", QUESTIONS)
def test_no_answer_is_stale(name: str) -> None:
    question = QUESTIONS[name]

    def program(s: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return x * question(s)

    compiled = argand.compile(program, backend="eager")
    given = tensors()
    order = [k for k in range(len(given)) for _ in range(2)]
    random.Random(0).shuffle(order)
    for k in order:
        wanted = _tried(program, given[k], torch.ones(2))
        assert _tried(compiled, given[k], torch.ones(2)) == wanted, (name, k)
