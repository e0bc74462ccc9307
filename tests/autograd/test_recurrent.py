"""Layers whose kernels keep a state of their own between forward and backward."""

import pytest
import torch

import argand
from argand.support import events


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


LAYERS = {
    "gru": lambda **more: torch.nn.GRU(5, 6, **more),
    "tanh": lambda **more: torch.nn.RNN(5, 6, **more),
    "relu": lambda **more: torch.nn.RNN(5, 6, nonlinearity="relu", **more),
    "lstm": lambda **more: torch.nn.LSTM(5, 6, dtype=torch.float64, **more),
    "projected": lambda **more: torch.nn.LSTM(5, 6, proj_size=3, **more),
}
FORMS = {
    "both_ways": {"bidirectional": True, "num_layers": 2, "batch_first": True},
    "no_bias": {"bias": False, "batch_first": True},
}


def _leaves(values):
    return torch.utils._pytree.tree_leaves(values)


def _results(layer, run, x, states):
    """Outputs, their strides, whether they are views, all gradients, and gradients of a gradient."""
    given = _leaves(run(x, states))
    loss = sum((value.square() * (k + 1)).sum() for k, value in enumerate(given))
    leaves = [x, *_leaves(states), *layer.parameters()]
    first = torch.autograd.grad(loss, leaves, create_graph=True)
    second = torch.autograd.grad(first[0].square().sum(), leaves)
    return given, [(value.stride(), value._base is None) for value in given], first, second


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", LAYERS)
def test_a_layer_as_a_loop(kind, form):
    """Values, strides, gradients and their gradients; a graph of few nodes, however long the sequence is."""
    torch.manual_seed(0)
    layer = LAYERS[kind](**FORMS[form])
    compiled = argand.compile(layer, fullgraph=True, options={"measure": False})
    dtype = next(layer.parameters()).dtype
    shape = (3, 9, 5) if FORMS[form].get("batch_first") else (9, 3, 5)
    count = FORMS[form].get("num_layers", 1) * (2 if "bidirectional" in FORMS[form] else 1)
    x = torch.randn(shape, dtype=dtype, requires_grad=True)
    states = torch.randn(count, 3, 6, dtype=dtype, requires_grad=True)
    if kind in ("lstm", "projected"):
        shown = states[..., : 3 if kind == "projected" else 6].detach().clone().requires_grad_()
        states = (shown, states)
    expected = _results(layer, layer, x, states)
    for _ in range(2):
        with events.collect() as seen:
            found = _results(layer, compiled, x, states)
        for text in seen.texts("aot_joint_graph"):
            assert "higher_order.scan" in text
        assert found[1] == expected[1]
        torch.testing.assert_close(found[0], expected[0])
        torch.testing.assert_close(found[2:], expected[2:], rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x, states), layer(x, states))


@pytest.mark.parametrize("training", [False, True])
def test_a_loop_fits_every_length(training):
    layer = torch.nn.GRU(5, 6, bidirectional=True, batch_first=True)
    compiled = argand.compile(layer, fullgraph=True, options={"measure": False})
    with torch.set_grad_enabled(training), events.collect() as seen:
        for length in (9, 11, 8, 23, 5, 120, 2, 1):
            x = torch.randn(3, length, 5)
            torch.testing.assert_close(compiled(x), layer(x))
    compiles = [e for e in seen.events if isinstance(e, events.StageEnd) and e.stage == "compile"]
    assert len(compiles) <= 4  # the first length, any length, and two too short for a loop


def test_results_are_written_to():
    torch.manual_seed(0)
    layer = torch.nn.GRU(5, 6, batch_first=True)

    def run(x):
        output, state = layer(x)
        output[:, 0] = 0
        output.mul_(2)
        state.add_(1)
        return output, state

    x = torch.randn(3, 9, 5)
    expected, found = run(x), argand.compile(run, fullgraph=True)(x)
    torch.testing.assert_close(found, expected)
    assert [value._base is None for value in found] == [value._base is None for value in expected]


def test_dropout_between_layers_draws_as_eager_does():
    layer = torch.nn.GRU(5, 6, num_layers=3, dropout=0.4)
    compiled = argand.compile(
        layer, fullgraph=True, options={"measure": False, "fallback_random": True}
    )
    x = torch.randn(9, 3, 5)
    torch.manual_seed(1)
    expected = layer(x)
    torch.manual_seed(1)
    torch.testing.assert_close(compiled(x), expected)


def test_wrong_shapes_raise_torchs_error():
    layer = torch.nn.GRU(5, 6)

    def run(x, state):
        return torch.gru(x, state, list(layer.parameters()), True, 1, 0.0, False, False, False)

    for x, state in (
        (torch.randn(9, 3, 4), torch.zeros(1, 3, 6)),
        (torch.randn(9, 3, 5), torch.zeros(1, 3, 7)),
    ):
        with pytest.raises(RuntimeError) as expected:
            run(x, state)
        with pytest.raises(RuntimeError) as found:
            argand.compile(run)(x, state)
        assert str(found.value) == str(expected.value)


def test_layers_under_transforms():
    layer = torch.nn.RNN(5, 6)
    weights = dict(layer.named_parameters())

    def loss(weights, x):
        return torch.func.functional_call(layer, weights, (x,))[0].square().mean()

    def both(x):
        gradients = torch.func.grad(loss)(weights, x)
        _, tangent = torch.func.jvp(lambda y: loss(weights, y), (x,), (torch.ones_like(x),))
        return gradients, tangent

    x = torch.randn(9, 3, 5)
    torch.testing.assert_close(argand.compile(both)(x), both(x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_loops_of_halves(dtype):
    torch.manual_seed(0)
    layer = torch.nn.GRU(16, 16, dtype=dtype)
    x = torch.randn(30, 4, 16, dtype=dtype)
    compiled = argand.compile(layer, options={"measure": False})
    with torch.no_grad():
        exact = torch.nn.GRU(16, 16, dtype=torch.float64)
        exact.load_state_dict(layer.state_dict())
        error = (layer(x)[0].double() - exact(x.double())[0]).abs().max()
        ours = (compiled(x)[0].double() - exact(x.double())[0]).abs().max()
    assert ours <= 1.5 * error


def test_the_layers_that_are_asked_for_are_those_that_have_loops():
    from argand.autograd import recurrent
    from argand.ops.layers import RECURRENT

    assert set(recurrent.CELLS) == RECURRENT
