"""Tensor subclasses and modes with `__torch_function__` in compiled functions, against eager."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

import argand


class Plain(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


class Bare(torch.Tensor):
    pass


class Scaled(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs or {})
        return out * 10 if func in (torch.sin, torch.Tensor.sin) else out


class Unit(torch.Tensor):
    @staticmethod
    def __new__(cls, data, unit="m"):
        made = data.as_subclass(cls)
        made.unit = unit
        return made

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        units = [a.unit for a in args if isinstance(a, Unit) and hasattr(a, "unit")]
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and units:
            result = result.as_subclass(cls)
            result.unit = units[0] + "!"
        return result


class Duck:
    def __init__(self, value):
        self.value = value

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        args = [a.value if isinstance(a, Duck) else a for a in args]
        return func(*args, **(kwargs or {})) + 1000


class OwnParameter(torch.nn.Parameter):
    pass


class Hundred(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result + 100 if func in (torch.sin, torch.Tensor.sin) else result


def of(kind, *shape):
    return lambda: torch.randn(*shape).as_subclass(kind)


def in_mode(x):
    with Hundred(), Hundred():
        y = torch.sin(x) * 2
    return y + torch.sin(x)


PROGRAMS = {
    "plain": (lambda x: x.sigmoid() + 1, of(Plain, 3)),
    "inherited": (lambda x: (x * 2).sum(0)[None], of(Bare, 3, 4)),
    "metadata": (lambda x: x.reshape(x.shape[0] * x.size(1)) + len(x) + x.ndim, of(Bare, 3, 4)),
    "changed": (lambda x: x.sin() + torch.sin(x) - x, of(Scaled, 3, 4)),
    "attribute": (lambda x: x.exp() - 1, lambda: Unit(torch.randn(3, 4), "kg")),
    "made inside": (lambda x: Unit(x * 2, "s").cos(), lambda: torch.randn(3, 4)),
    "first operand": (lambda x: (1 - x) / (2 + x) ** 2, of(Plain, 3, 4)),
    "two classes": (lambda x: torch.add(x.as_subclass(torch.Tensor), x) * 2, of(Plain, 3, 4)),
    "function": (lambda x: F.relu(F.linear(x, torch.ones(5, 4))), of(Plain, 3, 4)),
    "list": (lambda x: torch.stack([x, x * 2]).unbind(0), of(Plain, 3, 4)),
    "in place": (lambda x: x.add_(1), of(Plain, 3, 4)),
    "transposed": (lambda x: x.T @ x, of(Plain, 3, 4)),
    "iterated": (lambda x: [row * 2 for row in x], of(Plain, 3, 4)),
    "itself": (lambda x: (x, x * 2), of(Plain, 3, 4)),
    "no tensor": (lambda x: torch.add(Duck(x), 1), lambda: torch.randn(3, 4)),
    "mode": (in_mode, lambda: torch.randn(3, 4)),
}


def leaves(value):
    return torch.utils._pytree.tree_leaves(value)


def same(actual, expected):
    for a, e in zip(leaves(actual), leaves(expected), strict=True):
        assert type(a) is type(e)
        assert a.__dict__ == e.__dict__ and a.requires_grad == e.requires_grad
        torch.testing.assert_close(a.as_subclass(torch.Tensor), e.as_subclass(torch.Tensor))


def seeded(function, make):
    torch.manual_seed(0)
    x = make()
    return function(x), x


@pytest.mark.parametrize("backend", ["eager", "argand"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_override_is_part_of_the_graph(name, backend):
    function, make = PROGRAMS[name]
    compiled = argand.compile(function, fullgraph=True, backend=backend)
    for _ in range(2):
        same(seeded(compiled, make), seeded(function, make))


@pytest.mark.parametrize("kind", [Plain, Scaled])
def test_gradients_go_through_a_subclass(kind):
    def gradient(function):
        torch.manual_seed(0)
        base = torch.randn(3, 4, requires_grad=True)
        out = function(base.as_subclass(kind))
        assert type(out) is kind
        out.as_subclass(torch.Tensor).pow(2).sum().backward()
        return base.grad

    function = lambda x: x.sin() * 3 + x
    torch.testing.assert_close(
        gradient(argand.compile(function, fullgraph=True)), gradient(function)
    )


def test_a_subclass_of_parameter_is_a_plain_tensor_to_torch():
    model = torch.nn.Linear(4, 3)
    model.weight = OwnParameter(model.weight.detach())
    x = torch.randn(2, 4)
    out = argand.compile(model, fullgraph=True)(x)
    assert type(out) is torch.Tensor
    torch.testing.assert_close(out, model(x))
    out.sum().backward()
    assert model.weight.grad is not None and type(model.weight) is OwnParameter


def test_the_class_is_guarded():
    compiled = argand.compile(lambda x: x.sin(), fullgraph=True)
    x = torch.randn(3)
    same(compiled(x), x.sin())
    same(compiled(x.as_subclass(Scaled)), x.as_subclass(Scaled).sin())
    same(compiled(x.as_subclass(Plain)), x.as_subclass(Plain).sin())
    same(compiled(x), x.sin())


def test_an_attribute_is_guarded():
    compiled = argand.compile(lambda x: x + len(x.unit), fullgraph=True)
    for unit in ("m", "kg", "km/h"):
        x = Unit(torch.zeros(2), unit)
        same(compiled(x), x + len(unit))


def test_overrides_run_once_for_what_the_program_calls():
    calls = []

    class Counting(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            calls.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    x = torch.randn(3).as_subclass(Counting)
    compiled = argand.compile(lambda x: (x + 1).exp())
    for _ in range(3):
        calls.clear()
        compiled(x)
        assert calls == ["add", "exp"]


def test_a_break_in_an_override_is_a_break_at_the_call():
    class Reading(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            out = super().__torch_function__(func, types, args, kwargs or {})
            if func is torch.Tensor.exp:
                with torch._C.DisableTorchFunctionSubclass():
                    return out * float(out.sum().item())
            return out

    function = lambda x: (x * 2).exp() + 1
    x = torch.randn(3).as_subclass(Reading)
    same(argand.compile(function)(x), function(x))


def test_a_break_inside_of_a_mode_stays_in_it():
    def function(x):
        with Hundred():
            y = torch.sin(x) * 2
            argand.graph_break()
            y = y + torch.sin(x)
        return y + torch.sin(x)

    x = torch.randn(3)
    compiled = argand.compile(function)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), function(x))
    assert torch._C._len_torch_function_stack() == 0


class Pair(torch.Tensor):
    """Two tensors that every operator is applied to."""

    @staticmethod
    def __new__(cls, a, b, factor=1):
        return torch.Tensor._make_wrapper_subclass(cls, a.shape, dtype=a.dtype, device=a.device)

    def __init__(self, a, b, factor=1):
        self.a, self.b, self.factor = a, b, factor

    def __tensor_flatten__(self):
        return ["a", "b"], self.factor

    @staticmethod
    def __tensor_unflatten__(inner, factor, size, stride):
        return Pair(inner["a"], inner["b"], factor)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        factor = next(x.factor for x in args if isinstance(x, Pair))
        sides = [[getattr(x, side) if isinstance(x, Pair) else x for x in args] for side in "ab"]
        first, second = (func(*side, **(kwargs or {})) for side in sides)
        return Pair(first, second * factor, factor) if isinstance(first, torch.Tensor) else first


def parts_of(value):
    return [value.a, value.b] if isinstance(value, Pair) else [value]


def same_pair(actual, expected):
    assert type(actual) is type(expected) and actual.shape == expected.shape
    torch.testing.assert_close(parts_of(actual), parts_of(expected))


WRAPPED = {
    "pointwise": lambda x: x.sin() * 2,
    "composite": lambda x: F.linear(x, torch.ones(5, 4)).relu(),
    "two": lambda x: (x + x).sum(0),
    "part": lambda x: x.a * 2,
    "made": lambda x: Pair(x.a, x.b * 2, 3) + 1,
    "shape": lambda x: x.reshape(x.shape[1], -1),
}


@pytest.mark.parametrize("backend", ["eager", "argand"])
@pytest.mark.parametrize("name", WRAPPED)
def test_a_wrapper_is_taken_apart_at_the_border_of_a_graph(name, backend):
    compiled = argand.compile(WRAPPED[name], fullgraph=True, dynamic=False, backend=backend)
    for factor in (1, 1, 5):  # what it holds is guarded
        x = Pair(torch.randn(3, 4), torch.randn(3, 4), factor)
        same_pair(compiled(x), WRAPPED[name](x))


def test_training_through_a_wrapper_is_eagers():
    weight = Pair(torch.randn(5, 4), torch.randn(5, 4))

    def run(function):
        x = torch.ones(3, 4, requires_grad=True)
        out = function(x)
        return out, out.requires_grad

    function = lambda x: F.linear(x * 2, weight)
    ours, eagers = run(argand.compile(function)), run(function)
    same_pair(ours[0], eagers[0])
    assert ours[1] == eagers[1]


def test_other_sizes_of_a_wrapper():
    function = lambda x: x.sin() + 1
    compiled = argand.compile(function)
    for n in (3, 5, 7):
        x = Pair(torch.randn(n, 4), torch.randn(n, 4))
        same_pair(compiled(x), function(x))


@dataclasses.dataclass
class Settings:
    """How a `Quantized` is to be read."""

    bias: int
    rows: list[int]


class Quantized(torch.Tensor):
    """Integers with scales, as libraries of quantised weights write it: tables of functions, settings, lists."""

    @staticmethod
    def __new__(cls, values, scale, settings):
        return torch.Tensor._make_wrapper_subclass(cls, values.shape, dtype=scale.dtype)

    def __init__(self, values, scale, settings):
        self.values, self.scale, self.settings, self.block = (
            values,
            scale,
            settings,
            [1, values.shape[1]],
        )

    def __tensor_flatten__(self):
        return ["values", "scale"], {"settings": self.settings}

    @classmethod
    def __tensor_unflatten__(cls, inner, context, size, stride):
        return cls(inner["values"], inner["scale"], context["settings"])

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in FUNCTIONS.get(cls, {}):
            return FUNCTIONS[cls][func](*args, **(kwargs or {}))
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError(f"{func}")


def linear_of_quantized(x, weight, bias=None):
    full = (weight.values.to(x.dtype) - weight.settings.bias) * weight.scale
    return F.linear(x, full[: len(weight.settings.rows)] * weight.block[0], bias)


FUNCTIONS = {Quantized: {F.linear: linear_of_quantized}}


def test_a_wrapper_with_settings_and_lists_is_one_graph():
    def function(x, weight):
        return F.linear(x, weight).relu()

    compiled = argand.compile(function, fullgraph=True, dynamic=False)
    for bias, rows in ((0, 5), (0, 5), (3, 5), (3, 4)):  # settings are guarded
        weight = Quantized(
            torch.arange(20, dtype=torch.int8).view(5, 4),
            torch.rand(5, 1),
            Settings(bias, [0] * rows),
        )
        x = torch.randn(3, 4)
        torch.testing.assert_close(compiled(x, weight), function(x, weight))
    assert torch._C._is_torch_function_enabled()  # as before the trace


def test_questions_about_the_processor_are_settled():
    function = lambda x: x + (1 if torch.cpu._is_avx512_supported() else 2)
    x = torch.ones(3)
    assert torch.equal(argand.compile(function, fullgraph=True)(x), function(x))
