"""`torch.autograd.Function.apply` with arguments that no graph takes."""

import pytest
import torch

import argand
from argand.support import events


class Chain(torch.autograd.Function):
    """A chain of modules, with a gradient of its own."""

    @staticmethod
    def forward(ctx, x, layers):
        assert not torch.is_grad_enabled()
        ctx.save_for_backward(x)
        for layer in layers:
            x = layer(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * 3, None


class Same(torch.autograd.Function):
    """Gives back what it gets."""

    @staticmethod
    def forward(ctx, x, layer):
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


LAYERS = [torch.nn.Linear(3, 3), torch.nn.ReLU()]


def test_modules_as_arguments_where_no_gradient_is_recorded():
    f = argand.compile(
        lambda x: (Chain.apply(x, LAYERS) * 2, torch.is_grad_enabled()),
        backend="eager",
        fullgraph=True,
    )
    x = torch.randn(2, 3)
    for _ in range(2):
        found, enabled = f(x)
        assert (
            torch.equal(found, Chain.apply(x, LAYERS) * 2) and not found.requires_grad and enabled
        )
    with torch.no_grad():
        LAYERS[0].weight.mul_(2)  # read at each call
        assert torch.equal(f(x)[0], Chain.apply(x, LAYERS) * 2)


def test_gradients_are_those_of_the_class():
    f = argand.compile(lambda x: Chain.apply(x, LAYERS) * 2, fullgraph=True)
    x, y = (torch.ones(2, 3, requires_grad=True) for _ in range(2))
    f(x).sum().backward()
    (Chain.apply(y, LAYERS) * 2).sum().backward()
    assert torch.equal(x.grad, y.grad) and x.grad[0, 0] == 6


def test_what_is_given_back_is_a_view():
    f = argand.compile(lambda x: Same.apply(x, LAYERS[0]), backend="eager")
    x = torch.ones(2)
    assert f(x) is not x and Same.apply(x, LAYERS[0]) is not x
    with pytest.raises(argand.CaptureError):
        argand.compile(lambda x: Same.apply(x, LAYERS[0]), backend="eager", fullgraph=True)(x)


class Reversed(torch.autograd.Function):
    """Keeps a module and a number; its backward reads the module's weight."""

    @staticmethod
    def forward(ctx, x, module, scale):
        ctx.module, ctx.scale = module, scale
        ctx.save_for_backward(x)
        return module(x) * scale

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad @ ctx.module.weight * -ctx.scale * x, None, None


class Keeping(torch.autograd.Function):
    """Keeps results, and what it computes on the way."""

    @staticmethod
    def forward(ctx, x, function, y):
        hidden = function(x)
        ctx.exponential = hidden.exp()
        result = hidden * y
        ctx.save_for_backward(result, hidden)
        return result, hidden.cos()

    @staticmethod
    def backward(ctx, first, second):
        result, hidden = ctx.saved_tensors
        return first * ctx.exponential + second * result, None, first * hidden


class Apart(torch.autograd.Function):
    """A forward without a context."""

    @staticmethod
    def forward(x, function):
        return function(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx, grad):
        x, result = ctx.saved_tensors
        return grad * x * result, None


class Once(torch.autograd.Function):
    """Says that its backward cannot be differentiated."""

    @staticmethod
    def forward(ctx, x, function):
        ctx.save_for_backward(x)
        return function(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0], None


PROGRAMS = {
    "reversed": lambda x: Reversed.apply(x * 2, LAYERS[0], 2.0),
    "chained": lambda x: Reversed.apply(Reversed.apply(x, LAYERS[0], 1.0), LAYERS[0], 2.0),
    "keeping": lambda x: torch.stack(Keeping.apply(x * 1, torch.sin, x.cos())),
    "apart": lambda x: Apart.apply(x.sin(), torch.tanh) * 2,
}


def _derivatives(f, rows, twice):
    x = torch.linspace(-1, 1, 3 * rows).view(rows, 3).requires_grad_()
    (slope,) = torch.autograd.grad((f(x) ** 2).sum(), x, create_graph=twice)
    return torch.autograd.grad((slope**2).sum(), x)[0] if twice else slope


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_objects_as_arguments_in_training(name, dynamic):
    f = argand.compile(PROGRAMS[name], fullgraph=True, dynamic=dynamic)
    for rows in (2, 4):
        for twice in (False, True, True):
            expected = _derivatives(PROGRAMS[name], rows, twice)
            torch.testing.assert_close(_derivatives(f, rows, twice), expected)


def test_a_module_is_read_at_each_call():
    f = argand.compile(PROGRAMS["reversed"], fullgraph=True)
    for _ in range(3):
        with torch.no_grad():
            LAYERS[0].weight.mul_(1.5)
        expected = _derivatives(PROGRAMS["reversed"], 2, False)
        torch.testing.assert_close(_derivatives(f, 2, False), expected)


def test_a_backward_that_is_for_once_is_pythons():
    """It hides its gradients' history, which a graph of it would not."""

    def once(x):
        return Once.apply(x.sin(), torch.tanh)

    f = argand.compile(once)
    for twice in (False, True, True):
        expected = _derivatives(once, 2, twice)
        torch.testing.assert_close(_derivatives(f, 2, twice), expected)


class Squared(torch.autograd.Function):
    """Its backward is not linear."""

    @staticmethod
    def forward(ctx, x, function):
        return function(x)

    @staticmethod
    def backward(ctx, grad):
        return grad * grad, None


def clipped(grad):
    return grad.clamp(-0.5, 0.5)


def normalised(grad):
    return grad / grad.norm()


def shifted(grad):
    return grad + 1


def rounded(grad):
    return Rounded.apply(grad * 3)


class Rounded(torch.autograd.Function):
    """Not linear in what it is given, and used in a backward."""

    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return grad


def _bent(formula):
    class Bent(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * x

        @staticmethod
        def backward(ctx, grad):
            return formula(grad)

    return lambda x: Bent.apply((x * 2).sin()).cos() * x


def _given_a_module(x):
    return Squared.apply(x * 2, torch.cos).sin()


BENT = {
    "a module": _given_a_module,
    **{f.__name__: _bent(f) for f in (torch.square, clipped, normalised, shifted, rounded)},
}


@pytest.mark.parametrize("backend", ["argand", "aot_eager", "eager"])
@pytest.mark.parametrize("name", BENT)
def test_a_backward_that_is_not_linear_gets_all_of_its_gradient_at_once(name, backend):
    """It came in two parts to a function inside of a graph: from the result, and from the first derivative."""
    f = argand.compile(BENT[name], fullgraph=True, backend=backend)
    for twice in (False, True, True, False):
        expected = _derivatives(BENT[name], 2, twice)
        torch.testing.assert_close(_derivatives(f, 2, twice), expected)


def masked(grad, x):
    grad = grad.clone()
    grad[x < 0] = 0
    return grad


def of_softmax(grad, x):
    y = x.softmax(-1)
    return y * (grad - (grad * y).sum(-1, keepdim=True))


@pytest.mark.parametrize(
    "formula", [masked, of_softmax, lambda g, x: torch.where(x > 0, g, 0.0) @ x.t() @ x]
)
def test_a_backward_that_is_linear_is_part_of_the_graph(formula):
    class Straight(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.tanh()

        @staticmethod
        def backward(ctx, grad):
            return formula(grad, *ctx.saved_tensors)

    def program(x):
        return Straight.apply(x.sin()).cos()

    with events.collect() as heard:
        compiled = argand.compile(program)
        torch.testing.assert_close(
            _derivatives(compiled, 3, False), _derivatives(program, 3, False)
        )
    assert len(heard.texts("aot_joint_graph")) == 1


WEIGHT = torch.nn.Parameter(torch.eye(3))


class Outside(torch.autograd.Function):
    """Reads a tensor that is no argument."""

    @staticmethod
    def forward(ctx, x):
        return x @ WEIGHT.t()

    @staticmethod
    def backward(ctx, grad):
        return grad @ WEIGHT


class Silent(torch.autograd.Function):
    """Gives a weight no gradient, and reads it in the backward."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(weight)
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        return grad @ ctx.saved_tensors[0], None


class OfModule(torch.autograd.Function):
    """The same of a module's weight."""

    @staticmethod
    def forward(ctx, x, module):
        ctx.module = module
        return x @ module.weight.t()

    @staticmethod
    def backward(ctx, grad):
        return grad @ ctx.module.weight, None


def read_outside(x, module):
    return Outside.apply(Outside.apply(x).sin()) + 0 * module.weight.sum()


def read_silently(x, module):
    return Silent.apply(Silent.apply(x, module.weight).sin(), module.weight)


def read_of_module(x, module):
    return OfModule.apply(OfModule.apply(x, module).sin(), module)


@pytest.mark.parametrize("backend", ["argand", "aot_eager", "eager"])
@pytest.mark.parametrize("program", [read_outside, read_silently, read_of_module])
def test_what_only_a_backward_reads_has_a_second_derivative(program, backend):
    compiled = argand.compile(program, backend=backend)
    module = torch.nn.Linear(3, 3)
    for _ in range(3):
        x = torch.randn(2, 3)
        found = []
        for function in (program, compiled):
            given = x.clone().requires_grad_()
            module.weight.grad = WEIGHT.grad = None
            (slope,) = torch.autograd.grad(
                function(given, module).exp().sum(), given, create_graph=True
            )
            (slope**2).sum().backward()
            found.append([slope, given.grad, module.weight.grad, WEIGHT.grad])
        for expected, actual in zip(*found, strict=True):
            assert (expected is None) == (actual is None)
            torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("backend", ["argand", "aot_eager", "eager"])
def test_a_tensor_that_a_function_reads_from_outside_may_be_another(backend, monkeypatch):
    """It was a constant of the graph."""
    compiled = argand.compile(lambda x: Outside.apply(x) * 2, backend=backend)
    for scale in (1.0, 2.0, 3.0):
        monkeypatch.setitem(globals(), "WEIGHT", torch.eye(3) * scale)
        x = torch.ones(2, 3, requires_grad=True)
        result = compiled(x)
        result.sum().backward()
        torch.testing.assert_close(result, torch.full((2, 3), 2 * scale))
        torch.testing.assert_close(x.grad, torch.full((2, 3), 2 * scale))


class Counted(torch.autograd.Function):
    """Gives numbers beside tensors."""

    @staticmethod
    def forward(ctx, x, k):
        ctx.k = k
        return x * k, k + 1, (x.shape[0] * 2, str(k))

    @staticmethod
    def backward(ctx, gradient, *others):
        return gradient * ctx.k, None


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("node", [False, True], ids=["class", "allow_in_graph"])
def test_numbers_beside_tensors_are_those_of_the_call(grad, node):
    def counted(x, k):
        return x * k, k + 1, (x.shape[0] * 2, str(k))

    call = argand.allow_in_graph(counted) if node else Counted.apply
    f = argand.compile(lambda x, k: call(x, k), backend="eager")
    for size, k in ((2, 2), (3, 3), (4, 5), (5, 4)):
        x = torch.ones(size, requires_grad=grad)
        result = f(x, k)
        assert result[1:] == (k + 1, (size * 2, str(k)))
        assert torch.equal(result[0], torch.full((size,), float(k)))
