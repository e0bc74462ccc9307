"""Layers whose kernels keep a state of their own between forward and backward."""

import pytest
import torch

import argand


@pytest.mark.parametrize("backend", ["aot_eager", "argand"])
@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU])
def test_recurrent_layers_train(kind, backend):
    torch.manual_seed(0)
    layer = kind(4, 8, 2, batch_first=True)
    compiled = argand.compile(layer, backend=backend, fullgraph=True)
    results = []
    for run in (layer, compiled, compiled):
        layer.zero_grad()
        x = torch.linspace(-1, 1, 40).view(2, 5, 4).requires_grad_()
        output, state = run(x)
        (output.square().sum() + (state[0] if isinstance(state, tuple) else state).sum()).backward()
        results.append([output.detach(), x.grad, *(p.grad for p in layer.parameters())])
    for other in results[1:]:
        torch.testing.assert_close(other, results[0])
