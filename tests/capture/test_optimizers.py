"""Steps of optimizers are captured: one graph over all parameters, the state as eager's."""

import copy
import gc
import weakref

import pytest
import torch

import argand
from argand.support import events


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2))


def fill(model, number):
    draw = torch.Generator().manual_seed(number)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=draw) * 0.1


def steps(make, compiled, count=4, between=lambda optimizer: None):
    model = network()
    optimizer = make(model.parameters())
    step = argand.compile(optimizer.step, fullgraph=True) if compiled else optimizer.step
    for number in range(count):
        fill(model, number)
        step()
        between(optimizer)
    return copy.deepcopy((model.state_dict(), optimizer.state_dict()))


def assert_same(actual, expected):
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-7)
    elif isinstance(expected, dict):
        assert list(actual) == list(expected)
        for key in expected:
            assert_same(actual[key], expected[key])
    elif isinstance(expected, list | tuple):
        assert len(actual) == len(expected)
        for pair in zip(actual, expected):
            assert_same(*pair)
    elif isinstance(expected, float):
        assert actual == pytest.approx(expected, rel=1e-6)
    else:
        assert actual == expected


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adam_loop": lambda p: torch.optim.Adam(p, lr=0.01, foreach=False, amsgrad=True),
    "adam_foreach": lambda p: torch.optim.Adam(p, lr=0.01, foreach=True, maximize=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "adamax": lambda p: torch.optim.Adamax(p),
    "nadam": lambda p: torch.optim.NAdam(p),
    "rmsprop": lambda p: torch.optim.RMSprop(p, centered=True, momentum=0.9),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr_decay=0.1),
    "adadelta": lambda p: torch.optim.Adadelta(p),
    "rprop": lambda p: torch.optim.Rprop(p),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_is_one_graph_and_its_state_is_eagers(name):
    assert_same(steps(OPTIMIZERS[name], True), steps(OPTIMIZERS[name], False))


def test_a_dict_with_tensors_as_keys():
    keys = [torch.ones(2), torch.zeros(3)]
    table = {keys[0]: 2.0, "other": 3.0, keys[1]: 4.0}

    def run(x):
        table[keys[1]] = table[keys[1]] + 1.0
        return x * table[keys[0]] + table["other"] + len(table)

    compiled = argand.compile(run, fullgraph=True, backend="eager")
    for _ in range(3):
        before = dict(table)
        expected = run(torch.ones(2))
        table.clear()
        table.update(before)
        torch.testing.assert_close(compiled(torch.ones(2)), expected)
    assert table[keys[1]] == 7.0 and len(table) == 3
    table[keys[0]] = 5.0
    torch.testing.assert_close(compiled(torch.ones(2)), torch.full((2,), 11.0))
    del table[keys[0]]
    table[keys[0]] = 6.0  # another order
    torch.testing.assert_close(compiled(torch.ones(2)), torch.full((2,), 12.0))


def test_another_tensor_for_a_key_is_seen():
    first, second = torch.ones(2), torch.ones(2)
    table = {first: 2.0, second: 3.0}
    compiled = argand.compile(lambda x, key: x * table[key], fullgraph=True, backend="eager")
    x = torch.ones(2)
    assert compiled(x, first)[0] == 2.0
    assert compiled(x, second)[0] == 3.0
    assert compiled(x, first)[0] == 2.0


def test_compiled_code_keeps_no_key_alive():
    table = {torch.ones(2): 2.0}
    compiled = argand.compile(lambda x: x * sum(table.values()), fullgraph=True, backend="eager")
    assert compiled(torch.ones(2))[0] == 2.0
    alive = weakref.ref(next(iter(table)))
    table.clear()
    gc.collect()
    assert alive() is None
    table[torch.ones(3)] = 3.0
    assert compiled(torch.ones(2))[0] == 3.0


@pytest.mark.parametrize(
    "name", ["add", "sub", "addcmul", "addcdiv", "add_", "sub_", "addcmul_", "addcdiv_"]
)
def test_a_factor_that_is_a_tensor(name):
    keyword = "value" if "addc" in name else "alpha"

    def run(x, y, z, factor):
        args = (y, z) if keyword == "value" else (y,)
        return getattr(x.clone(), name)(*args, **{keyword: factor})

    given = (
        torch.randn(3, 4),
        torch.randn(3, 4),
        torch.rand(3, 4) + 1,
        torch.tensor(0.3, dtype=torch.float64),
    )
    torch.testing.assert_close(argand.compile(run, fullgraph=True)(*given), run(*given))


def test_a_learning_rate_that_changes_compiles_twice_at_most():
    def slower(optimizer):
        optimizer.param_groups[0]["lr"] *= 0.9

    expected = steps(OPTIMIZERS["adam"], False, 12, slower)
    with events.collect() as seen:
        actual = steps(OPTIMIZERS["adam"], True, 12, slower)
    assert_same(actual, expected)
    assert seen.total("capture.graphs") <= 3


LATER = {
    "radam": lambda p: torch.optim.RAdam(p, weight_decay=0.1, foreach=False),
    "radam_foreach": lambda p: torch.optim.RAdam(p, foreach=True),
    "asgd": lambda p: torch.optim.ASGD(p, t0=2.0),
    "adafactor": lambda p: torch.optim.Adafactor(p, weight_decay=0.1),
    "adam_fused": lambda p: torch.optim.Adam(p, fused=True),
    "sgd_fused": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
}


@pytest.mark.parametrize("name", LATER)
def test_numbers_of_the_state_stay_in_the_graph(name):
    assert_same(steps(LATER[name], True, 8), steps(LATER[name], False, 8))


def test_the_first_step_and_all_others_are_one_graph():
    with events.collect() as seen:
        steps(OPTIMIZERS["adam"], True, 5)
    assert seen.total("capture.graphs") == 1


def test_parameters_without_gradients_get_no_state():
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    fill(model, 0)
    model[0].weight.grad = None
    argand.compile(optimizer.step)()
    assert model[0].weight not in optimizer.state and len(optimizer.state) == 5
    fill(model, 1)
    argand.compile(optimizer.step)()
    assert len(optimizer.state) == 6 and optimizer.state[model[0].weight]["step"] == 1


def test_zero_grad_before_a_step_leaves_no_state():
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    fill(model, 0)

    @argand.compile
    def nothing():
        optimizer.zero_grad()
        optimizer.step()

    nothing()
    assert not optimizer.state and all(p.grad is None for p in model.parameters())


def test_a_step_is_one_graph_after_torch_compile_ran_too():
    """torch.compile puts functions of optimizers behind its `disable`: for itself."""
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.ones(2)
    optimizer = torch.optim.SGD([parameter], lr=0.5)
    argand.compile(optimizer.step, fullgraph=True, backend="eager")()
    assert parameter.tolist() == [0.5, 0.5]
