"""benchmarks.models.convolutional: ResNet-18, MobileNetV2, ConvNeXt and a small U-Net."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from benchmarks.models.case import Case


def _conv3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv3(inputs, outputs, stride)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = _conv3(outputs, outputs)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet18(nn.Module):
    """The residual network, eighteen layers."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = self._stage(64, 64, 1)
        self.layer2 = self._stage(64, 128, 2)
        self.layer3 = self._stage(128, 256, 2)
        self.layer4 = self._stage(256, 512, 2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(512, classes)

    @staticmethod
    def _stage(inputs: int, outputs: int, stride: int) -> nn.Sequential:
        return nn.Sequential(BasicBlock(inputs, outputs, stride), BasicBlock(outputs, outputs, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class Bottleneck(nn.Module):
    """Narrow, 3x3, widen; with a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = _conv3(width, width, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != 4 * width:
            shortcut = nn.Conv2d(inputs, 4 * width, 1, stride=stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(4 * width))

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


class ResNet50(nn.Module):
    """The residual network, fifty layers."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(inplace=True),
        )
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        blocks, inputs = [], 64
        for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for number in range(count):
                blocks.append(Bottleneck(inputs, width, 1 if number else stride))
                inputs = 4 * width
        self.blocks = nn.Sequential(*blocks)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.maxpool(self.stem(x)))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class InvertedResidual(nn.Module):
    """Expand, depthwise convolution, project; with a shortcut where shapes allow."""

    def __init__(self, inputs: int, outputs: int, stride: int, expand: int) -> None:
        super().__init__()
        hidden = inputs * expand
        layers: list[nn.Module] = []
        if expand != 1:
            layers += self._conv(inputs, hidden, 1, 1, 1)
        layers += self._conv(hidden, hidden, 3, stride, hidden)
        layers += [nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs)]
        self.conv = nn.Sequential(*layers)
        self.use_shortcut = stride == 1 and inputs == outputs

    @staticmethod
    def _conv(inputs: int, outputs: int, kernel: int, stride: int, groups: int) -> list[nn.Module]:
        conv = nn.Conv2d(
            inputs, outputs, kernel, stride, (kernel - 1) // 2, groups=groups, bias=False
        )
        return [conv, nn.BatchNorm2d(outputs), nn.ReLU6(inplace=True)]

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x) if self.use_shortcut else self.conv(x)


class MobileNetV2(nn.Module):
    """The mobile network of inverted residuals."""

    SETTINGS = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        features: list[nn.Module] = InvertedResidual._conv(3, 32, 3, 2, 1)
        inputs = 32
        for expand, outputs, repeats, stride in self.SETTINGS:
            for index in range(repeats):
                step = stride if index == 0 else 1
                features.append(InvertedResidual(inputs, outputs, step, expand))
                inputs = outputs
        features += InvertedResidual._conv(inputs, 1280, 1, 1, 1)
        self.features = nn.Sequential(*features)
        self.classifier = nn.Linear(1280, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.features(x)
        x = nn.functional.adaptive_avg_pool2d(x, (1, 1))
        return self.classifier(torch.flatten(x, 1))


class ConvNeXtBlock(nn.Module):
    """Depthwise 7x7, layer norm in channels-last, pointwise MLP, layer scale."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.expand = nn.Linear(width, 4 * width)
        self.project = nn.Linear(4 * width, width)
        self.scale = nn.Parameter(1e-6 * torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x
        x = self.depthwise(x).permute(0, 2, 3, 1)
        x = self.project(nn.functional.gelu(self.expand(self.norm(x))))
        x = (self.scale * x).permute(0, 3, 1, 2)
        return shortcut + x


class ChannelNorm(nn.Module):
    """Layer norm over the channels of an image."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(1, keepdim=True)
        variance = (x - mean).pow(2).mean(1, keepdim=True)
        x = (x - mean) / torch.sqrt(variance + 1e-6)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


class ConvNeXt(nn.Module):
    """A narrow ConvNeXt."""

    def __init__(
        self, depths: tuple[int, ...] = (2, 2, 4, 2), widths: tuple[int, ...] = (40, 80, 160, 320)
    ) -> None:
        super().__init__()
        self.downsample = nn.ModuleList(
            [nn.Sequential(nn.Conv2d(3, widths[0], 4, stride=4), ChannelNorm(widths[0]))]
        )
        for inputs, outputs in itertools.pairwise(widths):
            self.downsample.append(
                nn.Sequential(ChannelNorm(inputs), nn.Conv2d(inputs, outputs, 2, stride=2))
            )
        self.stages = nn.ModuleList(
            nn.Sequential(*(ConvNeXtBlock(width) for _ in range(depth)))
            for depth, width in zip(depths, widths, strict=True)
        )
        self.norm = nn.LayerNorm(widths[-1], eps=1e-6)
        self.head = nn.Linear(widths[-1], 1000)

    def forward(self, x: Tensor) -> Tensor:
        for downsample, stage in zip(self.downsample, self.stages, strict=True):
            x = stage(downsample(x))
        return self.head(self.norm(x.mean([-2, -1])))


class DoubleConv(nn.Module):
    """Two convolutions, each with batch norm and relu."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            _conv3(inputs, outputs),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            _conv3(outputs, outputs),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class UNet(nn.Module):
    """A small U-Net: three steps down, three up, skips between."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        widths = [width, 2 * width, 4 * width, 8 * width]
        self.down = nn.ModuleList(
            DoubleConv(inputs, outputs)
            for inputs, outputs in zip([3, *widths[:-1]], widths, strict=True)
        )
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(wide, wide // 2, 2, stride=2) for wide in reversed(widths[1:])
        )
        self.merge = nn.ModuleList(DoubleConv(wide, wide // 2) for wide in reversed(widths[1:]))
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips: list[Tensor] = []
        for index, block in enumerate(self.down):
            x = block(x if index == 0 else self.pool(x))
            skips.append(x)
        skips.pop()
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat([skips.pop(), up(x)], dim=1))
        return self.head(x)


def _images(size: int = 224) -> tuple[Tensor]:
    return (torch.randn(4, 3, size, size),)


CASES = (
    Case("resnet18", lambda: (ResNet18(), _images())),
    Case("mobilenet_v2", lambda: (MobileNetV2(), _images())),
    Case("convnext", lambda: (ConvNeXt(), _images())),
    Case("unet", lambda: (UNet(), _images(128))),
)
