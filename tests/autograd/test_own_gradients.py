"""Gradients lie in memories of their own."""

from __future__ import annotations

import pytest
import torch

import argand


@pytest.mark.parametrize("backend", ["argand", "aot_eager"])
def test_gradients_are_not_what_is_kept(backend: str) -> None:
    """One that depends on nothing that flows back was given as the tensor that is kept for the next order."""
    compiled = argand.compile(lambda a, b: torch.copysign(a, b), backend=backend)
    for _ in range(3):
        a = torch.ones(3, 4, dtype=torch.float16, requires_grad=True)
        b = torch.ones(4, dtype=torch.bfloat16, requires_grad=True)
        first = torch.autograd.grad(compiled(a, b).double().sum(), (a, b), create_graph=True)
        second = torch.autograd.grad(first[0].double().sum(), (a, b), create_graph=True)
        memories = [t.untyped_storage().data_ptr() for t in (*first, *second)]
        assert len(set(memories)) == 4 and not any(t.any() for t in (first[1], second[1]))
