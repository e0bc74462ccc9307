"""`argand.quantize` on layers whose weight lies across, [inputs, outputs]: transformers' `Conv1D`."""

import pytest
import torch
import transformers
from torch import nn
from transformers.pytorch_utils import Conv1D

import argand
from argand.quantization import SCHEMES, QuantizedLinear, errors
from argand.support.errors import UserError


def pair():
    torch.manual_seed(0)
    across, along = Conv1D(48, 32), nn.Linear(32, 48)
    with torch.no_grad():
        across.bias.normal_()
        along.weight.copy_(across.weight.t())
        along.bias.copy_(across.bias)
    return across, along


@pytest.mark.parametrize("scheme", SCHEMES)
def test_as_the_linear_layer_with_the_weight_turned(scheme):
    x = torch.randn(3, 5, 32)
    got, wanted = (argand.quantize(nn.Sequential(layer), scheme) for layer in pair())
    for name, tensor in wanted.state_dict().items():
        assert (
            torch.equal(got.state_dict()[name], tensor) and got.state_dict()[name].is_contiguous()
        )
    assert torch.equal(got(x), wanted(x))
    compiled = argand.compile(got, options={"cache": False})
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), wanted(x), rtol=1e-4, atol=1e-4)


def test_all_of_a_model_but_the_tied_table():
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=4)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    tokens = torch.randint(0, 64, (2, 9))
    with torch.no_grad():
        plain = model(tokens).logits
        argand.quantize(model, "int8", inputs=(tokens,))
        found = errors(model)
        assert len(found) == 8 and not any(isinstance(m, Conv1D) for m in model.modules())
        assert all(
            weight < 0.02 and output is not None and output < 0.02
            for weight, output in found.values()
        )
        assert type(model.lm_head) is nn.Linear
        assert (model(tokens).logits - plain).norm() < 0.02 * plain.norm()


def test_a_layer_in_two_places_is_one():
    across, _ = pair()
    square = Conv1D(48, 48)
    model = argand.quantize(nn.Sequential(across, square, square), "int8")
    assert model[1] is model[2] and isinstance(model[0], QuantizedLinear)


def test_a_subclass_and_a_shared_weight_stay():
    class Scaled(Conv1D):
        def forward(self, x):
            return 2 * super().forward(x)

    with pytest.raises(UserError, match="no linear layers"):
        argand.quantize(nn.Sequential(Scaled(8, 8)))
    across, table = Conv1D(8, 16), nn.Embedding(16, 8)
    table.weight = across.weight
    with pytest.raises(UserError, match="no linear layers"):
        argand.quantize(nn.Sequential(table, across))
