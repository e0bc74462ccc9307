"""Operators on infinities and NaN in types that few use."""

from __future__ import annotations

import pytest
import torch

import argand


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("given", [(), (1.0, 2.0, -3.0)], ids=["limits", "numbers"])
def test_nan_to_num_of_complex_numbers(dtype: torch.dtype, given: tuple[float, ...]) -> None:
    """It gave them back as they were."""
    inf, nan = float("inf"), float("nan")
    odd = [complex(-inf, 1), complex(1, nan), complex(inf, -inf), complex(nan, 2)]
    x = torch.tensor(odd, dtype=dtype)
    found = argand.compile(lambda t: torch.nan_to_num(t, *given))(x)
    assert torch.equal(torch.nan_to_num(x, *given), found)
