"""Half types are rounded where eager's rounding is seen: before jumps, poles and, in float16, overflow."""

import pytest
import torch
import torch.nn.functional as F

import argand

PROGRAMS = {
    "floor_divide": lambda a, b: torch.floor_divide(a + 1, b * a),
    "floor_divide_by_a_number": lambda a, b: torch.floor_divide(a * b, 0.3),
    "truncated_quotient": lambda a, b: torch.div(a * b, b + a, rounding_mode="trunc"),
    "remainder": lambda a, b: torch.remainder(a * b * a, b + 1),
    "floor": lambda a, b: (a * b + a * 2).floor(),
    "comparison": lambda a, b: a * b + a > b * 3 - a,
    "integers": lambda a, b: (a * b * 3.3).int(),
    "integers_of_float": lambda a, b: ((a * b * 3.3).float() * 7).int(),
    "truth": lambda a, b: torch.logical_or((a * b).sin() * 1e-6, b.sin() * 1e-7),
    "argmax": lambda a, b: (a.sin() * b.cos()).view(40, 100).argmax(1),
    "sort": lambda a, b: (a.sin() * b.cos()).sort(stable=True)[1],
    "pole": lambda a, b: torch.atanh(torch.cos(a / 100)).isinf(),
    "scaled_sum": lambda a, b: torch.add(a, b, alpha=0.3).floor(),
    "number_of_another_type": lambda a, b: (a * torch.tensor(0.3)).floor(),
    "from_a_number": lambda a, b: (2.3 - a).floor(),
    "cube": lambda a, b: ((a / 10) ** 3).floor(),
    "inverse_root": lambda a, b: (a.abs() * b.abs()).rsqrt().floor(),
    "squared_error": lambda a, b: F.mse_loss(a, b, reduction="none").floor(),
    "silu": lambda a, b: F.silu(a * b).floor(),
}


def operands(dtype):
    random = torch.Generator().manual_seed(0)
    a, b = (torch.randn(4000, generator=random) * scale for scale in (20, 3))
    a[:3], b[3:5] = 0, 0
    return a.to(dtype), b.to(dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_jumps_see_the_rounded_value(name, dtype):
    eager, found = (
        make(PROGRAMS[name])(*operands(dtype)) for make in (lambda f: f, argand.compile)
    )
    assert int(((eager != found) & ~(eager.isnan() & found.isnan())).sum()) == 0


def test_float16_overflows_in_between():
    x = torch.tensor([300.0, -300.0, 2.0], dtype=torch.float16)
    for function in (
        lambda x: x * x / 1000,
        lambda x: F.soft_margin_loss(x / 10, -x.sign(), reduction="none"),
    ):
        assert torch.equal(argand.compile(function)(x), function(x))
    gradients = []
    for function in (torch.reciprocal, argand.compile(torch.reciprocal)):
        y = torch.tensor([1e-6, 2.0], dtype=torch.float16, requires_grad=True)
        gradients += torch.autograd.grad(function(y)[1:].sum(), y)
    assert torch.equal(*(g.nan_to_num(7.0) for g in gradients))


def test_kernels_that_compute_in_float_do_not_overflow():
    x = torch.tensor([13.0, -3.0, 12.0], dtype=torch.float16)
    assert torch.equal(argand.compile(F.softplus)(x), F.softplus(x))
