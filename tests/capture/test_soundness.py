"""Soundness of guards: after anything a compiled function relied on has changed, the next call is right again.

Each case gives a function, its arguments, and a change of the world. The function runs compiled before and after the
change, twice each, and must do what it does eagerly.
"""

import collections
import dataclasses
import enum
import functools
import math
import types

import pytest
import torch

import argand

CASES = {}


def case(make):
    CASES[make.__name__] = make
    return make


def x(*shape):
    return torch.arange(1.0, 1.0 + math.prod(shape or (3,))).reshape(shape or (3,))


def run_graph(module, inputs):
    return module.forward


def outcome(function, arguments):
    try:
        return "returned", function(*arguments())
    except Exception as error:
        return "raised", (type(error).__name__, str(error))


def same(found, expected):
    assert type(found) is type(expected), (found, expected)
    if isinstance(expected, tuple | list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            same(one, other)
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
        assert found.requires_grad == expected.requires_grad and found.stride() == expected.stride()
    else:
        assert repr(found) == repr(expected)


class Options:
    scale = 2.0

    def __init__(self, **values):
        self.__dict__.update(values)

    def method(self, t):
        return t * 2


def attribute_case(before, after):
    def make():
        thing = Options(value=before)
        return (
            lambda t: (t * 2, thing.value),
            lambda: (x(),),
            lambda: setattr(thing, "value", after),
        )

    return make


for _name, _pair in {
    "int": (1, 2),
    "bool": (True, False),
    "bool_to_int": (True, 1),
    "int_to_float": (1, 1.0),
    "float": (0.5, 0.25),
    "negative_zero": (0.0, -0.0),
    "nan_to_number": (math.nan, 1.0),
    "none": (None, 3),
    "string": ("a", "b"),
    "tuple": ((1, 2), (1, 3)),
    "tuple_types": ((1, 2), (1.0, 2)),
    "list": ([1], [1, 2]),
    "list_to_tuple": ([1], (1,)),
    "dict": ({"a": 1}, {"a": 2}),
    "dict_keys": ({"a": 1}, {"b": 1}),
    "dict_order": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "dtype": (torch.float32, torch.float64),
    "device": (torch.device("cpu"), torch.device("meta")),
    "size": (torch.Size([1]), torch.Size([2])),
    "range": (range(2), range(3)),
    "slice": (slice(1), slice(2)),
    "bytes": (b"a", b"b"),
    "complex": (1j, 2j),
    "frozenset": (frozenset({1}), frozenset({2})),
    "type": (int, float),
}.items():
    CASES[f"attribute_{_name}"] = attribute_case(*_pair)


def argument_case(before, after, use):
    def make():
        box = [before]
        return use, lambda: (x(), box[0]), lambda: box.__setitem__(0, after)

    return make


for _name, (_before, _after, _use) in {
    "int": (2, 3, lambda t, v: t * v),
    "int_to_bool": (1, True, lambda t, v: (t + v, v)),
    "int_to_float": (2, 2.0, lambda t, v: (t * v, v)),
    "float": (2.0, 3.0, lambda t, v: t * v),
    "list_length": ([1, 2], [1, 2, 3], lambda t, v: t * len(v)),
    "list_item": ([1, 2], [1, 3], lambda t, v: t * v[1]),
    "nested": ({"a": [1, (2, 3)]}, {"a": [1, (2, 4)]}, lambda t, v: t * v["a"][1][1]),
    "dict_item": ({"a": 1}, {"a": 2}, lambda t, v: t * v["a"]),
    "dict_key_missing": ({"a": 1}, {"b": 1}, lambda t, v: t * v.get("a", 7)),
    "dict_contains": ({"a": 1}, {"a": 1, "b": 1}, lambda t, v: t * 2 if "b" in v else t),
    "dict_loop": ({"a": 1}, {"a": 1, "b": 4}, lambda t, v: t * sum(v.values())),
    "none": (None, x(), lambda t, v: t if v is None else t + v),
    "tensor_shape": (x(3), x(1), lambda t, v: t + v),
    "tensor_rank": (x(3), x(2, 3), lambda t, v: t + v.dim()),
    "tensor_dtype": (x(3), x(3).double(), lambda t, v: t + v),
    "tensor_int": (x(3), x(3).int(), lambda t, v: t + v),
    "tensor_stride": (x(3, 3), x(3, 3).t(), lambda t, v: v.contiguous() * 2 + v.stride(0)),
    "tensor_requires_grad": (x(), x().requires_grad_(), lambda t, v: (t * v, (t * v).requires_grad)),
    "tensor_to_parameter": (x(), torch.nn.Parameter(x()), lambda t, v: (t * v, isinstance(v, torch.nn.Parameter))),
    "tensor_to_number": (x(), 4.0, lambda t, v: t * v),
    "tensor_zero_dim": (x(3), torch.tensor(2.0), lambda t, v: t * v),
    "tensor_empty": (x(3), torch.zeros(0), lambda t, v: (t * 2, v * 2, v.numel())),
    "callable": (torch.relu, torch.neg, lambda t, v: v(t)),
    "lambda": (lambda t: t + 1, lambda t: t + 2, lambda t, v: v(t)),
    "partial": (functools.partial(torch.add, alpha=1), functools.partial(torch.add, alpha=3), lambda t, v: v(t, t)),
    "set_argument": ({1, 2}, {1, 3}, lambda t, v: t * (2 in v)),
    "ordered_dict": (collections.OrderedDict(a=1), collections.OrderedDict(a=5), lambda t, v: t * v["a"]),
    "deque": (collections.deque([1]), collections.deque([1, 2]), lambda t, v: t * len(v)),
    "range_length": (range(2), range(4), lambda t, v: t * sum(v)),
    "string_method": ("a", "b", lambda t, v: t * (2 if v == "a" else 3)),
}.items():  # fmt: skip
    CASES[f"argument_{_name}"] = argument_case(_before, _after, _use)


@case
def aliasing_of_arguments():
    box = [x(), x()]

    def f(a, b):
        a.add_(1)
        return a * b

    same_one = []

    def arguments():
        first = box[0].clone()
        return (first, first) if same_one else (first, box[1].clone())

    return f, arguments, lambda: same_one.append(1)


@case
def aliasing_by_a_view():
    flag = []

    def f(a, b):
        a.mul_(2)
        return b + 1

    def arguments():
        base = x()
        return (base, base[:2]) if flag else (base, x()[:2])

    return f, arguments, lambda: flag.append(1)


@case
def identity_of_arguments():
    one, flag = x(), []
    return (
        lambda a, b: a + 1 if a is b else a - 1,
        lambda: (one, one) if flag else (one, one.clone()),
        lambda: flag.append(1),
    )


@case
def closure_variable():
    factor = 2

    def f(t):
        return t * factor

    def change():
        nonlocal factor
        factor = 5

    return f, lambda: (x(),), change


@case
def closure_tensor():
    weight = x()

    def f(t):
        return t * weight

    def change():
        nonlocal weight
        weight = x() * 10

    return f, lambda: (x(),), change


def module_with(source):
    module = types.ModuleType("changing")
    module.__dict__["torch"] = torch
    exec(source, module.__dict__)
    return module


@case
def global_variable():
    module = module_with("K = 2\ndef f(t): return t * K")
    return module.f, lambda: (x(),), lambda: setattr(module, "K", 3)


@case
def global_function():
    module = module_with("def g(t): return t + 1\ndef f(t): return g(t)")
    return module.f, lambda: (x(),), lambda: setattr(module, "g", lambda t: t + 2)


@case
def global_deleted():
    module = module_with("K = 2\ndef f(t): return t * K")
    return module.f, lambda: (x(),), lambda: delattr(module, "K")


@case
def builtin_shadowed():
    module = module_with("def f(t): return t * len([1, 2])")
    return module.f, lambda: (x(),), lambda: setattr(module, "len", lambda items: 9)


@case
def global_list_grows():
    module = module_with("items = [1]\ndef f(t): return t * sum(items)")
    return module.f, lambda: (x(),), lambda: module.items.append(5)


@case
def code_of_a_function():
    def g(t):
        return t + 1

    def h(t):
        return t + 2

    return lambda t: g(t), lambda: (x(),), lambda: setattr(g, "__code__", h.__code__)


@case
def defaults():
    def g(t, k=2):
        return t * k

    return lambda t: g(t), lambda: (x(),), lambda: setattr(g, "__defaults__", (7,))


@case
def keyword_defaults():
    def g(t, *, k=2):
        return t * k

    return lambda t: g(t), lambda: (x(),), lambda: setattr(g, "__kwdefaults__", {"k": 7})


@case
def attribute_appears():
    thing = Options()
    return (
        lambda t: t * (thing.extra if hasattr(thing, "extra") else 3),
        lambda: (x(),),
        lambda: setattr(thing, "extra", 11),
    )


@case
def attribute_disappears():
    thing = Options(extra=4)
    return (
        lambda t: t * getattr(thing, "extra", 3),
        lambda: (x(),),
        lambda: delattr(thing, "extra"),
    )


@case
def class_attribute():
    kind = type("Kind", (Options,), {"scale": 3.0})
    thing = kind()
    return lambda t: t * thing.scale, lambda: (x(),), lambda: setattr(kind, "scale", 4.0)


@case
def instance_attribute_shadows_the_class():
    thing = Options()
    return lambda t: t * thing.scale, lambda: (x(),), lambda: setattr(thing, "scale", 4.0)


@case
def method_replaced_on_the_class():
    kind = type("Kind", (Options,), {})
    thing = kind()
    change = lambda: setattr(kind, "method", lambda self, t: t * 100)
    return lambda t: thing.method(t), lambda: (x(),), change


@case
def method_replaced_on_the_instance():
    thing = Options()
    return (
        lambda t: thing.method(t),
        lambda: (x(),),
        lambda: setattr(thing, "method", lambda t: t * 100),
    )


@case
def class_of_an_object():
    class Other(Options):
        def method(self, t):
            return t - 1

    thing = Options()
    return lambda t: thing.method(t), lambda: (x(),), lambda: setattr(thing, "__class__", Other)


@case
def property_replaced():
    kind = type("Kind", (), {"value": property(lambda self: 2)})
    thing = kind()
    change = lambda: setattr(kind, "value", property(lambda self: 3))
    return lambda t: t * thing.value, lambda: (x(),), change


@case
def base_class_attribute():
    base = type("Base", (), {"k": 2})
    thing = type("Derived", (base,), {})()
    return lambda t: t * thing.k, lambda: (x(),), lambda: setattr(base, "k", 3)


@case
def operator_of_a_class():
    kind = type("Kind", (), {"__add__": lambda self, other: other + 1})
    thing = kind()
    change = lambda: setattr(kind, "__add__", lambda self, other: other + 2)
    return lambda t: thing + t, lambda: (x(),), change


@case
def dataclass_field():
    @dataclasses.dataclass
    class Config:
        width: int = 2

    config = Config()
    return lambda t: t * config.width, lambda: (x(),), lambda: setattr(config, "width", 3)


@case
def enum_member():
    class Kind(enum.Enum):
        A = 1
        B = 2

    thing = Options(kind=Kind.A)
    return (
        lambda t: t * 2 if thing.kind is Kind.A else t * 3,
        lambda: (x(),),
        lambda: setattr(thing, "kind", Kind.B),
    )


@case
def list_item_of_an_attribute():
    thing = Options(items=[1, 2])
    return lambda t: t * thing.items[0], lambda: (x(),), lambda: thing.items.__setitem__(0, 9)


@case
def dict_of_an_attribute():
    thing = Options(table={"a": 1})
    return (
        lambda t: t * sum(thing.table.values()),
        lambda: (x(),),
        lambda: thing.table.update(b=6),
    )


@case
def tensor_attribute_replaced():
    thing = Options(weight=x())
    return lambda t: t * thing.weight, lambda: (x(),), lambda: setattr(thing, "weight", x() * 3)


@case
def tensor_attribute_of_another_shape():
    thing = Options(weight=x())
    return lambda t: t * thing.weight, lambda: (x(),), lambda: setattr(thing, "weight", x(2, 3))


def module_case(change, inputs=lambda: (x(3),)):
    def make():
        torch.manual_seed(0)
        net = torch.nn.Sequential(
            torch.nn.Linear(3, 3), torch.nn.Dropout(1.0), torch.nn.BatchNorm1d(3), torch.nn.ReLU()
        ).eval()
        return net, lambda: (x(2, 3),), functools.partial(change, net)

    return make


def _freeze(net):
    for parameter in net.parameters():
        parameter.requires_grad_(False)


for _name, _change in {
    "training": lambda net: net[1].train(),
    "submodule": lambda net: net.__setitem__(3, torch.nn.Tanh()),
    "parameter": lambda net: setattr(net[0], "weight", torch.nn.Parameter(torch.ones(3, 3))),
    "parameter_in_place": lambda net: net[0].weight.data.fill_(2.0),
    "buffer": lambda net: setattr(net[2], "running_mean", torch.full((3,), 5.0)),
    "no_bias": lambda net: setattr(net[0], "bias", None),
    "hyperparameter": lambda net: setattr(net[2], "eps", 1.0),
    "append": lambda net: net.append(torch.nn.Sigmoid()),
    "forward_hook": lambda net: net[0].register_forward_hook(lambda m, i, o: o * 2),
    "pre_hook": lambda net: net[0].register_forward_pre_hook(lambda m, i: (i[0] + 1,)),
    "frozen": _freeze,
    "forward_replaced": lambda net: setattr(net[3], "forward", lambda t: t * 3),
    "state_dict": lambda net: net.load_state_dict({k: v * 0 + 1 for k, v in net.state_dict().items()}),
}.items():  # fmt: skip
    CASES[f"module_{_name}"] = module_case(_change)


def state_case(use, set_state, undo):
    def make():
        return use, lambda: (x().requires_grad_(),), set_state, undo

    return make


for _name, (_use, _set, _undo) in {
    "grad_mode": (
        lambda t: (t * 2, torch.is_grad_enabled()),
        lambda: torch.set_grad_enabled(False),
        lambda: torch.set_grad_enabled(True),
    ),
    "default_dtype": (
        lambda t: torch.ones(3) * 2,
        lambda: torch.set_default_dtype(torch.float64),
        lambda: torch.set_default_dtype(torch.float32),
    ),
    "autocast": (
        lambda t: t.unsqueeze(0) @ t.unsqueeze(1),
        lambda: torch.set_autocast_enabled("cpu", True),
        lambda: torch.set_autocast_enabled("cpu", False),
    ),
    "deterministic": (
        lambda t: (t * 2, torch.are_deterministic_algorithms_enabled()),
        lambda: torch.use_deterministic_algorithms(True),
        lambda: torch.use_deterministic_algorithms(False),
    ),
    "default_device": (
        lambda t: torch.ones(3).device.type,
        lambda: torch.set_default_device("meta"),
        lambda: torch.set_default_device(None),
    ),
}.items():
    CASES[f"state_{_name}"] = state_case(_use, _set, _undo)


@case
def inference_mode():
    mode = torch.inference_mode()
    use = lambda t: (t * 2).is_inference()
    return use, lambda: (x(),), mode.__enter__, lambda: mode.__exit__(None, None, None)


@case
def function_mode():
    class Doubling(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            return result * 1000 if function is torch.relu else result

    mode = Doubling()
    undo = lambda: mode.__exit__(None, None, None)
    return lambda t: torch.relu(t) + 1, lambda: (x(),), mode.__enter__, undo


@case
def weakly_held_object_replaced():
    box = {"thing": Options(k=2)}
    return (lambda t: t * box["thing"].k, lambda: (x(),), lambda: box.update(thing=Options(k=3)))


@case
def iteration_over_a_changed_list():
    thing = Options(layers=[torch.relu, torch.neg])

    def f(t):
        for layer in thing.layers:
            t = layer(t)
        return t

    return f, lambda: (x(),), lambda: thing.layers.append(torch.exp)


@case
def tensor_data_only():
    weight = x()
    return lambda t: t * weight, lambda: (x(),), lambda: weight.fill_(9.0)


@case
def what_the_body_of_a_class_reads():
    thing = Options(value=2)

    def f(t):
        class Made:
            factor = thing.value

            def scale(self, t):
                return t * self.factor

        return Made().scale(t)

    return f, lambda: (x(),), lambda: setattr(thing, "value", 3)


def autograd_function_case(changed):
    def make():
        things = {"forward": Options(value=2), "backward": Options(value=2)}

        class Scaled(torch.autograd.Function):
            @staticmethod
            def forward(ctx, t):
                return t * things["forward"].value

            @staticmethod
            def backward(ctx, grad):
                return grad * things["backward"].value

        def f(t):
            (grad,) = torch.autograd.grad(Scaled.apply(t).sum(), t)
            return Scaled.apply(t), grad

        return f, lambda: (x().requires_grad_(),), lambda: setattr(things[changed], "value", 3)

    return make


for _name in ("forward", "backward"):
    CASES[f"what_the_{_name}_of_an_autograd_function_reads"] = autograd_function_case(_name)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_an_autograd_function_that_writes_is_left_to_python(backend):
    log = []

    class Logged(torch.autograd.Function):
        @staticmethod
        def forward(ctx, t):
            log.append(len(log))
            return t * 2

        @staticmethod
        def backward(ctx, grad):
            return grad

    compiled = argand.compile(lambda t: Logged.apply(t + 1) * 3, backend=backend)
    assert [compiled(x()).sum().item() for _ in range(3)] == [((x() + 1) * 6).sum().item()] * 3
    assert log == [0, 1, 2]


@pytest.mark.parametrize("name", CASES)
def test_the_next_call_is_right(name):
    function, arguments, change, *undo = CASES[name]()
    compiled = argand.compile(function, backend=run_graph, options={"strict": True})
    try:
        for step in ("before", "after"):
            if step == "after":
                change()
            for _ in range(2):
                expected = outcome(function, arguments)
                same(outcome(compiled, arguments), expected)
    finally:
        for restore in undo:
            restore()


def test_functions_of_torch_with_one_code_are_told_apart():
    """Operators of torch.Tensor are one wrapper's code over different functions."""
    box = [torch.Tensor.__rpow__]
    compiled = argand.compile(lambda x: box[0](x, 5.0), backend="eager")
    assert compiled(torch.tensor(2.0)) == 25.0
    box[0] = torch.Tensor.__rsub__
    assert compiled(torch.tensor(2.0)) == 3.0
