"""quantization: linear layers with weights of 8 bits, as plain modules.

In: a model. Out: the same model, its linear layers replaced by ``Int8Linear``: weights as int8, one scale for each output,
both in the ``state_dict`` under readable names. Eager multiplies with converted weights; compiled, the conversion happens in
registers and the scale after the sum (``native.contract.casts``), so that a row reads a quarter of the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from argand.support.errors import UserError

SCHEMES: Final = ("int8",)
_MOST: Final = 127


@final
class Int8Linear(nn.Module):
    """``x @ (weight * weight_scale).T + bias`` with an int8 weight; printed with its errors."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        given = linear.weight.detach()
        scale = given.abs().amax(1).float() / _MOST
        safe = torch.where(scale > 0, scale, torch.ones_like(scale))
        whole = (given.float() / safe[:, None]).round().clamp(-_MOST, _MOST)
        self.register_buffer("weight", whole.to(torch.int8))
        self.register_buffer("weight_scale", safe.to(given.dtype))
        self.bias = linear.bias
        self.weight_error = _relative(whole * safe[:, None], given.float())
        self.output_error: float | None = None  # on the inputs that were given, if any were

    weight: Tensor
    weight_scale: Tensor

    @override
    def forward(self, x: Tensor) -> Tensor:
        result = nn.functional.linear(x, self.weight.to(x.dtype)) * self.weight_scale
        return result if self.bias is None else result + self.bias

    @override
    def extra_repr(self) -> str:
        shown = f"{self.in_features}, {self.out_features}, bias={self.bias is not None}, int8"
        shown += f", weight error {self.weight_error:.2e}"
        return shown if self.output_error is None else f"{shown}, output error {self.output_error:.2e}"


def quantize(model: nn.Module, scheme: str = "int8", *, inputs: Sequence[Any] = ()) -> nn.Module:
    """Replace the linear layers of a model, which is changed and returned.

    With ``inputs`` the model is run once before, and every layer shows how far its results on the same numbers are off
    (``print(model)``; the norm of the difference over that of the result). Layers whose weight is shared with a module
    that is no linear layer (tied embeddings), or that are subclasses of ``nn.Linear``, stay as they are.
    Fails with ``UserError`` on a scheme that is not known, and on a model without linear layers.
    """
    if scheme not in SCHEMES:
        raise UserError(f"no scheme {scheme!r}; there is {', '.join(SCHEMES)}")
    found = list(_layers(model))
    if not found:
        raise UserError("the model has no linear layers to quantize")
    seen = _observed(model, [layer for *_, layer in found], inputs) if inputs else {}
    made: dict[nn.Linear, Int8Linear] = {}
    for parent, name, layer in found:
        small = made.get(layer) or Int8Linear(layer)
        made[layer] = small
        if layer in seen:
            x, wanted = seen[layer]
            with torch.no_grad():
                small.output_error = _relative(small(x).float(), wanted.float())
        small.train(layer.training)
        setattr(parent, name, small)
    return model


def _layers(model: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Linear]]:
    """Linear layers with the module that has them and their name there."""
    shared = {id(p) for m in model.modules() if type(m) is not nn.Linear for p in m.parameters(recurse=False)}
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):  # a layer under two names is listed twice
            if type(child) is nn.Linear and id(child.weight) not in shared:
                yield parent, name, child


def _observed(
    model: nn.Module, layers: Sequence[nn.Linear], inputs: Sequence[Any]
) -> dict[nn.Linear, tuple[Tensor, Tensor]]:
    """What each layer was last called with, and gave."""
    seen: dict[nn.Linear, tuple[Tensor, Tensor]] = {}

    def note(layer: Any, given: tuple[Any, ...], result: Any) -> None:
        seen[layer] = (given[0].detach().clone(), result.detach().clone())

    hooks = [layer.register_forward_hook(note) for layer in dict.fromkeys(layers)]
    try:
        with torch.no_grad():
            model(*inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return seen


def _relative(got: Tensor, wanted: Tensor) -> float:
    return float((got - wanted).norm() / wanted.norm().clamp_min(1e-30))
