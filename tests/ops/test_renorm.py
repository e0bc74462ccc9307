"""The op that CONTRIBUTING.md adds step by step, through the whole compiler."""

import pytest
import torch

import argand


@pytest.mark.parametrize(
    "kind", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64]
)
@pytest.mark.parametrize(("p", "dim"), [(1, 0), (2, -1), (3.0, 1), (float("inf"), 0)])
def test_renorm_is_eagers(kind, p, dim):
    x = torch.randn(2, 3, 4).to(kind)

    def renorm(x):
        return torch.renorm(x, p, dim, 1.5)

    actual = argand.compile(renorm, fullgraph=True, options={"cache": False})(x)
    torch.testing.assert_close(actual, renorm(x))
    assert actual.stride() == renorm(x).stride()


def test_gradients_of_renorm():
    x = torch.randn(3, 4, requires_grad=True)

    def renorm(x):
        return torch.renorm(x, 2, 0, 0.5).sin().sum()

    (expected,) = torch.autograd.grad(renorm(x), x)
    (actual,) = torch.autograd.grad(argand.compile(renorm, options={"cache": False})(x), x)
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("args", [(-1, 0, 1.0), (2, 5, 1.0), (2, 0, -1.0)])
def test_what_eager_refuses_is_refused(args):
    with pytest.raises((RuntimeError, IndexError)) as expected:
        torch.renorm(torch.ones(3, 4), *args)
    with pytest.raises(type(expected.value)) as actual:
        argand.compile(lambda x: torch.renorm(x, *args), options={"cache": False})(torch.ones(3, 4))
    assert str(actual.value) == str(expected.value)
