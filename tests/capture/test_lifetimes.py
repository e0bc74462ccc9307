"""A capture holds nothing of the call it was made in: inputs die when the caller drops them."""

import functools
import gc
import weakref

import pytest
import torch

import argand
from argand.capture.outside import pure


def plain(x):
    return x + x


def broken(x):
    y = x * 2
    print(end="")
    return y + x


def branching(x):
    return x + 1 if x.sum().item() > -1e9 else x - 1


def caught(x):
    try:
        raise ValueError("of the program")
    except ValueError:
        return x * 3


def from_a_list(x):
    rows = [x, x + 1]
    return sum(row.sum() for row in rows)


def generated(x):
    return sum(part * 2 for part in x.unbind())


def changed(x):
    x.mul_(2)
    return x.sum()


def shaped(x):
    return x.view(-1).sum() * x.shape[0] + (1 if x.shape[0] > 3 else 2)


def trained(x):
    return (x.tanh() * x).sum()


def left_to_python(x):
    return max([x.sum(), x.mean()], key=lambda value: value.item())


def failing(x):
    return x @ torch.ones(99, 99)


FUNCTIONS = [
    plain,
    broken,
    branching,
    caught,
    from_a_list,
    generated,
    changed,
    shaped,
    trained,
    left_to_python,
]


@pytest.fixture
def no_collections():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def held(compiled, make, sizes):
    """The sizes of the inputs that outlived their calls."""
    kept = []
    for size in sizes:
        x = make(size)
        reference = weakref.ref(x)
        result = compiled(x)
        if isinstance(result, torch.Tensor) and result.requires_grad:
            result.sum().backward()
        del x, result
        if reference() is not None:
            kept.append(size)
    return kept


def leaf(size, requires_grad):
    return torch.rand(size, 3, requires_grad=requires_grad)


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("backend", ["eager", "argand"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_inputs_die_with_their_call(function, backend, requires_grad, no_collections):
    if function is changed and requires_grad:
        return  # eager refuses it
    options = {"cache": False} if backend == "argand" else None
    compiled = argand.compile(function, backend=backend, options=options)
    make = functools.partial(leaf, requires_grad=requires_grad)
    make(2).sum()  # what torch keeps at its first use is not ours
    assert held(compiled, make, (4, 5, 6, 7)) == []


def test_inputs_die_when_the_call_fails(no_collections):
    compiled = argand.compile(failing, backend="eager")
    x = torch.rand(4, 4)
    reference = weakref.ref(x)
    with pytest.raises(RuntimeError):
        compiled(x)
    del x
    assert reference() is None


def test_what_is_known_of_a_class_does_not_keep_it():
    def make():
        class Local:
            pass

        return Local

    kind = make()
    assert pure.is_own(kind)
    gone = weakref.ref(kind)
    del kind
    gc.collect()
    assert gone() is None
