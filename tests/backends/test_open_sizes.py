"""Backends of users get graphs with open sizes where sizes varied, and their code proves itself."""

import warnings

import pytest
import torch

import argand


def noting(graphs):
    def backend(gm, example_inputs, **keywords):
        graphs.append([x for x in example_inputs if not isinstance(x, torch.Tensor)])
        return gm.forward

    return backend


@pytest.fixture
def registered():
    names = []

    def register(function, **keywords):
        names.append(f"{function.__name__}_{len(names)}")
        argand.register_backend(function, name=names[-1], **keywords)
        return names[-1]

    yield register
    for name in names:
        argand.backends.registry.unregister_backend(name)


def test_a_second_compile_when_a_size_changed_and_none_after_it():
    graphs = []
    f = argand.compile(lambda x: x.sin() * x.shape[0], backend=noting(graphs))
    for n in range(3, 9):
        assert torch.equal(f(torch.ones(n, 3)), torch.ones(n, 3).sin() * n)
    assert graphs == [[], [4]]  # the size is an input of the second graph


def test_integers_too():
    graphs = []
    f = argand.compile(lambda x, n: x * n, backend=noting(graphs))
    for n in range(2, 8):
        assert torch.equal(f(torch.ones(3), n), torch.full((3,), float(n)))
    assert len(graphs) == 2


def test_dynamic_false_and_registered_never_get_fixed_sizes(registered):
    for open_sizes, keywords, count in (
        ("always", {"dynamic": False}, 4),
        ("never", {}, 4),
        ("asked", {}, 4),
    ):
        graphs = []
        name = registered(noting(graphs), open_sizes=open_sizes)
        f = argand.compile(lambda x: x + x.shape[0], backend=name, **keywords)
        for n in range(3, 7):
            assert torch.equal(f(torch.ones(n)), torch.ones(n) + n)
        assert len(graphs) == count and not any(graphs), open_sizes
    with pytest.raises(argand.InvalidBackend, match="open_sizes"):
        argand.register_backend(noting([]), name="wrong", open_sizes="sometimes")


def test_asked_gets_them_when_asked(registered):
    graphs = []
    f = argand.compile(
        lambda x: x + x.shape[0],
        backend=registered(noting(graphs), open_sizes="asked"),
        dynamic=True,
    )
    for n in range(3, 7):
        assert torch.equal(f(torch.ones(n)), torch.ones(n) + n)
    assert len(graphs) == 1


def building_in(gm, example_inputs):
    """A backend that builds the sizes of its example into its code, as one that traces would."""
    numbers = [x for x in example_inputs if not isinstance(x, torch.Tensor)]

    def run(*inputs):
        old = iter(numbers)
        return gm.forward(*[x if isinstance(x, torch.Tensor) else next(old) for x in inputs])

    return run


def test_code_that_built_sizes_in_is_found_out():
    f = argand.compile(lambda x: x * x.shape[0], backend=building_in, dynamic=True)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for n in range(3, 8):
            assert torch.equal(f(torch.ones(n)), torch.full((n,), float(n)))
    assert len([w for w in told if "open_sizes" in str(w.message)]) == 1


def test_what_such_code_wrote_is_put_right():
    def function(x):
        x.mul_(x.shape[0])
        return x + 1

    f = argand.compile(function, backend=building_in, dynamic=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in (3, 5, 6):
            x = torch.ones(n)
            assert torch.equal(f(x), torch.full((n,), n + 1.0)) and torch.equal(
                x, torch.full((n,), float(n))
            )


def test_random_numbers_are_drawn_once():
    f = argand.compile(lambda x: x + torch.rand(x.shape), backend=noting([]), dynamic=True)
    for n in (3, 4, 5):
        torch.manual_seed(n)
        found = [f(torch.ones(n)), torch.rand(2)]
        torch.manual_seed(n)
        assert torch.equal(found[0], 1 + torch.rand(n)) and torch.equal(found[1], torch.rand(2))


def test_gradients_go_through_code_that_proved_itself():
    backend = argand.aot_autograd(fw_compiler=lambda gm, inputs: argand.make_boxed_func(gm.forward))
    f = argand.compile(lambda x: (x.sin() * x.shape[0]).sum(), backend=backend)
    for n in (3, 4, 5, 6):
        x = torch.ones(n, requires_grad=True)
        f(x).backward()
        torch.testing.assert_close(x.grad, torch.ones(n).cos() * n)


def test_equal_options_compile_once():
    graphs = []
    backend = noting(graphs)

    def function(x):
        return x.sin() + 1

    for level in (3, 3, 4, 3):
        compiled = argand.compile(function, backend=backend, options={"level": level})
        assert torch.equal(compiled(torch.ones(2)), torch.ones(2).sin() + 1)
    assert len(graphs) == 2
    argand.compile(function, backend=backend, options={"level": 3}, isolate_recompiles=True)(
        torch.ones(2)
    )
    assert len(graphs) == 3
