"""``fallback_random``: random numbers are eager's, whatever the layout of the tensor they are drawn into."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import argand

OPTIONS = {"fallback_random": True, "cache": False, "measure": False}

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "dense": lambda x: x,
    "transposed": lambda x: x.transpose(0, 1),
    "channels_last": lambda x: x[None].to(memory_format=torch.channels_last),
    "every_second": lambda x: x[:, ::2],
    "turned_part": lambda x: x.permute(2, 0, 1)[3:9],
}

PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "dropout": lambda x: functional.dropout(x, 0.5),
    "dropout_in_place": lambda x: functional.dropout(x * 2, 0.5, inplace=True),
    "alpha_dropout": lambda x: functional.alpha_dropout(x, 0.5, training=True),
    "feature_dropout": lambda x: functional.feature_alpha_dropout(x, 0.5, training=True),
    "bernoulli_": lambda x: torch.empty_like(x).bernoulli_(0.3),
    "bernoulli_of_a_part": lambda x: (
        x.clone().mul_(0).index_fill_(0, torch.tensor(0), 2.0)[1:].bernoulli_(0.3)
    ),
    "bernoulli_tensor_": lambda x: torch.empty_like(x).bernoulli_(x.sigmoid()),
    "bernoulli": lambda x: torch.bernoulli(x, 0.3),
    "bernoulli_tensor": lambda x: torch.bernoulli(x.sigmoid()),
    "uniform_": lambda x: torch.empty_like(x).uniform_(),
    "normal_": lambda x: torch.empty_like(x).normal_(),
    "exponential_": lambda x: torch.empty_like(x).exponential_(),
    "rand_like": torch.rand_like,
    "randint_like": lambda x: torch.randint_like(x, 9),
    "poisson": lambda x: torch.poisson(x.exp()),
    "normal": lambda x: torch.normal(x, x.exp()),
    "gumbel_softmax": lambda x: functional.gumbel_softmax(x),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_draws_are_eagers_in_every_layout(program: str, layout: str):
    x = torch.randn(6, 8, 10)
    answers = []
    given = LAYOUTS[layout](x)

    def drawn(x: Tensor) -> Tensor:
        return PROGRAMS[program](x)

    for call in (drawn, argand.compile(drawn, options=OPTIONS)):
        torch.manual_seed(3)
        answers.append((call(given), torch.rand(1)))
    (wanted, then), (given_back, then_compiled) = answers
    torch.testing.assert_close(given_back, wanted)
    assert given_back.stride() == wanted.stride()
    assert torch.equal(then, then_compiled)  # as many numbers were drawn


@pytest.mark.parametrize("batch_first", [False, True])
def test_a_transformer_trains_with_eagers_draws(batch_first: bool):
    torch.manual_seed(0)
    model = nn.Transformer(16, 2, 1, 1, 32, dropout=0.1, batch_first=batch_first)
    source, target = torch.randn(4, 5, 16), torch.randn(4, 5, 16)
    answers = []
    for call in (model, argand.compile(model, options=OPTIONS)):
        torch.manual_seed(3)
        result = call(source, target)
        answers.append(
            (result, *torch.autograd.grad(result.square().sum(), list(model.parameters())))
        )
    torch.testing.assert_close(answers[1], answers[0], rtol=1e-4, atol=1e-4)
