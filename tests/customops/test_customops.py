"""Custom operators: definition, implementations, gradients, errors (features.md section 2)."""

import itertools
import pickle
from typing import List, Optional

import numpy as np
import pytest
import torch
from torch import Tensor

from argand.customops import by_name
from argand.customops.definition import custom_op, get_op, pointwise
from argand.customops.errors import (
    ContractViolation,
    GradientError,
    NoImplementation,
    RegistrationError,
    SchemaError,
)
from argand.report.opcheck import opcheck

_numbers = itertools.count()


@pytest.fixture
def fresh():
    return f"argand_test::op{next(_numbers)}"


def make_sin(name):
    @custom_op(name)
    def numpy_sin(x: Tensor) -> Tensor:
        """Sine by numpy."""
        return torch.from_numpy(np.sin(x.detach().numpy()))

    @numpy_sin.impl_fake
    def _(x):
        return torch.empty_like(x)

    numpy_sin.register_autograd(
        lambda ctx, grad: grad * ctx.saved_tensors[0].cos(),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
    )
    return numpy_sin


def test_numpy_kernel(fresh):
    op = make_sin(fresh)
    x = torch.randn(5, requires_grad=True)
    assert torch.allclose(op(x), x.sin())
    (grad,) = torch.autograd.grad(op(x).sum(), x)
    assert torch.allclose(grad, x.cos())
    assert op.__doc__ == "Sine by numpy."
    namespace, name = fresh.split("::")
    assert torch.equal(getattr(getattr(torch.ops, namespace), name)(x), op(x))
    assert repr(op) == f'<CustomOp(op="{fresh}")>'
    assert op(torch.empty(3, device="meta")).shape == (3,)
    assert opcheck(op, (x,)).ok, str(opcheck(op, (x,)))


def test_double_backward_through_the_formula(fresh):
    op = make_sin(fresh)
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad(op(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(grad.sum(), x)
    assert torch.allclose(second, -x.sin())


def test_pickled_by_name(fresh):
    op = make_sin(fresh)
    assert pickle.loads(pickle.dumps(op)) is op
    assert get_op(fresh) is op


def test_in_place_kernel(fresh):
    @custom_op(fresh, mutates_args=("x",))
    def bump(x: Tensor, by: int = 1) -> None:
        x.numpy()[...] += by

    x = torch.zeros(3)
    version = x._version
    bump(x, by=2)
    assert torch.equal(x, torch.full((3,), 2.0))
    assert x._version > version
    assert opcheck(bump, (torch.zeros(2),), checks=["schema: mutation"]).ok
    with pytest.raises(RegistrationError, match="not functional"):
        bump.register_autograd(lambda ctx, grad: grad)


def test_several_outputs_and_argument_kinds(fresh):
    @custom_op(fresh)
    def mix(
        xs: List[Tensor], scale: float, bias: Optional[Tensor] = None, *, times: int = 2
    ) -> tuple[Tensor, List[Tensor], int]:
        total = sum(xs) * scale * times
        return (total if bias is None else total + bias), [x * times for x in xs], len(xs)

    def backward(ctx, total, parts, count):
        return [total * 6 + part * 2 for part in parts], None, None

    mix.register_autograd(backward)
    xs = [torch.randn(2, requires_grad=True) for _ in range(3)]
    total, parts, count = mix(xs, 3.0)
    assert count == 3 and torch.allclose(total, sum(xs) * 6)
    (total.sum() + parts[1].sum()).backward()
    assert torch.equal(xs[0].grad, torch.full((2,), 6.0))
    assert torch.equal(xs[1].grad, torch.full((2,), 8.0))


def test_data_dependent_size(fresh):
    @custom_op(fresh)
    def nonzero(x: Tensor) -> Tensor:
        return torch.from_numpy(np.stack(np.nonzero(x.numpy()), axis=1))

    x = torch.tensor([0.0, 1, 2])
    assert torch.equal(nonzero(x), x.nonzero())


def test_factory(fresh):
    @custom_op(fresh)
    def iota(n: int) -> Tensor:
        return torch.arange(n)

    assert torch.equal(iota(4), torch.arange(4))


def test_backward_by_name(fresh):
    @custom_op(fresh)
    def product(x: Tensor, y: Tensor) -> Tensor:
        return x * y

    @product.impl_save_for_backward
    def save(inputs, output):
        return {"x": inputs.x, "pair": (inputs.y, 3)}

    x, y = (torch.randn(3, requires_grad=True) for _ in range(2))
    with pytest.raises(RegistrationError, match=r"impl_save_for_backward.*no impl_backward"):
        product(x, y)

    @product.impl_backward()
    def backward(ctx, saved, grad):
        return {"x": grad * saved["pair"][0], "y": grad * saved["x"]}

    product(x, y).sum().backward()
    assert torch.equal(x.grad, y) and torch.equal(y.grad, x)


def test_output_differentiability(fresh):
    @custom_op(fresh)
    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2, x * 3

    for wrong in ([True], [1, 2], "no"):
        with pytest.raises(RegistrationError, match="2 bools"):
            both.impl_backward(output_differentiability=wrong)

    both.impl_save_for_backward(lambda inputs, output: None)
    both.impl_backward(
        lambda ctx, saved, first, second: {"x": first * 2}, output_differentiability=[True, False]
    )
    first, second = both(torch.randn(2, requires_grad=True))
    assert first.requires_grad and not second.requires_grad


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda g: [g], "must return a dict"),
        (lambda g: {"z": g}, "expected x, xs"),
        (lambda g: {"x": 3, "xs": None}, "is a int, not a Tensor"),
        (lambda g: {"x": g, "xs": [g]}, "must be a list of 2, got a list of 1"),
        (lambda g: {"x": g, "xs": g}, "must be a list of 2, got a Tensor"),
    ],
)
def test_wrong_gradient_structure(fresh, answer, words):
    @custom_op(fresh)
    def add(x: Tensor, xs: List[Tensor], n: int) -> Tensor:
        return x + sum(xs) + n

    add.impl_save_for_backward(lambda inputs, output: None)
    add.impl_backward(lambda ctx, saved, grad: answer(grad))
    x = torch.randn(2, requires_grad=True)
    with pytest.raises(GradientError, match=words):
        add(x, [x, x], 1).sum().backward()


def test_wrong_number_of_gradients(fresh):
    @custom_op(fresh)
    def add(x: Tensor, y: Tensor) -> Tensor:
        return x + y

    add.register_autograd(lambda ctx, grad: (grad, grad, grad))
    x = torch.randn(2, requires_grad=True)
    with pytest.raises(GradientError, match=r"3 gradients for 2 arguments \(x, y\)"):
        add(x, x).sum().backward()


def test_missing_gradient_formula(fresh):
    @custom_op(fresh)
    def double(x: Tensor) -> Tensor:
        return x * 2

    x = torch.ones(2, requires_grad=True)
    with torch.no_grad():
        double(x)
    y = double(x)
    with pytest.raises(NoImplementation, match="no gradient formula"):
        y.sum().backward()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("foo", "no namespace"),
        ("aten::foo", "reserved"),
        ("prims::foo", "reserved"),
        ("my::a.b", "dot"),
        ("a.b::f", "dot"),
        ("my::a-b", "identifier"),
    ],
)
def test_bad_names(name, words):
    with pytest.raises(SchemaError, match=words):

        @custom_op(name)
        def f(x: Tensor) -> Tensor:
            return x.clone()


@pytest.mark.parametrize("make", [custom_op, pointwise])
def test_definition_errors(make, fresh):
    with pytest.raises(SchemaError, match="expected a Python function"):
        make(fresh, 3)

    def f(x: Tensor) -> Tensor:
        return x.clone()

    with pytest.raises(SchemaError, match=r"takes \(x\), the schema \(y\)"):
        make(fresh, f, schema="(Tensor y) -> Tensor")
    with pytest.raises(SchemaError, match="view of an argument"):
        make(fresh, f, schema="(Tensor(a) x) -> Tensor(a)")
    with pytest.raises(SchemaError, match="torch refuses .* unknown type"):
        make(fresh, f, schema="(Tensr x) -> Tensor")
    make(fresh, f, schema="(Tensor x) -> Tensor")
    with pytest.raises(RegistrationError, match=r"defined already, at .*test_customops.py"):
        make(fresh, f)


def test_registered_twice(fresh):
    op = make_sin(fresh)
    with pytest.raises(RegistrationError, match="already has an implementation for cpu, at"):
        op.impl("cpu", lambda x: x)
    with pytest.raises(RegistrationError, match="already has a fake, at"):
        op.impl_fake(lambda x: x)
    with pytest.raises(RegistrationError, match="already has a gradient formula"):
        op.register_autograd(lambda ctx, grad: grad)
    with pytest.raises(RegistrationError, match="'tpu' is not supported"):
        op.impl("tpu", lambda x: x)


def test_no_implementation(fresh):
    @custom_op(fresh, device_types="cuda")
    def f(x: Tensor) -> Tensor:
        return x.clone()

    with pytest.raises(NoImplementation, match="for cpu .it has: cuda"):
        f(torch.ones(2))
    calls = []
    f.impl("cpu", lambda x: calls.append(1) or x + 1)
    assert torch.equal(f(torch.ones(2)), torch.full((2,), 2.0))
    with pytest.raises(NoImplementation, match="no fake implementation.*uses 'calls', a list"):
        f(torch.ones(2, device="meta"))


def test_contract_violations(fresh):
    @custom_op(fresh)
    def view(x: Tensor) -> Tensor:
        return x.view(-1)

    @custom_op(fresh + "b")
    def mutate(x: Tensor) -> Tensor:
        x.add_(1)
        return x.clone()

    @custom_op(fresh + "c")
    def wrong(x: Tensor) -> Tensor:
        return 3

    with pytest.raises(ContractViolation, match="output 0 .* shares memory with an input"):
        view(torch.ones(2))
    with pytest.raises(ContractViolation, match="does not name in mutates_args"):
        mutate(torch.ones(2))
    with pytest.raises(ContractViolation, match="is a int, not a Tensor"):
        wrong(torch.ones(2))


def test_destroy_frees_the_name(fresh):
    op = make_sin(fresh)
    op.destroy()
    make_sin(fresh).destroy()


def test_works_on_torch_library_operators(fresh):
    @torch.library.custom_op(fresh, mutates_args=())
    def plain(x: Tensor) -> Tensor:
        return x * 2

    by_name.impl_fake(fresh)
    op = get_op(fresh)
    assert torch.equal(op(torch.ones(2)), torch.full((2,), 2.0))
    with pytest.raises(RegistrationError, match="no operator"):
        get_op("argand_test::nowhere")


def test_autocast(fresh):
    @custom_op(fresh)
    def matmul(x: Tensor, y: Tensor) -> Tensor:
        return x @ y

    matmul.impl_autocast("cpu", torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert matmul(torch.ones(2, 2), torch.ones(2, 2)).dtype == torch.bfloat16


def test_vmap(fresh):
    op = make_sin(fresh)
    op.impl_vmap(lambda info, in_dims, x: (op(x), in_dims[0]))
    x = torch.randn(3, 2)
    assert torch.allclose(torch.vmap(op)(x), x.sin())


def test_opcheck_finds_lies(fresh):
    @custom_op(fresh)
    def liar(x: Tensor) -> Tensor:
        x.numpy()[...] = 0
        return torch.zeros(x.shape)

    @liar.impl_fake
    def _(x):
        return torch.empty(3, dtype=torch.float64)

    liar.register_autograd(lambda ctx, grad: grad)
    report = opcheck(liar, (torch.ones(2, 2, requires_grad=True),))
    failed = {outcome.check for outcome in report.outcomes if outcome.failure}
    assert {"schema: mutation", "fake against real", "gradients by finite differences"} <= failed
    with pytest.raises(ContractViolation, match="FAILED"):
        opcheck(liar, (torch.ones(2),), raise_exception=True)


def test_pointwise_formula_fuses_and_differentiates(fresh):
    @pointwise(fresh)
    def gate(x: Tensor, y: Tensor, scale: float = 2.0) -> Tensor:
        return x * torch.sigmoid(y) * scale

    x, y = (torch.randn(3, 4, requires_grad=True) for _ in range(2))
    expected = torch.autograd.grad((x * torch.sigmoid(y) * 3).sum(), (x, y))
    got = torch.autograd.grad(gate(x, y, 3.0).sum(), (x, y))
    assert all(torch.allclose(a, b) for a, b in zip(expected, got))

    import argand
    from argand.support import events

    compiled = argand.compile(lambda a, b: gate(a + 1, b).sin(), fullgraph=True)
    with events.collect() as heard:
        result = compiled(x, y)
    assert torch.allclose(result, gate(x + 1, y).sin(), atol=1e-5)
    (graph,) = heard.texts("aot_graphs")[:1]
    assert "aten.sigmoid" in graph and "argand_test" not in graph


def test_pointwise_refuses_other_formulas(fresh):
    with pytest.raises(SchemaError, match="not elementwise"):

        @pointwise(fresh)
        def total(x: Tensor) -> Tensor:
            return x / x.sum()


def test_opaque_in_compiled_graphs(fresh):
    import argand

    op = make_sin(fresh)
    x = torch.randn(4, requires_grad=True)
    compiled = argand.compile(lambda t: op(t * 2).sum(), fullgraph=True)
    for _ in range(2):
        x.grad = None
        compiled(x).backward()
        assert torch.allclose(x.grad, 2 * (2 * x).cos(), atol=1e-5)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "argand"])
def test_mutable_operator_in_compiled_graphs(fresh, backend):
    import argand

    @custom_op(fresh, mutates_args=("x",))
    def bump(x: Tensor, by: int = 1) -> None:
        x.numpy()[...] += by

    @bump.impl_fake
    def _(x, by=1):
        return None

    def f(t):
        u = t.clone()
        bump(u, by=3)
        bump(t)
        return u * 2

    ours, theirs = torch.zeros(3), torch.zeros(3)
    assert torch.equal(argand.compile(f, backend=backend, fullgraph=True)(ours), f(theirs))
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("backend", ["aot_eager", "argand"])
def test_torch_library_operator_untouched(fresh, backend):
    import argand

    @torch.library.custom_op(fresh, mutates_args=())
    def cube(x: Tensor) -> Tensor:
        return x.detach().clone() ** 3

    cube.register_fake(lambda x: torch.empty_like(x))
    cube.register_autograd(
        lambda ctx, grad: grad * 3 * ctx.saved_tensors[0] ** 2,
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
    )
    x = torch.randn(4, requires_grad=True)
    compiled = argand.compile(lambda t: cube(t).sin(), fullgraph=True, backend=backend)
    assert torch.allclose(compiled(x), (x**3).sin(), atol=1e-5)
    (got,) = torch.autograd.grad(compiled(x).sum(), x)
    (expected,) = torch.autograd.grad((x**3).sin().sum(), x)
    assert torch.allclose(got, expected, atol=1e-5)
