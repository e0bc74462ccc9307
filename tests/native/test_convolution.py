"""Packed convolutions of inference graphs: right after every way to change a weight."""

import pytest
import torch
from torch import nn

import argand
from argand.runtime import _native
from argand.runtime.convolution import PATIENCE, PackedConvolution
from argand.support import events


class Net(nn.Module):
    def __init__(self, groups=1):
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.pool = nn.MaxPool2d(2)
        self.second = nn.Conv2d(16, 16, 3, stride=2, padding=1, groups=groups, bias=False)

    def forward(self, x):
        y = self.pool(torch.relu(self.norm(self.first(x))))
        z = self.second(y)
        return z, torch.relu(z + 1).flatten(1), z.mean((2, 3))


def compiled(model):
    return argand.compile(
        model, options={"strict": True, "cache": False, "measure": False, "verify": True}
    )


def same(actual, expected):
    for a, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, e, rtol=1e-4, atol=1e-5, equal_nan=True)
        assert a.stride() == e.stride()


@pytest.mark.parametrize("groups", [1, 2])
def test_results_strides_and_nan_are_eagers(groups):
    torch.manual_seed(0)
    model = Net(groups).eval()
    x = torch.randn(2, 3, 96, 96)
    x[0, 0, 5, 5] = torch.nan
    with torch.no_grad(), events.collect() as seen:
        same(compiled(model)(x), model(x))
    assert seen.total("native.convolution") == 2


CHANGES = {
    "in place": lambda w: w.mul_(1.5),
    "data": lambda w: w.data.neg_(),
    "new data": lambda w: setattr(w, "data", torch.randn_like(w)),
    "numpy": lambda w: w.detach().numpy().__setitem__((0, 0, 0, 0), 7.0),
    "one bit": lambda w: w.data.view(torch.int32)[3, 1, 0, 0].bitwise_xor_(1 << 22),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_changed_weight_is_never_missed(change):
    torch.manual_seed(0)
    model = Net().eval()
    x = torch.randn(2, 3, 96, 96)
    run = compiled(model)
    with torch.no_grad():
        run(x)
        run(x)  # packs
        for _ in range(PATIENCE + 3):
            change(model.first.weight)
            same(run(x), model(x))
            same(run(x), model(x))


class Block(nn.Module):
    """Three convolutions; what follows the third is part of the call."""

    def __init__(self, activation, norm=True, residual=True):
        super().__init__()
        self.first = nn.Conv2d(8, 16, 1, bias=not norm)
        self.second = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.third = nn.Conv2d(16, 8, 1, bias=False)
        self.norms = nn.ModuleList(
            nn.BatchNorm2d(n) if norm else nn.Identity() for n in (16, 16, 8)
        )
        self.activation, self.residual = activation, residual
        for norm in self.norms:
            if isinstance(norm, nn.BatchNorm2d):
                for vector in (norm.weight, norm.bias, norm.running_mean):
                    nn.init.normal_(vector)
                nn.init.uniform_(norm.running_var, 0.5, 2)

    def forward(self, x):
        y = self.activation(self.norms[0](self.first(x)))
        y = self.activation(self.norms[1](self.second(y)))
        y = self.norms[2](self.third(y))
        return x + y if self.residual else y


class Tower(nn.Sequential):
    def forward(self, x):
        return (super().forward(x).mean((2, 3)),)


def tower(*given):
    torch.manual_seed(0)
    blocks = (Block(*given), Block(*given), nn.Conv2d(8, 16, 1))
    return Tower(*blocks).eval(), torch.randn(2, 8, 64, 64)


ACTIVATIONS = (torch.relu, nn.functional.relu6, nn.functional.silu, nn.functional.gelu)


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS, ids=lambda f: f.__name__)
def test_norm_and_residual_are_part_of_the_call(activation, norm, residual):
    model, x = tower(activation, norm, residual)
    x[0, 0, 5, 5], x[0, 1, 9, 9], x[0, 1, 9, 30] = torch.nan, torch.inf, -torch.inf
    run = compiled(model)
    with torch.no_grad(), events.collect() as seen:
        for _ in range(3):  # plain, packed, packed before
            same(run(x), model(x))
    assert seen.total("native.convolution") == 7 and seen.total("native.epilogue") == (
        6 if norm else 0
    )


VECTORS = ("weight", "bias", "running_mean", "running_var")


@pytest.mark.parametrize("name", VECTORS)
@pytest.mark.parametrize("how", ["in place", "data", "numpy"])
def test_a_changed_norm_is_never_missed(name, how):
    model, x = tower(nn.functional.silu)
    run = compiled(model)
    vector = getattr(model[0].norms[2], name)
    with torch.no_grad():
        same(run(x), model(x))
        same(run(x), model(x))
        for _ in range(2):
            {
                "in place": lambda w: w.mul_(1.5),
                "data": lambda w: w.data.add_(0.5),
                "numpy": double_first,
            }[how](vector)
            same(run(x), model(x))
            same(run(x), model(x))


def double_first(w):
    w.detach().numpy()[0] *= 2


def test_open_sizes_have_epilogues_too():
    model, _ = tower(nn.functional.silu)
    run = argand.compile(model, dynamic=True, options={"strict": True, "cache": False})
    with torch.no_grad(), events.collect() as seen:
        for size in (64, 96, 80, 80, 96, 96):
            x = torch.randn(2, 8, size, size)
            same(run(x), model(x))
    assert seen.total("native.epilogue") == 2 and seen.total("compiles") == 1


def test_a_sum_of_two_convolutions_is_part_of_one():
    model, x = tower(nn.functional.silu)
    block, head = model[0], model[2]

    def program(x):
        wide = block.first(x)
        left, right = (conv(wide) for conv in (block.third, other))
        return (head(block.norms[2](left) + right).mean((2, 3)),)

    other = nn.Conv2d(16, 8, 3, padding=1)
    run = compiled(program)
    with torch.no_grad(), events.collect() as seen:
        for _ in range(3):
            same(run(x), program(x))
    assert seen.total("native.epilogue") == 1


def test_values_that_are_read_elsewhere_stay():
    """A convolution that is a result, a norm that a kernel of ours reads as well."""
    model, x = tower(nn.functional.silu)
    block = model[0]

    def program(x):
        y = block.first(x)
        normed = block.norms[0](y)
        return (
            y,
            block.second(normed),
            block.second(block.norms[1](block.first(x) + y)),
            normed.mean(),
        )

    run = compiled(program)
    with torch.no_grad(), events.collect() as seen:
        for _ in range(3):
            same(run(x), program(x))
    assert seen.total("native.epilogue") == 0


def test_weights_of_training_are_not_packed():
    model = Net()
    with events.collect() as seen:
        compiled(model)(torch.randn(2, 3, 96, 96))[1].sum().backward()
    assert seen.total("native.packed_convolution") == seen.total("native.convolution") == 0


def test_a_weight_that_keeps_changing_is_packed_no_more():
    step = PackedConvolution(((1, 1), (1, 1), (1, 1), 1))
    x = torch.randn(1, 8, 16, 16)
    for _ in range(20):
        weight = torch.randn(8, 8, 3, 3)
        torch.testing.assert_close(step(x, weight, None), torch.conv2d(x, weight, None, 1, 1))
    assert step._changes < 15


def test_a_first_result_does_not_wait_for_packing():
    step = PackedConvolution(((1, 1), (1, 1), (1, 1), 1))
    x, weight = torch.randn(1, 8, 16, 16), torch.randn(8, 8, 3, 3)
    for packed in (0, 1, 1):
        torch.testing.assert_close(step(x, weight, None), torch.conv2d(x, weight, None, 1, 1))
        assert step._changes == packed


def test_fingerprints_differ():
    flat = torch.zeros(40_003)
    marks = {_native.fingerprint(flat, flat.nbytes)}
    for place in (0, 1, 7, 16_384, 40_002):
        for bit in (0, 1, 22, 30, 31):
            other = flat.clone()
            other.view(torch.int32)[place] = -(2**31) if bit == 31 else 1 << bit
            marks.add(_native.fingerprint(other, other.nbytes))
    marks.add(_native.fingerprint(-flat, flat.nbytes))
    marks |= {_native.fingerprint(flat, size) for size in (4, 8, 160_000)}
    assert len(marks) == 1 + 25 + 1 + 3
    with pytest.raises(TypeError):
        _native.fingerprint(3, 4)


def test_weights_are_packed_for_the_sizes_at_hand():
    """oneDNN chooses the format by the sizes of the image; for others it may be very slow."""
    convolution = PackedConvolution(((1, 1), (1, 1), (1, 1), 1))
    packed = []
    pack = convolution._pack
    convolution._pack = lambda *given: packed.append(tuple(given[-1])) or pack(*given)
    weight = torch.randn(8, 3, 3, 3)
    images = {n: torch.randn(2, 3, n, n).to(memory_format=torch.channels_last) for n in (8, 9, 10)}
    for n in (8, 9, 10, 9, 8, 8, 9, 8, 10, 10, 8, 10):  # what comes twice in a row is packed for
        expected = torch.conv2d(images[n], weight, padding=1)
        torch.testing.assert_close(
            convolution(images[n], weight, None), expected, rtol=1e-4, atol=1e-5
        )
    assert packed == [(2, 3, 8, 8), (2, 3, 10, 10)]
