"""Attention over short sequences as products of our own, against eager."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

import argand
from argand.native.target import Target
from argand.support import events

FLASH = "aten._scaled_dot_product_flash_attention_for_cpu.default"
OPTIONS = {"strict": True, "cache": False, "measure": False, "verify": True}


@pytest.fixture(params=["as here", "avx2"])
def width(request: Any, monkeypatch: Any) -> None:
    """The machine's vectors, and those of a machine without AVX-512."""
    if request.param == "avx2":
        narrow = Target("haswell", "+avx,+avx2,+f16c,+fma,+sse4.2", 32)
        monkeypatch.setattr("argand.native.build.host_target", lambda: narrow)


def attend(query: Tensor, key: Tensor, value: Tensor, **how: Any) -> Tensor:
    """What is compiled."""
    return scaled_dot_product_attention(query, key, value, **how)


def left_to_torch(given: tuple[Tensor, ...], function: Any = attend, **close: Any) -> bool:
    """Whether torch's kernel is called; values and layout are eager's in any case."""
    compiled = argand.compile(function, options=OPTIONS)
    with events.collect() as seen:
        actual, expected = compiled(*given), function(*given)
    torch.testing.assert_close(
        actual, expected, equal_nan=True, **{"rtol": 1e-5, "atol": 2e-6, **close}
    )
    assert actual.stride() == expected.stride()
    assert seen.total("native.lowered") + seen.total("native.extern") > 0
    return any(FLASH in str(event) for event in seen.events if isinstance(event, events.Count))


def operands(
    queries: int, keys: int, size: int, heads: int = 3, batch: int = 2
) -> tuple[Tensor, Tensor, Tensor]:
    """As models have them: heads taken out of rows of features."""
    torch.manual_seed(0)
    query, key, value = (
        torch.randn(batch, n, heads, size).transpose(1, 2) for n in (queries, keys, keys)
    )
    return query, key, value


@pytest.mark.parametrize(
    "queries,keys,size",
    [
        (16, 32, 32),
        (197, 197, 64),
        (33, 70, 40),
        (17, 255, 36),
        (128, 33, 80),
        (64, 64, 24),
        (20, 16, 16),
    ],
)
def test_values_and_layout(queries: int, keys: int, size: int, width: None) -> None:
    """Any sizes, in eager's layout, without torch's kernel."""
    assert not left_to_torch(operands(queries, keys, size))


def test_slices_of_one_projection() -> None:
    """Query, key and value are parts of one tensor; the last is turned around."""
    torch.manual_seed(0)

    def project(x: Tensor) -> Tensor:
        query, key, value = x.permute(2, 0, 3, 1, 4).unbind(0)
        return scaled_dot_product_attention(query, key, value.flip(2), scale=0.3)

    assert not left_to_torch((torch.randn(2, 49, 3, 4, 32),), project)


@pytest.mark.parametrize(
    "place,number", [(0, math.nan), (1, math.nan), (2, math.nan), (2, math.inf), (0, math.inf)]
)
def test_numbers_that_are_none(place: int, number: float) -> None:
    """NaN and infinities reach the results they reach in eager."""
    given = operands(20, 40, 32)
    given[place][0, 1, 5, 3] = number
    assert not left_to_torch(given)


def test_large_scores_do_not_overflow() -> None:
    """The largest score of a row is taken off first."""
    query, key, value = operands(20, 40, 32)
    assert not left_to_torch((query * 100, key * 100, value), rtol=1e-3, atol=1e-3)


def test_gradients() -> None:
    """The backward pass reads the sums that the forward pass leaves."""
    given = [x.detach().requires_grad_() for x in operands(40, 50, 32)]
    compiled = argand.compile(attend, options=OPTIONS)
    weight = torch.randn(2, 3, 40, 32)
    actual = torch.autograd.grad((compiled(*given) * weight).sum(), given)
    expected = torch.autograd.grad((attend(*given) * weight).sum(), given)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("how", [{"is_causal": True}, {"attn_mask": torch.rand(20, 40) > 0.3}])
def test_masks_are_left_to_torch(how: dict[str, Any]) -> None:
    """What the products do not know."""
    assert left_to_torch(operands(20, 40, 32), lambda *given: attend(*given, **how))


@pytest.mark.parametrize("queries,keys,size", [(8, 64, 64), (2048, 2048, 32), (64, 15, 64)])
def test_few_and_many_are_left_to_torch(queries: int, keys: int, size: int) -> None:
    """Where scores do not fit into caches, or vectors would be empty."""
    assert left_to_torch(operands(queries, keys, size, heads=1, batch=1))


def test_products_too_small_for_our_code() -> None:
    """BLAS reads and writes the same layouts."""
    assert not left_to_torch(operands(16, 32, 32, heads=2, batch=1))
    assert not left_to_torch(operands(17, 33, 32, heads=1, batch=3))


def one_query(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """A step of decoding: heads share keys, as transformers' `repeat_kv` writes it."""
    batch, heads, keys, size = key.shape
    shape = (batch, heads, query.shape[1] // heads, keys, size)
    key, value = (
        x[:, :, None].expand(shape).reshape(batch, query.shape[1], keys, size) for x in (key, value)
    )
    return scaled_dot_product_attention(query * 1.5, key, value, attn_mask=mask) + query


@pytest.mark.parametrize("heads", [2, 8])
def test_one_query_over_a_cache(heads: int) -> None:
    """No kernel of torch's; rows without a key are zeros, those whose mask is finite are means."""
    query = torch.randn(3, 8, 1, 64)
    key, value = torch.randn(3, heads, 70, 64), torch.randn(3, heads, 70, 64)
    mask = torch.zeros(3, 1, 1, 70)
    mask[0, :, :, 9:] = -math.inf
    mask[1] = -math.inf
    mask[2] = torch.finfo(torch.float32).min
    with torch.no_grad():
        assert not left_to_torch((query, key, value, mask), one_query)
        value[0, 0, 3, 5], key[0, 0, 2, 1] = math.nan, math.inf
        left_to_torch((query, key, value, mask), one_query)
