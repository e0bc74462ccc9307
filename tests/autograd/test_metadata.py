"""Metadata is part of the answer: offsets, bits, strides, aliasing, versions, as eager leaves them."""

import pytest
import torch

import argand
from tools.answers import differences, observe


def check(function, *make, second=()):
    """Compare a program with eager, on inputs made anew for each run; then once more, on other inputs."""
    compiled = argand.compile(function)
    for makers in (make, second) if second else (make,):
        eager, ours = (observe(run, *made(makers)) for run in (function, compiled))
        assert differences(eager, ours) == []


def made(makers):
    torch.manual_seed(0)
    return [one() for one in makers]


def base():
    return torch.arange(28.0).view(7, 4)


def slices():
    return base()[2:]


def test_a_tensor_turned_over_in_place_was_written_before():
    def written(x):
        w = x.gather(1, torch.tensor([[0], [1], [2]]))
        w.mul_(2)
        w.t_()
        return w, w + 1

    check(written, base)


def test_one_of_several_results_is_turned_over():
    def several(x):
        values, places = x.sort(1)
        values.t_()
        return values, places, values * 2

    check(several, base)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.t_(),
        lambda t: t.transpose_(0, 1),
        lambda t: t.unsqueeze_(1),
        lambda t: t.unsqueeze_(0).squeeze_(0),
        lambda t: t.unsqueeze_(0).squeeze_(),
        lambda t: t.swapaxes_(0, 1),
        lambda t: t.as_strided_((2, 3), (1, 4), 2),
    ],
)
@pytest.mark.parametrize(
    "copied", [lambda t: t.clone(), lambda t: t * 1, lambda t: t.to(torch.float32, copy=True)]
)
def test_copies_of_slices_are_turned_over(copied, change):
    def program(t):
        copy = copied(t)
        old = copy.view(-1)
        change(copy)
        copy.mul_(2)
        return copy, old, copy + 1

    check(program, slices)


def test_quantile_over_a_dimension():
    for shape, dim in (((2, 1), 1), ((3, 100), 1), ((7, 64), 0), ((4, 5, 6), 1)):
        check(lambda x, dim=dim: x.quantile(0.3, dim=dim), lambda shape=shape: torch.randn(shape))


def test_strides_given_by_hand_count_from_the_storage():
    check(lambda t: t.as_strided((2, 2), (4, 1), 0) + 1, slices)
    check(lambda t: t.as_strided((2, 2), (4, 1)) + 1, slices, second=[base])
    check(lambda t: t.as_strided((2, 2), (4, 1), 9) + 1, slices)
    check(lambda t: t.as_strided((2, 2), (4, 1), 9).mul_(2), slices)
    check(lambda t: t[1:].as_strided((2, 2), (1, 4), 13).add_(t.sum()), slices)


def test_an_argument_is_written_before_an_operator_that_promises_new_memory():
    def program(t):
        t.mul_(2)
        return torch.kron(t, torch.eye(2))

    check(program, lambda: torch.ones(2, 2))


def test_views_of_one_memory_in_several_types():
    def first(x):
        v = (x * 2)[1:]
        return v, v.view(torch.int32)

    def second(x):
        v = (x * 2).view(torch.int16)
        return v[2:], v.view(torch.float32)[1:]

    def third(x):
        v = (x * 2).view(torch.int32)
        return v, v.view(torch.float32), x.view(torch.uint8)[4:]

    for function in (first, second, third):
        check(function, lambda: torch.rand(4))


def test_a_history_that_no_result_depends_on_is_not_walked():
    def program(x):
        m, u = x.mean(0), x.unique() > 0
        return m.sinh(), u.any(), u.int()

    x = torch.randn(5, requires_grad=True)
    argand.compile(program)(x)[0].backward()
    assert x.grad is not None

    used = torch.randn(3, requires_grad=True)
    freed = used * used
    freed.sum().backward()
    result, _ = argand.compile(lambda a, b: (a.sin(), b > 0))(x, freed)
    result.sum().backward()


def test_zero_tensors():
    def program(x):
        return (x.sgn() * x).sum()

    x = torch.randn(8, requires_grad=True)
    (wanted,) = torch.autograd.grad(program(x), x)
    (found,) = torch.autograd.grad(argand.compile(program)(x), x)
    assert torch.equal(found, wanted)
    # as a tangent, as an argument
    (found,) = torch.autograd.grad(argand.compile(torch.sin)(x).sgn().sum(), x)
    assert not found.any()
    assert torch.equal(
        argand.compile(lambda a: a + 1)(torch._efficientzerotensor(3)), torch.ones(3)
    )


def test_storage_offsets_are_seen_and_guarded():
    check(
        lambda x: x * 2 + x.storage_offset(),
        lambda: torch.arange(10.0)[3:7],
        second=[lambda: torch.arange(10.0)[2:6]],
    )
    check(
        lambda x: x[1:] * 2 + x[1:].storage_offset(),
        lambda: torch.arange(10.0)[3:7],
        second=[lambda: torch.arange(10.0)[:4]],
    )
    check(
        lambda x: x.as_strided((2,), (1,), 2) + 1,
        lambda: torch.arange(10.0)[2:6],
        second=[lambda: torch.arange(10.0)[1:5]],
    )
    # nobody asks: one entry serves slices of a table wherever they begin
    calls = []
    compiled = argand.compile(lambda x: x * 2, backend=lambda gm, _: calls.append(gm) or gm.forward)
    table = torch.arange(10.0)
    for start in range(4):
        assert torch.equal(compiled(table[start : start + 4]), table[start : start + 4] * 2)
    assert len(calls) == 1


def negative():
    return torch.complex(torch.zeros(4), torch.arange(4.0)).conj().imag


def conjugate():
    return torch.complex(torch.arange(4.0), torch.arange(4.0) + 1).conj()


def both():
    """A real view with the negative bit and strides of its own."""
    return torch.randn(6, 3, dtype=torch.complex64).conj().imag.t()[1:, ::2]


def complexes():
    return torch.randn(6, dtype=torch.complex64)


@pytest.mark.parametrize(
    "made", [negative, conjugate, both], ids=["negative", "conjugate", "strided"]
)
@pytest.mark.parametrize(
    "program",
    [
        lambda a: a + 1,
        lambda a: a,
        lambda a: a[1:],
        lambda a: a.detach(),
        lambda a: (a[1:] * 2, a.reshape(-1)[1:], a.is_neg(), a.is_conj()),
        lambda a: a.mul_(2),
        lambda a: (a[:1].mul_(2), a + 1),
        lambda a: (a.resolve_neg(), a.resolve_conj(), a.clone()),
        lambda a: torch._neg_view(a),
        lambda a: (a * 2).conj(),
        lambda a: (a.sin().sum(), a.add_(a)),
    ],
)
def test_arguments_with_bits(program, made):
    check(program, made, second=[made])


@pytest.mark.parametrize(
    "program",
    [
        lambda a: a.conj(),
        lambda a: a.conj() + 1,
        lambda a: (a * 2).conj(),
        lambda a: (a * 2).conj().detach(),
        lambda a: a.conj().imag,
        lambda a: a.conj().imag + 1,
        lambda a: a.conj().imag[::2] * 3,
        lambda a: (a.conj().imag, a.conj().real, a.imag),
        lambda a: a.conj().imag.mul_(2),
        lambda a: (a.conj().mul_(2j), a + 1),
        lambda a: a.view(2, 3).mH @ a.view(2, 3),
        lambda a: (a.clone().conj()[1:].add_(1), a.conj().conj()),
        lambda a: torch.view_as_real(a.conj().resolve_conj()),
    ],
)
def test_bits_made_inside(program):
    check(program, complexes)


def test_gradients_through_bits():
    for made in (negative, conjugate, both):
        grads = []
        for run in (torch.sin, argand.compile(lambda a: a.sin())):
            torch.manual_seed(0)
            x = made().detach().requires_grad_()
            (first,) = torch.autograd.grad(run(x).abs().pow(2).sum(), x, create_graph=True)
            (second,) = torch.autograd.grad(first.abs().sum(), x)
            grads.append((first, second))
        for one, two in zip(*grads, strict=True):
            assert torch.allclose(one, two, atol=1e-5)


def test_results_without_a_tangent_give_no_nan():
    """A zero in place of a missing tangent, times an infinite derivative, would be one."""

    def program(a):
        return a.sqrt(), a.rsqrt(), a.log1p()

    a = torch.tensor([-0.5, 0.5, 0.0], requires_grad=True)
    for create_graph in (False, True):
        for _ in range(2):
            (wanted,) = torch.autograd.grad(program(a)[2].sum(), a)
            compiled = argand.compile(program)
            (found,) = torch.autograd.grad(compiled(a)[2].sum(), a, create_graph=create_graph)
            assert torch.allclose(found, wanted)
            (found,) = torch.autograd.grad(compiled(a)[2].sum(), a, create_graph=create_graph)
            assert torch.allclose(found, wanted)


@pytest.mark.parametrize(
    "cut",
    [lambda a: a.detach() * 2, lambda a: torch.no_grad()(torch.mul)(a, 2), lambda a: a.data * 2],
)
def test_gradients_of_gradients_know_what_is_hidden_from_autograd(cut):
    def program(a):
        v = cut(a)
        v.add_(a)
        return v * a

    a = torch.ones(3, requires_grad=True)
    compiled = argand.compile(program)
    for _ in range(3):  # from the second call on gradients are linked, where they can be
        both = []
        for run in (program, compiled):
            (first,) = torch.autograd.grad(run(a).pow(2).sum(), a, create_graph=True)
            both.append((first, *torch.autograd.grad(first.sum(), a)))
        assert all(map(torch.allclose, *both))


def test_versions_rise_where_a_view_of_an_argument_is_turned_over():
    for function in (
        lambda a: a[1:].t_(),
        lambda a: a.detach().unsqueeze_(0),
        lambda a: (a.view(-1).unsqueeze_(0), a.mul_(2)),
    ):
        check(function, base)


@pytest.mark.parametrize(
    "program",
    [lambda x: x.split(2)[-1], lambda x: x.chunk(2)[1] + 0, lambda x: (x.split(2)[1], x[1:3])],
)
def test_views_of_elements_that_share_memory_keep_their_own_gradients(program):
    compiled = argand.compile(program)
    gradients = []
    for run in (program, compiled, compiled):
        x = torch.ones(1, dtype=torch.float64).expand(4).requires_grad_()
        results = run(x)
        total = sum(
            (k + 1) * r.sum()
            for k, r in enumerate(results if isinstance(results, tuple) else [results])
        )
        gradients.append(torch.autograd.grad(total, x)[0].tolist())
    assert gradients[0] == gradients[1] == gradients[2]


def test_the_transpose_of_one_number_is_a_transpose_to_autograd():
    compiled = argand.compile(lambda x: x.t())
    weights = torch.arange(9.0).view(3, 3)
    x = torch.ones(1).expand(3, 3).requires_grad_()
    (compiled(x) * weights).sum().backward()
    torch.testing.assert_close(x.grad, weights.t())


@pytest.mark.parametrize("tracked", [False, True])
def test_a_leaf_made_inside_gets_its_gradient_from_what_depends_on_it(tracked):
    def f(x):
        leaf = x.detach().clone().requires_grad_()
        return leaf, (leaf**3).sum(), x * 2

    leaf, loss, _ = argand.compile(f)(torch.ones(3, requires_grad=tracked))
    assert leaf.is_leaf
    loss.backward()
    torch.testing.assert_close(leaf.grad, torch.full((3,), 3.0))
