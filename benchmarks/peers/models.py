"""benchmarks.peers.models: what is measured beside other engines. In: a name. Out: a module in eval mode, and inputs.

Weights are random: no engine looks at their values. Libraries are imported by the model that needs them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.libraries import torchvision_names

Built = tuple[nn.Module, tuple[Any, ...]]


def torchvision_models() -> Any:
    """``torchvision.models``, also where its C++ library cannot be loaded."""
    import torchvision

    return torchvision.models


def _image(batch: int = 1, side: int = 224) -> Tensor:
    return torch.randn(batch, 3, side, side)


def _vision(name: str, side: int = 224) -> Callable[[], Built]:
    def build() -> Built:
        return getattr(torchvision_models(), name)(weights=None), (_image(side=side),)

    return build


def _timm(name: str, side: int = 224) -> Callable[[], Built]:
    def build() -> Built:
        torchvision_models()
        import timm

        return timm.create_model(name, pretrained=False), (_image(side=side),)

    return build


class FirstOutput(nn.Module):
    """A module whose first output is its result: exporters want plain tensors."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: Tensor) -> Tensor:
        result = self.inner(*args)
        values = list(result.values()) if isinstance(result, dict) else list(result)
        return values[0]


def _bert(batch: int) -> Callable[[], Built]:
    def build() -> Built:
        from transformers import BertConfig, BertModel

        config = BertConfig(
            hidden_size=384, num_hidden_layers=6, num_attention_heads=6, intermediate_size=1536
        )
        return FirstOutput(BertModel(config)), (torch.randint(1, 1000, (batch, 128)),)

    return build


def _whisper() -> Built:
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = WhisperConfig(
        d_model=256,
        encoder_layers=4,
        encoder_attention_heads=4,
        encoder_ffn_dim=1024,
        max_source_positions=500,
    )
    return FirstOutput(WhisperEncoder(config)), (torch.randn(1, 80, 1000),)


def _wav2vec2() -> Built:
    from transformers import Wav2Vec2Config, Wav2Vec2Model

    config = Wav2Vec2Config(
        hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024
    )
    return FirstOutput(Wav2Vec2Model(config)), (torch.randn(1, 16000),)


def _gpt2() -> Built:
    from transformers import GPT2Config, GPT2Model

    config = GPT2Config(n_embd=256, n_layer=4, n_head=4, use_cache=False)
    return FirstOutput(GPT2Model(config)), (torch.randint(1, 1000, (1, 128)),)


def _fpn() -> Built:
    backbone = torchvision_models().detection.backbone_utils.resnet_fpn_backbone(
        backbone_name="resnet18", weights=None
    )
    return FirstOutput(backbone), (_image(side=320),)


def _segmentation() -> Built:
    models = torchvision_models()
    net = models.segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None)
    return FirstOutput(net), (_image(side=320),)


def _mlp() -> Built:
    widths = (128, 256, 256, 10)
    layers = [nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in itertools.pairwise(widths)]
    return nn.Sequential(*layers[:-1], layers[-1][0]), (torch.randn(32, 128),)


class DilatedBlock(nn.Module):
    """Two dilated 1-d convolutions with a shortcut, as temporal convolutional networks have them."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.first = nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation)
        self.second = nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.first(x))
        return torch.relu(self.second(y) + x)


def _dilated() -> Built:
    blocks = [DilatedBlock(64, 2**k) for k in range(5)]
    return nn.Sequential(nn.Conv1d(16, 64, 1), *blocks, nn.Conv1d(64, 16, 1)), (
        torch.randn(16, 16, 256),
    )


def _dcgan() -> Built:
    widths = (100, 256, 128, 64, 32)
    layers: list[nn.Module] = []
    for index, (a, b) in enumerate(itertools.pairwise(widths)):
        up = (
            nn.ConvTranspose2d(a, b, 4, 1, 0, bias=False)
            if not index
            else nn.ConvTranspose2d(a, b, 4, 2, 1, bias=False)
        )
        layers += [up, nn.BatchNorm2d(b), nn.ReLU(True)]
    layers += [nn.ConvTranspose2d(widths[-1], 3, 4, 2, 1, bias=False), nn.Tanh()]
    return nn.Sequential(*layers), (torch.randn(4, 100, 1, 1),)


def _unet() -> Built:
    from benchmarks.models import CASES

    target, args = CASES["unet"].build()
    assert isinstance(target, nn.Module)
    return target, args


class TabularResNet(nn.Module):
    """Embedded categories and numbers through residual blocks with batch norm."""

    def __init__(self, width: int = 192) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(40, 8) for _ in range(6))
        self.enter = nn.Linear(6 * 8 + 20, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm1d(width),
                nn.Linear(width, 2 * width),
                nn.ReLU(),
                nn.Linear(2 * width, width),
            )
            for _ in range(4)
        )
        self.leave = nn.Sequential(nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 2))

    def forward(self, numbers: Tensor, categories: Tensor) -> Tensor:
        embedded = [table(categories[:, k]) for k, table in enumerate(self.tables)]
        x = self.enter(torch.cat([numbers, *embedded], dim=1))
        for block in self.blocks:
            x = x + block(x)
        return self.leave(x)


def _tabular() -> Built:
    return TabularResNet(), (torch.randn(64, 20), torch.randint(0, 40, (64, 6)))


TABLE: dict[str, Callable[[], Built]] = {  # the ten of the issue
    "resnet50": _vision("resnet50"),
    "mobilenet_v3": _vision("mobilenet_v3_large"),
    "efficientnet_b0": _vision("efficientnet_b0"),
    "convnext_atto": _timm("convnext_atto"),
    "deit_tiny": _timm("deit_tiny_patch16_224"),
    "bert": _bert(1),
    "bert_8": _bert(8),
    "whisper": _whisper,
    "mlp": _mlp,
    "dilated": _dilated,
}
MORE: dict[str, Callable[[], Built]] = {
    "resnet18": _vision("resnet18"),
    "densenet121": _vision("densenet121"),
    "shufflenet": _vision("shufflenet_v2_x1_0"),
    "squeezenet": _vision("squeezenet1_1"),
    "regnet": _vision("regnet_y_400mf"),
    "mnasnet": _vision("mnasnet1_0"),
    "ghostnet": _timm("ghostnet_100"),
    "mobilevit": _timm("mobilevit_xs", 256),
    "mixer": _timm("mixer_s32_224"),
    "fpn": _fpn,
    "lraspp": _segmentation,
    "unet": _unet,
    "dcgan": _dcgan,
    "wav2vec2": _wav2vec2,
    "gpt2": _gpt2,
    "tabular": _tabular,
}
MODELS = TABLE | MORE
GROUPS = {"table": tuple(TABLE), "more": tuple(MORE), "all": tuple(MODELS)}


def build(name: str) -> Built:
    """A model and its inputs, equal in every process."""
    torchvision_names.declare()  # timm and transformers import it too, where it is installed
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    return model.eval(), inputs


def select(text: str) -> list[str]:
    """The names in a comma-separated list of names and groups; raises KeyError with what is valid."""
    names: dict[str, None] = {}
    for part in (part.strip() for part in text.split(",") if part.strip()):
        if part not in GROUPS and part not in MODELS:
            raise KeyError(f"no model {part!r}; groups and models: {', '.join([*GROUPS, *MODELS])}")
        names |= dict.fromkeys(GROUPS.get(part, (part,)))
    return list(names)
