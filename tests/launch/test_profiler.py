"""torch.profiler sees what compiled code does: regions, kernels by their operations, products; and nothing is kept for it."""

import torch
from torch.profiler import ProfilerActivity, profile

import argand

OPTIONS = {"measure": False, "cache": False, "strict": True}


def names_of(run):
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        run()
    return [event.key for event in seen.key_averages()]


def test_regions_kernels_and_products_are_seen():
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.LayerNorm(32), torch.nn.GELU(), torch.nn.Linear(32, 4)
    )
    compiled, x = argand.compile(model, options=OPTIONS), torch.randn(8, 16)
    compiled(x).sum().backward()
    compiled(x).sum().backward()
    names = names_of(lambda: compiled(x).sum().backward())
    assert any(
        name.startswith("argand: Sequential.forward (") and "container.py:" in name
        for name in names
    )
    for product in ("addmm", "mm"):
        assert any(name.startswith(f"argand::{product} (linear.py:") for name in names)
    assert any(name.startswith("argand::kernel") and "erf" in name for name in names)


def test_products_of_batches_and_torchs_own_operators_are_seen():
    compiled = argand.compile(lambda a, b: torch.linalg.inv(a @ b).sin(), options=OPTIONS)
    a = torch.eye(3).expand(2, 3, 3).contiguous()
    compiled(a, a)
    names = names_of(lambda: compiled(a, a))
    assert any(name.startswith("argand::bmm (test_profiler.py:") for name in names)
    assert any("inv" in name and name.startswith("aten::") for name in names)
    assert any("sin" in name and name.startswith("argand::kernel") for name in names)


def test_the_answers_are_the_same_under_a_profiler():
    compiled = argand.compile(lambda x, w: torch.softmax(x @ w, -1).cumsum(0), options=OPTIONS)
    x, w = torch.randn(5, 6), torch.randn(6, 7)
    plain = compiled(x, w)
    with profile(activities=[ProfilerActivity.CPU]):
        assert torch.equal(compiled(x, w), plain)


def test_an_error_ends_its_record():
    compiled = argand.compile(lambda x, i: x[i] + 1, options=OPTIONS)
    x = torch.arange(4.0)
    compiled(x, torch.tensor([1, 2]))

    def bad():
        try:
            compiled(x, torch.tensor([1, 9]))
        except IndexError:
            pass
        compiled(x, torch.tensor([1, 2]))

    assert any(name.startswith("argand::kernel") for name in names_of(bad))
    assert not names_of(lambda: None)
