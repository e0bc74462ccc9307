"""Losses of operands that differ in type or layout, against eager: type, strides and errors."""

import pytest
import torch
import torch.nn.functional as F

import argand

_LOSSES = {
    "huber": F.huber_loss,
    "smooth_l1": F.smooth_l1_loss,
    "mse": F.mse_loss,
    "soft_margin": lambda a, b, **k: F.soft_margin_loss(a, b.sign(), **k),
    "bce_with_logits": lambda a, b, **k: F.binary_cross_entropy_with_logits(a, b, **k),
    "bce_with_weights": lambda a, b, **k: F.binary_cross_entropy_with_logits(
        a, b, pos_weight=b, **k
    ),
    "kl_div": F.kl_div,
    "poisson": F.poisson_nll_loss,
}
_BF, _F, _D = torch.bfloat16, torch.float32, torch.float64


def _answer(function, types, layout):
    torch.manual_seed(0)
    a, b = (torch.rand(3, 4).to(dtype) for dtype in types)
    if layout == "turned":
        b = b.t().contiguous().t()
    elif layout == "expanded":
        a, b = a[:1].expand(3, 4), b.t().contiguous().t()
    try:
        result = function(a, b)
    except RuntimeError as error:
        return str(error)
    return result.dtype, result.stride(), result.double().round(decimals=1).tolist()


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("name", _LOSSES)
def test_losses_of_mixed_types(name, reduction):
    def loss(a, b):
        return _LOSSES[name](a, b, reduction=reduction)

    for types in ((_F, _F), (_BF, _F), (_F, _BF), (_F, _D), (_D, _F)):
        for layout in ("plain", "turned", "expanded"):
            argand.reset()
            ours = _answer(argand.compile(loss), types, layout)
            assert ours == _answer(loss, types, layout), (types, layout)


@pytest.mark.parametrize("name", ["huber", "bce_with_logits"])
def test_gradients_of_mixed_types(name):
    def slope(function):
        a, b = torch.rand(3, 4, dtype=_BF, requires_grad=True), torch.rand(3, 4)
        try:
            function(a, b).sum().backward()
        except RuntimeError as error:
            return str(error)
        return a.grad.dtype

    argand.reset()
    assert slope(argand.compile(_LOSSES[name])) == slope(_LOSSES[name])
