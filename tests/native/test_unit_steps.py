"""Strides of sizes of one: torch's kernels take them over from their operands, so they must be eager's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

import argand
from argand.native.ir.strides import with_unit_steps


def _attention(x: torch.Tensor) -> torch.Tensor:
    heads = x[:, None]
    return functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)


def _inner(x: torch.Tensor) -> torch.Tensor:
    heads = x[:, :, None]
    return functional.scaled_dot_product_attention(heads, heads, heads)


def _cumulative(x: torch.Tensor) -> torch.Tensor:
    return torch.cummax(x[:, None], dim=-1).values


def _slice(x: torch.Tensor) -> torch.Tensor:
    return torch.cummax(x[:, 1:2], dim=-1).values


@pytest.mark.parametrize("function", [_attention, _inner, _cumulative, _slice])
@pytest.mark.parametrize("gradients", [False, True])
def test_results_of_kernels_have_eagers_steps(
    function: Callable[[torch.Tensor], torch.Tensor], gradients: bool
) -> None:
    x = torch.randn(3, 4, 5, requires_grad=gradients)
    expected, result = function(x), argand.compile(function)(x)
    assert result.stride() == expected.stride()
    torch.testing.assert_close(result, expected)


def test_steps_that_are_known_stay() -> None:
    assert with_unit_steps((3, 1, 4, 5), (20, 0, 5, 1)) == (20, 20, 5, 1)
    assert with_unit_steps((2, 1), (1, 0)) == (1, 1)
    assert with_unit_steps((1, 4), (7, 1)) == (7, 1)
    assert with_unit_steps((4, 5), (0, 1)) == (0, 1)
