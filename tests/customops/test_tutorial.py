"""What torch's tutorial and reference show of custom operators, with ``argand`` in place of ``torch.library``."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

import argand


@argand.custom_op("argand_tutorial::crop", mutates_args=())
def crop(pic: Tensor, box: Sequence[int]) -> Tensor:
    left, top, right, bottom = box
    image = pic.detach().permute(1, 2, 0).numpy()
    return torch.from_numpy(image[top:bottom, left:right].copy()).permute(2, 0, 1)


@crop.register_fake
def _(pic, box):
    left, top, right, bottom = box
    return pic.new_empty(bottom - top, right - left, pic.shape[0]).permute(2, 0, 1)


@argand.custom_op("argand_tutorial::paste", mutates_args=())
def paste(base: Tensor, piece: Tensor, corner: Sequence[int]) -> Tensor:
    result = base.detach().numpy().copy()
    left, top = corner
    result[:, top : top + piece.shape[1], left : left + piece.shape[2]] = piece.detach().numpy()
    return torch.from_numpy(result)


@paste.register_fake
def _(base, piece, corner):
    assert base.dtype == piece.dtype
    return torch.empty_like(base)


def crop_backward(ctx, grad):
    return paste(grad.new_zeros(ctx.shape), grad, ctx.corner), None


def crop_setup(ctx, inputs, output):
    pic, box = inputs
    ctx.corner, ctx.shape = box[:2], pic.shape


crop.register_autograd(crop_backward, setup_context=crop_setup)


def test_crop_in_one_graph_and_its_training():
    image = torch.rand(3, 20, 24)
    compiled = argand.compile(lambda t: crop(t, (2, 3, 10, 9)) * 2, fullgraph=True)
    assert torch.allclose(compiled(image), image[:, 3:9, 2:10] * 2)
    tracked = image.clone().requires_grad_()
    compiled(tracked).sum().backward()
    expected = torch.zeros_like(image)
    expected[:, 3:9, 2:10] = 2
    assert torch.equal(tracked.grad, expected)


@pytest.mark.parametrize("box", [[0, 0, 10, 10], [5, 1, 9, 17]])
def test_opcheck_of_crop(box):
    checks = [
        "schema: mutation",
        "schema: aliasing",
        "fake against real",
        "autograd registration",
        "threads",
    ]
    argand.opcheck(
        crop, (torch.rand(3, 20, 20, requires_grad=True), box), checks=checks, raise_exception=True
    )
    gradients = ["gradients by finite differences"]
    argand.opcheck(
        crop,
        (torch.rand(1, 4, 4, requires_grad=True), [0, 0, 2, 3]),
        checks=gradients,
        raise_exception=True,
    )


@argand.custom_op("argand_tutorial::sin_into", mutates_args={"output"}, device_types="cpu")
def sin_into(input: Tensor, output: Tensor) -> None:
    assert input.device == output.device
    np.sin(input.numpy(), out=output.numpy())


def test_mutable_operator():
    @argand.compile(fullgraph=True)
    def f(x):
        out = torch.empty(3)
        sin_into(x, out)
        return out

    x = torch.randn(3)
    assert torch.allclose(f(x), x.sin())


@argand.custom_op("argand_tutorial::mul", mutates_args=())
def numpy_mul(x: Tensor, *, val: float) -> Tensor:
    return torch.from_numpy(x.detach().numpy() * np.float32(val))


numpy_mul.register_fake(lambda x, *, val: torch.empty_like(x))
numpy_mul.register_autograd(
    lambda ctx, grad: grad * ctx.val,
    setup_context=lambda ctx, inputs, keyword_only_inputs, output: setattr(
        ctx, "val", keyword_only_inputs["val"]
    ),
)


def test_keyword_only_arguments():
    x = torch.randn(3, requires_grad=True)
    for run in (numpy_mul, argand.compile(lambda t, val: numpy_mul(t, val=val), fullgraph=True)):
        (gradient,) = torch.autograd.grad(run(x, val=3.14).sum(), x)
        assert torch.allclose(gradient, torch.full_like(x, 3.14))


@argand.custom_op("argand_tutorial::cube", mutates_args=())
def cube(x: Tensor) -> tuple[Tensor, Tensor]:
    array = x.numpy()
    return torch.from_numpy(array**3), torch.from_numpy(3 * array**2)


def test_batches():
    def batched(info, in_dims, x):
        return cube(x), (in_dims[0], in_dims[0])

    argand.register_vmap("argand_tutorial::cube", batched)
    x = torch.randn(3, 2)
    value, slope = torch.vmap(cube)(x)
    assert torch.allclose(value, x**3) and torch.allclose(slope, 3 * x**2)


@argand.custom_op("argand_tutorial::made", mutates_args=(), device_types="cpu")
def made(device: torch.device) -> Tensor:
    return torch.ones(3)


def test_factory():
    assert torch.equal(made("cpu"), torch.ones(3))


@argand.custom_op("argand_tutorial::linear", mutates_args=())
def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return (x @ weight.t()) + bias


@argand.register_fake("argand_tutorial::linear")
def _(x, weight, bias):
    assert (x.dim(), weight.dim(), bias.dim()) == (2, 2, 1)
    assert x.shape[1] == weight.shape[1] and weight.shape[0] == bias.shape[0]
    return x.new_empty(x.size(0), weight.size(0))


def test_linear_with_any_number_of_rows():
    weight, bias = torch.randn(4, 5), torch.randn(4)
    run = argand.compile(lambda x: linear(x, weight, bias).relu(), dynamic=True, fullgraph=True)
    for rows in (2, 6, 9):
        x = torch.randn(rows, 5)
        assert torch.allclose(run(x), linear(x, weight, bias).relu(), atol=1e-5)


def test_other_devices_by_name():
    @argand.custom_op("argand_tutorial::both", mutates_args=(), device_types="cuda")
    def both(x: Tensor) -> Tensor:
        raise AssertionError("there is no such device here")

    @argand.register_kernel("argand_tutorial::both", "cpu")
    def _(x):
        return x + 1

    argand.register_autocast("argand_tutorial::both", "cpu", torch.bfloat16)
    assert torch.equal(both(torch.zeros(2)), torch.ones(2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert both(torch.zeros(2)).dtype is torch.bfloat16
