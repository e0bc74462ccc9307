"""Convolutions that we generate, against eager: values, strides, what is fused, on two vector widths."""

import pytest
import torch
from torch import nn

import argand
from argand.native.codegen.llvm import depthwise, layouts
from argand.native.codegen.target import host_target
from argand.native.ir.convolve import Convolve
from argand.support import events

OPTIONS = {"strict": True, "cache": False, "measure": False, "verify": True}


@pytest.fixture(params=["as here", "avx2"])
def width(request, monkeypatch):
    """The machine's vectors, and those of a machine without AVX-512."""
    here = host_target()
    if request.param == "avx2" and here.vector_bytes > 32:
        features = ",".join(
            "-" + f[1:] if f[1:].startswith(("avx512", "evex512")) else f
            for f in here.features.split(",")
        )
        narrow = here._replace(features=features, vector_bytes=32)
        monkeypatch.setattr("argand.native.build.host_target", lambda: narrow)


def check(model, *inputs, count=1, times=2):
    model = model.eval()
    run = argand.compile(model, options=OPTIONS)
    with torch.no_grad(), events.collect() as seen:
        expected = model(*inputs)
        for _ in range(times):
            actual = run(*inputs)
            torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4, equal_nan=True)
            assert actual.stride() == expected.stride()
    assert seen.total("native.convolution") == count
    return seen


# inputs, outputs, window, stride, padding, dilation, groups, batch, high, wide
SHAPES = {
    "stem": (3, 24, 7, 2, 3, 1, 1, 1, 33, 29),
    "stem, three taps": (3, 16, 3, 2, 1, 1, 1, 2, 30, 41),
    "stem, wider than the image": (3, 16, 7, 1, 3, 1, 1, 2, 5, 4),
    "stem, patches": (3, 40, 8, 8, 0, 1, 1, 2, 24, 32),
    "stem, dilated": (3, 16, 3, 1, 2, 2, 1, 1, 9, 20),
    "point": (16, 64, 1, 1, 0, 1, 1, 2, 7, 7),
    "one pixel": (40, 10, 1, 1, 0, 1, 1, 8, 1, 1),
    "stride without window": (8, 16, 1, 2, 0, 1, 1, 1, 9, 8),
    "odd channels": (5, 37, 3, 1, 1, 1, 1, 3, 6, 11),
    "one channel": (1, 1, 3, 1, 1, 1, 1, 2, 8, 8),
    "wide": (32, 130, 3, 1, 1, 1, 1, 1, 14, 14),
    "dilated": (8, 16, 3, 1, 4, 4, 1, 2, 13, 9),
    "groups": (24, 48, 3, 1, 1, 1, 3, 2, 10, 10),
    "groups, odd": (6, 27, 3, 2, 0, 1, 3, 1, 12, 7),
    "padding as wide as the image": (4, 8, 5, 1, 4, 1, 1, 1, 3, 3),
    "depthwise": (32, 32, 3, 1, 1, 1, 32, 2, 14, 14),
    "depthwise, odd": (27, 27, 3, 1, 1, 1, 27, 1, 9, 20),
    "depthwise, few": (3, 3, 3, 1, 1, 1, 3, 1, 12, 12),
    "depthwise, stride": (24, 24, 5, 2, 2, 1, 24, 3, 15, 17),
    "depthwise, large": (16, 16, 7, 1, 3, 1, 16, 1, 7, 7),
    "depthwise, dilated": (20, 20, 3, 1, 3, 3, 20, 2, 11, 5),
    "depthwise, narrow": (16, 16, 3, 1, 1, 1, 16, 1, 8, 3),
    "depthwise, unpadded": (16, 16, 4, 3, 0, 1, 16, 1, 19, 23),
}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_every_shape_is_eagers(shape, bias, width):
    torch.manual_seed(0)
    inputs, outputs, window, stride, padding, dilation, groups, batch, high, wide = shape
    model = nn.Conv2d(inputs, outputs, window, stride, padding, dilation, groups, bias)
    check(model, torch.randn(batch, inputs, high, wide))


@pytest.mark.parametrize("threads", [1, 3, 5])
@pytest.mark.parametrize("batch", [1, 4])
def test_threads_take_lines_of_depthwise_convolutions(threads, batch, monkeypatch):
    """As they take pixels of dense ones; the last part may have fewer lines, or none."""
    torch.manual_seed(0)
    here = host_target()._replace(threads=threads)
    monkeypatch.setattr("argand.native.build.host_target", lambda: here)
    spec = Convolve(batch, 40, 40, (7, 9), (7, 9), (3, 3), (1, 1), (1, 1), (1, 1), 40, (9, 9, 3, 1))
    sizes = dict(zip(depthwise.SIZES, layouts.layout_of(spec, here).sizes, strict=True))
    assert sizes["parts"] == (threads if batch < threads else 1)
    assert sizes["part_lines"] == -(-7 // sizes["parts"])
    check(nn.Conv2d(40, 40, 3, padding=1, groups=40), torch.randn(batch, 40, 7, 9))


# inputs, outputs, window, stride, padding, output padding, groups, dilation, batch, high, wide
TRANSPOSED = {
    "one pixel": (20, 48, 4, 1, 0, 0, 1, 1, 3, 1, 1),
    "one pixel, padded": (8, 16, 4, 2, 1, 1, 1, 1, 2, 1, 1),
    "one line": (6, 24, 3, 2, 1, 1, 3, 1, 2, 1, 6),
    "doubled": (24, 40, 4, 2, 1, 0, 1, 1, 2, 9, 7),
    "to few channels": (16, 3, 4, 2, 1, 0, 1, 1, 2, 8, 8),
    "as wide as the stride": (16, 24, 2, 2, 0, 0, 1, 1, 1, 7, 9),
    "odd window": (8, 16, 3, 2, 1, 1, 1, 1, 2, 5, 6),
    "stride one": (8, 16, 3, 1, 1, 0, 1, 1, 2, 5, 6),
    "stride one, dilated": (8, 16, 3, 1, 2, 0, 1, 2, 2, 5, 6),
    "groups": (8, 32, 5, 3, 0, 2, 2, 1, 2, 5, 6),
    "results without taps": (8, 16, 2, 3, 0, 1, 1, 1, 2, 4, 3),
    "most results without taps": (8, 16, 1, 2, 0, 1, 1, 1, 2, 4, 3),
    "padding wider than the window": (8, 16, 4, 2, 5, 0, 1, 1, 1, 8, 8),
    "four by four": (3, 37, 4, 4, 0, 3, 1, 1, 1, 3, 3),
    "fewer results than phases": (8, 16, 3, 4, 1, 0, 1, 1, 2, 1, 2),
}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", TRANSPOSED.values(), ids=TRANSPOSED)
def test_every_transposed_shape_is_eagers(shape, bias, width):
    torch.manual_seed(0)
    inputs, outputs, *window, groups, dilation, batch, high, wide = shape
    model = nn.ConvTranspose2d(inputs, outputs, *window, groups, bias, dilation)
    norm = nn.BatchNorm2d(outputs)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.running_mean)
    x = torch.randn(batch, inputs, high, wide)
    check(nn.Sequential(model, norm, nn.ReLU()), x)
    check(model, x.to(memory_format=torch.channels_last), count=1)


def test_transposed_convolutions_of_one_dimension(width):
    torch.manual_seed(0)
    model = nn.ConvTranspose1d(12, 20, 5, stride=2, padding=1, output_padding=1)
    check(
        nn.Sequential(model, nn.SiLU(), nn.ConvTranspose1d(20, 8, 4, 4)),
        torch.randn(3, 12, 17),
        count=2,
    )


def test_transposed_weights_that_change_are_packed_again(width):
    torch.manual_seed(0)
    model = nn.ConvTranspose2d(8, 16, 3, 2).eval()
    run = argand.compile(model, options=OPTIONS)
    x = torch.randn(1, 8, 6, 5)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-4)
            model.weight.data.mul_(2)


@pytest.mark.parametrize(
    ("window", "stride", "dilation", "groups"), [(3, 2, 2, 1), (8, 5, 1, 1), (3, 2, 1, 16)]
)
def test_other_transposed_convolutions_are_torchs(window, stride, dilation, groups):
    torch.manual_seed(0)
    model = nn.ConvTranspose2d(16, 16, window, stride, groups=groups, dilation=dilation)
    check(model, torch.randn(1, 16, 5, 6), count=0)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
@pytest.mark.parametrize("window", [1, 3, 7])
def test_numbers_that_are_none_stay_in_their_windows(window, number, width):
    torch.manual_seed(0)
    x = torch.randn(2, 3, 15, 20)
    x[0, 1, 0, 19] = x[1, 2, 14, 0] = x[1, 0, 7, 7] = number
    check(nn.Conv2d(3, 24, window, padding=window // 2), x)


@pytest.mark.parametrize(
    "shape", [(16, 64, 3, 8, 8, 1), (5, 7, 4, 1, 2, 1), (12, 12, 3, 4, 2, 12), (1, 32, 10, 3, 1, 1)]
)
def test_one_dimension_is_an_image_of_one_line(shape, width):
    torch.manual_seed(0)
    inputs, outputs, window, padding, dilation, groups = shape
    model = nn.Conv1d(inputs, outputs, window, padding=padding, dilation=dilation, groups=groups)
    check(nn.Sequential(model, nn.ReLU()), torch.randn(3, inputs, 50))


@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
def test_modes_of_padding(mode):
    torch.manual_seed(0)
    check(nn.Conv2d(8, 16, 3, padding=1, padding_mode=mode), torch.randn(2, 8, 10, 10))


@pytest.mark.parametrize("shape", [(3, 4, 2, 3), (0, 3, 5, 5), (1, 3, 16, 16)])
def test_tall_windows_and_empty_batches(shape):
    torch.manual_seed(0)
    batch, inputs, *_ = shape
    model = nn.Conv2d(inputs, 9, (2, 1), stride=(2, 1), padding=(0, 2), dilation=(1, 3))
    check(model, torch.randn(*shape), count=1 if batch else 0)


ACTIVATIONS = {
    "relu": torch.relu,
    "relu6": nn.functional.relu6,
    "silu": nn.functional.silu,
    "hardswish": nn.functional.hardswish,
    "gelu": nn.functional.gelu,
    "sigmoid": torch.sigmoid,
}


class Block(nn.Module):
    """A point, a depthwise and a plain convolution with norms, an activation and a shortcut."""

    def __init__(self, activation, inner=24):
        super().__init__()
        self.convolutions = nn.ModuleList(
            (
                nn.Conv2d(16, inner, 1),
                nn.Conv2d(inner, inner, 3, padding=1, groups=inner),
                nn.Conv2d(inner, 16, 3, padding=1),
            )
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(n) for n in (inner, inner, 16))
        self.activation = activation
        for norm in self.norms:
            for vector in (norm.weight, norm.bias, norm.running_mean):
                nn.init.normal_(vector)
            nn.init.uniform_(norm.running_var, 0.5, 2)

    def forward(self, x):
        y = x
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            y = self.activation(norm(convolution(y)))
        return self.activation(y + x)


@pytest.mark.parametrize("activation", ACTIVATIONS.values(), ids=ACTIVATIONS)
def test_what_follows_is_part_of_the_kernel(activation, width):
    torch.manual_seed(0)
    x = torch.randn(2, 16, 12, 12)
    x[0, 0, 5, 5], x[0, 1, 9, 9], x[1, 1, 2, 3] = torch.nan, torch.inf, -torch.inf
    x = x.to(memory_format=torch.channels_last)
    seen = check(nn.Sequential(Block(activation), Block(activation, 40)), x, count=6)
    assert seen.total("native.epilogue") == 6


class Gated(nn.Module):
    """Squeeze and excite."""

    def __init__(self):
        super().__init__()
        self.expand, self.down, self.up = (
            nn.Conv2d(8, 32, 1),
            nn.Conv2d(32, 8, 1),
            nn.Conv2d(8, 32, 1),
        )
        self.project = nn.Conv2d(32, 8, 1)

    def forward(self, x):
        y = nn.functional.silu(self.expand(x))
        gate = torch.sigmoid(self.up(torch.relu(self.down(y.mean((2, 3), keepdim=True)))))
        return self.project(y * gate) + x


@pytest.mark.parametrize("batch", [1, 8])
def test_gates(batch, width):
    torch.manual_seed(0)
    check(Gated(), torch.randn(batch, 8, 14, 14), count=4)


def test_results_that_are_read_more_than_once():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)

        def forward(self, x):
            y = self.first(x)
            z = self.second(torch.relu(y))
            return torch.cat(
                (y, torch.relu(z), y.transpose(2, 3).contiguous().transpose(2, 3) + z), dim=1
            )

    torch.manual_seed(0)
    check(Twice(), torch.randn(2, 4, 9, 9), count=2)


def test_a_weight_that_is_no_parameter_but_computed_is_eagers():
    def program(x, w):
        return torch.relu(torch.conv2d(x, w * 2, padding=1))

    run = argand.compile(program, options=OPTIONS)
    with torch.no_grad():
        for _ in range(3):
            x, w = torch.randn(1, 4, 8, 8), torch.randn(8, 4, 3, 3)
            torch.testing.assert_close(run(x, w), program(x, w), rtol=1e-4, atol=1e-5)


def test_weights_in_other_strides():
    def program(x, w):
        return torch.conv2d(x, w, padding=1)

    run = argand.compile(program, options=OPTIONS)
    with torch.no_grad():
        for _ in range(8):  # another weight at each call
            x, w = (
                torch.randn(1, 4, 8, 8),
                torch.randn(8, 4, 3, 3).to(memory_format=torch.channels_last),
            )
            torch.testing.assert_close(run(x, w), program(x, w), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("tiles", "registers"),
    [(layouts._WIDE_TILES, 32), (layouts._WIDE_POINTS, 32), (layouts._NARROW_TILES, 16)],
)
def test_a_tile_leaves_a_register_for_a_number_of_a_pixel(tiles, registers):
    """Without one every product loads its number: two loads a cycle are then the limit, not two products."""
    for rows, vectors in tiles:
        assert rows * vectors + vectors + 1 <= registers


@pytest.mark.parametrize(
    ("rows", "columns"), [(32, 256), (64, 32), (128, 384), (100, 64), (36, 64)]
)
@pytest.mark.parametrize("point", [False, True])
def test_tiles_waste_little_on_rows_that_powers_of_two_divide(rows, columns, point):
    tile = layouts._tile(point, columns, [rows], host_target()._replace(vector_bytes=64))
    width = tile.vectors * tile.lanes
    padded = -(-rows // tile.rows) * tile.rows * -(-columns // width) * width
    assert padded <= 1.03 * rows * columns


def test_sizes_of_a_network_share_tiles():
    """Each tile is a function that LLVM compiles for 20 ms."""
    target = host_target()._replace(vector_bytes=64)
    for point in (False, True):
        areas = [side * side for side in (112, 56, 28, 14)]
        assert len({layouts._tile(point, 256, [area], target) for area in areas}) == 1


def test_convolutions_of_one_class_share_a_kernel():
    layers = [
        nn.Sequential(nn.Conv2d(16 * k, 16 * k + 16, 3, padding=1), nn.ReLU()) for k in range(1, 6)
    ]
    seen = check(nn.Sequential(*layers), torch.randn(1, 16, 14, 14), count=5)
    names = set(seen.details("native.convolution")) if hasattr(seen, "details") else set()
    assert len(names) <= 3


class Tokens(nn.Module):
    """A convolution whose pixels become rows, with a residual and norms, as in encoders of speech and images."""

    def __init__(self, steps=50, width=64):
        super().__init__()
        self.convolution = nn.Conv1d(16, width, 3, padding=1)
        self.places = nn.Parameter(torch.randn(steps, width))
        self.inner = nn.Linear(width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

    def forward(self, x):
        hidden = nn.functional.gelu(self.convolution(x)).permute(0, 2, 1) + self.places
        hidden = hidden + self.inner(self.norms[0](hidden))
        return self.norms[1](hidden)


def test_what_is_computed_of_a_view_lies_as_the_convolution_does(width):
    """Eager's residual has the strides of the turned image: each row of it would be a walk over all memory."""
    seen = check(Tokens(), torch.randn(2, 16, 50), count=2)
    norms = [text for text in seen.texts("schedule") if "sqrt" in text]
    assert len(norms) == 2 and not any("50*d" in text for text in norms)


def test_a_pooled_image_is_stored_once_as_convolutions_read_it(width):
    """Eager's result of the pool is contiguous; as a residual it is read in the layout of the convolutions."""

    class Pooled(nn.Module):
        def __init__(self):
            super().__init__()
            self.convolutions = nn.ModuleList(nn.Conv2d(a, 16, 3, padding=1) for a in (3, 16, 16))

        def forward(self, x):
            first, second, third = self.convolutions
            pooled = nn.functional.max_pool2d(torch.relu(first(x)), 3, 2, 1)
            return torch.relu(third(torch.relu(second(pooled))) + pooled)

    seen = check(Pooled(), torch.randn(2, 3, 14, 14), count=3)
    (pool,) = [text for text in seen.texts("schedule") if " gt bool" in text]
    assert pool.count("store") == 1


class Columns(nn.Module):
    """Norms over features that lie across memory, as where an image's patches become tokens."""

    def __init__(self, width=96):
        super().__init__()
        self.inner = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))

    def forward(self, x):
        hidden = x.transpose(1, 2)
        for inner, norm in zip(self.inner, self.norms, strict=False):
            hidden = hidden + inner(norm(hidden))
        return self.norms[2](hidden)


def test_a_residual_that_is_normed_lies_along_its_features(width):
    """Eager's has the strides of what it was made of: each row of it would be a walk over all memory."""
    seen = check(Columns(), torch.randn(2, 96, 40), count=2)
    norms = [text for text in seen.texts("schedule") if "sqrt" in text]
    # the first norm and the first sum read the argument, which lies as it was given
    assert len(norms) == 3 and "40*d" in norms[0] and "40*d" not in norms[2]


def test_a_residual_that_is_a_result_has_eagers_strides(width):
    class Both(Columns):
        def forward(self, x):
            hidden = x.transpose(1, 2)
            hidden = hidden + self.inner[0](self.norms[0](hidden))
            return torch.stack((hidden.transpose(1, 2), self.norms[1](hidden).transpose(1, 2)))

    check(Both(), torch.randn(2, 96, 40), count=1)
    model = Columns().eval()

    def program(x):
        hidden = x.transpose(1, 2) + model.inner[0](x.transpose(1, 2))
        return hidden, torch.softmax(hidden, dim=-1)

    run = argand.compile(program, options=OPTIONS)
    x = torch.randn(2, 96, 40)
    with torch.no_grad():
        for actual, expected in zip(run(x), program(x), strict=True):
            torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)
            assert actual.stride() == expected.stride()


def test_a_result_seen_through_a_view_has_eagers_strides(width):
    class Turned(Tokens):
        def forward(self, x):
            hidden = torch.relu(self.convolution(x)).permute(0, 2, 1) + self.places
            return hidden * 2

    check(Turned(), torch.randn(2, 16, 50))


def test_as_strided_counts_in_eagers_memory(width):
    class Strided(nn.Module):
        def __init__(self):
            super().__init__()
            self.convolution = nn.Conv2d(8, 16, 3, padding=1)

        def forward(self, x):
            hidden = torch.relu(self.convolution(x))
            return hidden.as_strided((4, 5), (7, 2)) + 1

    check(Strided(), torch.randn(2, 8, 6, 6))
