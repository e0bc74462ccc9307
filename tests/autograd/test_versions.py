"""Versions of tensors that are written through lists, as eager's kernels count them."""

import pytest
import torch

import argand

_UNARY = "neg abs sqrt exp sigmoid reciprocal zero trunc"
_WRITES = {
    **{
        name: lambda a, b, name=name: getattr(torch, f"_foreach_{name}_")([a, b])
        for name in _UNARY.split()
    },
    "add": lambda a, b: torch._foreach_add_([a, b], [b, a], alpha=0.5),
    "add of a number": lambda a, b: torch._foreach_add_([a, b], 1.5),
    "mul of numbers": lambda a, b: torch._foreach_mul_([a, b], [2.0, 3.0]),
    "mul of a tensor": lambda a, b: torch._foreach_mul_([a, b], torch.tensor(2.0)),
    "clamp_min": lambda a, b: torch._foreach_clamp_min_([a, b], 0),
    "maximum": lambda a, b: torch._foreach_maximum_([a], [b]),
    "lerp": lambda a, b: torch._foreach_lerp_([a], [b], 0.25),
    "pow": lambda a, b: torch._foreach_pow_([a, b], 2),
    "addcmul": lambda a, b: torch._foreach_addcmul_([a], [b], [b], 0.5),
    "addcdiv": lambda a, b: torch._foreach_addcdiv_([a], [b], [b], [0.5]),
    "copy": lambda a, b: torch._foreach_copy_([a], [b]),
    "one tensor twice": lambda a, b: torch._foreach_neg_([a, a, b]),
    "a view": lambda a, b: torch._foreach_neg_([a[1:], b]),
}


@pytest.mark.parametrize("backend", ["argand", "aot_eager"])
@pytest.mark.parametrize("name", _WRITES)
def test_writes_to_lists_count(name, backend):
    def write(a, b):
        _WRITES[name](a, b)
        return a + b

    def versions(function):
        a, b = torch.rand(3) + 0.5, torch.rand(3) + 0.5
        for _ in range(2):
            function(a, b)
        return a._version, b._version

    argand.reset()
    assert versions(argand.compile(write, backend=backend)) == versions(write)
