"""Operators that write to tensors of lists, where some of these are one memory: each sees what was written before it."""

from __future__ import annotations

import pytest
import torch

import argand

PROGRAMS = {
    "twice": lambda a, b: torch._foreach_neg_([a, a]),
    "crossed": lambda a, b: torch._foreach_add_([a, b], [b, a]),
    "overlapping": lambda a, b: torch._foreach_mul_([a[:2], a[1:]], 2),
    "copied": lambda a, b: torch._foreach_copy_([a[:2], b[:2]], [b[1:], a[1:]]),
    "factors": lambda a, b: torch._foreach_addcmul_([a, b], [b, a], [a, a], 0.5),
    "between": lambda a, b: torch._foreach_lerp_([a, b], [b, a], 0.5),
    "powers": lambda a, b: torch._foreach_pow_([a, a], [2, 3]),
    "maximum": lambda a, b: torch._foreach_maximum_([a, b], [b, a]),
    "zeros": lambda a, b: torch._foreach_zero_([a, a]),
    "apart": lambda a, b: torch._foreach_add_([a], [b]),
}


@pytest.mark.parametrize("backend", ["argand", "aot_eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_lists_with_shared_memory(name: str, backend: str) -> None:
    def program(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        PROGRAMS[name](a, b)
        return a + 1, b * 1

    wanted, found = ([torch.arange(1.0, 4.0), torch.arange(3.0, 6.0)] for _ in range(2))
    one, two = program(*wanted), argand.compile(program, backend=backend)(*found)
    for left, right in zip((*one, *wanted), (*two, *found), strict=True):
        torch.testing.assert_close(left, right)
    assert [t._version for t in wanted] == [t._version for t in found]
