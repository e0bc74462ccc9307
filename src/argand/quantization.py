"""quantization: linear layers with weights of 8 or 4 bits, as plain modules.

In: a model. Out: the same model, its linear layers replaced by ``QuantizedLinear``: integers, scales and zeros in the
``state_dict`` under readable names, and formulas that anybody can read. Eager multiplies with converted weights; compiled, the
conversion happens in registers (``native.contract``), so that a row reads a quarter or an eighth of the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from argand.support.errors import UserError


class Scheme(NamedTuple):
    """How numbers become integers."""

    name: str
    bits: int
    group: int  # elements of a row with one scale; 0: the whole row
    zeros: bool = False  # the range of a group is that of its numbers, not one around zero
    dynamic: bool = False  # rows of activations become integers, too, at each call

    @property
    def least(self) -> int:
        """The smallest integer."""
        return 0 if self.bits == 4 else -128 if self.zeros else -127

    @property
    def most(self) -> int:
        """The largest one."""
        return 15 if self.bits == 4 else 127


_SCHEMES: Final[Mapping[str, Scheme]] = {
    scheme.name: scheme
    for scheme in (
        Scheme("int8", 8, 0),
        Scheme("int4", 4, 128),
        Scheme("dynamic_int8", 8, 0, dynamic=True),
    )
}
SCHEMES: Final = tuple(_SCHEMES)
_MIDDLE: Final = 8  # what 0.0 is in 4 bits without zeros
# Layers of libraries that are linear, with a weight [inputs, outputs]: known by name, so that nothing is imported for them.
_ACROSS: Final = frozenset({("transformers.pytorch_utils", "Conv1D")})


class _Integers(NamedTuple):
    whole: Tensor  # [outputs, groups, elements], still floats
    scale: Tensor  # [outputs, groups, 1]
    zero: Tensor


def _rounded(weight: Tensor, scheme: Scheme) -> _Integers:
    """The integers nearest to numbers [outputs, groups, elements]."""
    if scheme.zeros:
        low, high = (
            weight.amin(-1, keepdim=True).clamp(max=0),
            weight.amax(-1, keepdim=True).clamp(min=0),
        )
        scale = (high - low) / (scheme.most - scheme.least)
    else:
        half = scheme.most - (_MIDDLE if scheme.bits == 4 else 0)
        low, scale = torch.zeros(()), weight.abs().amax(-1, keepdim=True) / half
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    if scheme.zeros:
        zero = (scheme.least - low / scale).round().clamp(scheme.least, scheme.most)
    else:
        zero = torch.full_like(scale, _MIDDLE if scheme.bits == 4 else 0)
    whole = (weight / scale + zero).round().clamp(scheme.least, scheme.most)
    return _Integers(whole, scale, zero)


def pack_halves(whole: Tensor) -> Tensor:
    """Numbers from 0 to 15 as bytes, two in each, the first in its lower half."""
    pairs = whole.to(torch.uint8).unflatten(-1, (-1, 2))
    return pairs[..., 0] | (pairs[..., 1] << 4)


def unpack_halves(packed: Tensor) -> Tensor:
    """The numbers in the halves of bytes."""
    pairs = packed[..., None]
    return torch.where(torch.arange(2) == 1, pairs >> 4, pairs & 15).flatten(-2)


@final
class QuantizedLinear(nn.Module):
    """``x @ weight.T + bias`` with a weight of small integers; printed with its errors.

    ``weight`` is int8 [outputs, inputs], or uint8 [outputs, groups, bytes] with two numbers of 4 bits in a byte;
    ``weight_scale`` has one number per output, or per output and group, and so has ``weight_zero`` where there is one.
    """

    def __init__(self, linear: nn.Linear, scheme: Scheme) -> None:
        super().__init__()
        self.in_features, self.out_features, self.scheme = (
            linear.in_features,
            linear.out_features,
            scheme,
        )
        given = linear.weight.detach()
        group = scheme.group or self.in_features
        self.padding = -self.in_features % group  # of rows that no group divides
        wide = nn.functional.pad(given.float(), (0, self.padding)).unflatten(1, (-1, group))
        found = _rounded(wide, scheme)
        self.register_buffer("weight", self._stored(found.whole))
        self.register_buffer("weight_scale", self._per_group(found.scale).to(given.dtype))
        zero = self._per_group(found.zero).to(torch.uint8 if scheme.bits == 4 else torch.int8)
        self.register_buffer("weight_zero", zero if scheme.zeros else None)
        self.bias = linear.bias
        self.weight_error = _relative((found.whole - found.zero) * found.scale, wide)
        self.output_error: float | None = None  # on the inputs that were given, if any were

    weight: Tensor
    weight_scale: Tensor
    weight_zero: Tensor | None

    def _stored(self, whole: Tensor) -> Tensor:
        return pack_halves(whole) if self.scheme.bits == 4 else whole.flatten(1).to(torch.int8)

    def _per_group(self, numbers: Tensor) -> Tensor:
        return numbers.squeeze(-1) if self.scheme.group else numbers.flatten()

    def _spread(self, numbers: Tensor) -> Tensor:
        return numbers[..., None] if self.scheme.group else numbers[:, None, None]

    def dequantized(self, dtype: torch.dtype) -> Tensor:
        """The weight that the integers stand for, [outputs, inputs and padding]."""
        weight = self.weight
        whole = (
            unpack_halves(weight)
            if self.scheme.bits == 4
            else weight.unflatten(1, (-1, self._group))
        )
        numbers = whole.to(dtype)
        if self.weight_zero is not None:
            numbers = numbers - self._spread(self.weight_zero).to(dtype)
        elif self.scheme.bits == 4:
            numbers = numbers - _MIDDLE
        return (numbers * self._spread(self.weight_scale)).flatten(1)

    @property
    def _group(self) -> int:
        return self.scheme.group or self.in_features

    @override
    def forward(self, x: Tensor) -> Tensor:
        if self.padding:
            x = nn.functional.pad(x, (0, self.padding))
        if self.scheme.dynamic:
            result = self._by_integers(x)
        elif self.scheme.group or self.scheme.zeros or self.scheme.bits == 4:
            result = nn.functional.linear(x, self.dequantized(x.dtype))
        else:  # the scale of a row may as well follow the sum
            result = nn.functional.linear(x, self.weight.to(x.dtype)) * self.weight_scale
        return result if self.bias is None else result + self.bias

    def _by_integers(self, x: Tensor) -> Tensor:
        """Rows of x as integers around zero, each with its own scale: all products are exact."""
        rows = x.flatten(0, -2) if x.dim() > 1 else x[None]
        scale = rows.abs().amax(-1, keepdim=True).float() / 127
        # of a row with a NaN it is one
        scale = torch.where(scale == 0, torch.ones_like(scale), scale)
        whole = (rows / scale).round().nan_to_num(0.0).to(torch.int8)
        sums = torch._int_mm(whole, self.weight.t()).to(torch.float32)
        result = (sums * scale * self.weight_scale).to(x.dtype)
        return result.view(*x.shape[:-1], self.out_features)

    @override
    def extra_repr(self) -> str:
        scheme = self.scheme
        shown = (
            f"{self.in_features}, {self.out_features}, bias={self.bias is not None}, {scheme.name}"
        )
        shown += f", groups of {scheme.group}" if scheme.group else ""
        shown += ", zeros" if scheme.zeros else ""
        shown += f", weight error {self.weight_error:.2e}"
        return (
            shown if self.output_error is None else f"{shown}, output error {self.output_error:.2e}"
        )


def quantize(
    model: nn.Module,
    scheme: str = "int8",
    *,
    group: int | None = None,
    zeros: bool = False,
    inputs: Sequence[Any] = (),
) -> nn.Module:
    """Replace the linear layers of a model, which is changed and returned.

    ``int8`` and ``int4`` are weights alone, ``dynamic_int8`` turns the rows of activations into integers, too. ``group``: how
    many elements of a row share a scale (0: all; int4: 128 unless told). ``zeros``: groups have a zero of their own, so
    that their range need not be even around 0.

    With ``inputs`` the model is run once before, and every layer shows how far its results on the same numbers are off
    (``print(model)``, ``errors(model)``; the norm of the difference over that of the result). Layers whose weight is shared with
    a module that is no linear layer (tied embeddings), or that are subclasses of ``nn.Linear``, stay as they are.
    Fails with ``UserError`` on a scheme that is not known, and on a model without linear layers.
    """
    chosen = _scheme(scheme, group, zeros)
    found = list(_layers(model))
    if not found:
        raise UserError("the model has no linear layers to quantize")
    seen = _observed(model, [layer for *_, layer in found], inputs) if inputs else {}
    made: dict[nn.Module, QuantizedLinear] = {}
    for parent, name, layer in found:
        small = made.get(layer) or QuantizedLinear(_as_linear(layer), chosen)
        made[layer] = small
        if layer in seen:
            x, wanted = seen[layer]
            with torch.no_grad():
                small.output_error = _relative(small(x).float(), wanted.float())
        small.train(layer.training)
        setattr(parent, name, small)
    return model


def _scheme(name: str, group: int | None, zeros: bool) -> Scheme:
    found = _SCHEMES.get(name)
    if found is None:
        raise UserError(f"no scheme {name!r}; there is {', '.join(SCHEMES)}")
    if found.dynamic and (group or zeros):
        raise UserError(f"{name} has one scale for each row of a weight, and no zeros")
    size = found.group if group is None else group
    if size < 0 or (found.bits == 4 and (size < 2 or size % 2)):
        raise UserError(f"no groups of {size} elements; those of 4 bits are even")
    return found._replace(group=size, zeros=zeros)


def errors(model: nn.Module) -> dict[str, tuple[float, float | None]]:
    """How far each quantized layer is off: its weight, and its results on the inputs that were given."""
    named = ((name, m) for name, m in model.named_modules() if isinstance(m, QuantizedLinear))
    return {name: (layer.weight_error, layer.output_error) for name, layer in named}


def _is_linear(module: nn.Module) -> bool:
    """Whether a module is a linear layer of torch's or of a library; a subclass may do anything else."""
    kind = type(module)
    return kind is nn.Linear or (kind.__module__, kind.__qualname__) in _ACROSS


def _as_linear(layer: Any) -> nn.Linear:
    """A linear layer as torch has it: a weight that lies across is turned, the bias is the same."""
    if type(layer) is nn.Linear:
        return layer
    inputs, outputs = layer.weight.shape
    made = nn.Linear(inputs, outputs, bias=False, device="meta")
    made.weight = nn.Parameter(layer.weight.detach().t().contiguous(), requires_grad=False)
    made.bias = layer.bias
    return made


def _layers(model: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Module]]:
    """Linear layers with the module that has them and their name there."""
    shared = {
        id(p) for m in model.modules() if not _is_linear(m) for p in m.parameters(recurse=False)
    }
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):  # a layer under two names is listed twice
            if child is not None and _is_linear(child) and id(child.weight) not in shared:
                yield parent, name, child


def _observed(
    model: nn.Module, layers: Sequence[nn.Module], inputs: Sequence[Any]
) -> dict[nn.Module, tuple[Tensor, Tensor]]:
    """What each layer was last called with, and gave."""
    seen: dict[nn.Module, tuple[Tensor, Tensor]] = {}

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
