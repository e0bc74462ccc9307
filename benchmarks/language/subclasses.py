"""benchmarks.language.subclasses: tensor subclasses, objects and modes with `__torch_function__`, wrapper subclasses."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from benchmarks.language.program import Compile, program, scenario, two


class Plain(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_function__(func, types, args, kwargs or {})


class Bare(torch.Tensor):
    pass


class Scaled(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = super().__torch_function__(func, types, args, kwargs or {})
        return out * 10 if func in (torch.sin, torch.Tensor.sin) else out


class Metadata(torch.Tensor):
    tag: str

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tags = [a.tag for a in args if isinstance(a, Metadata) and hasattr(a, "tag")]
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and tags:
            result = result.as_subclass(cls)
            result.tag = tags[0]
        return result


class OwnParameter(nn.Parameter):
    pass


class Doubling(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result * 2 if func in (torch.sin, torch.Tensor.sin) else result


class Duck:
    def __init__(self, value: Tensor) -> None:
        self.value = value

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*[a.value if isinstance(a, Duck) else a for a in args], **(kwargs or {}))


class Pair(torch.Tensor):
    """Two tensors that every operator is applied to."""

    a: Tensor
    b: Tensor

    @staticmethod
    def __new__(cls, a: Tensor, b: Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, a.shape, dtype=a.dtype, device=a.device)

    def __init__(self, a: Tensor, b: Tensor) -> None:
        self.a, self.b = a, b

    def __tensor_flatten__(self) -> Any:
        return ["a", "b"], None

    @staticmethod
    def __tensor_unflatten__(inner: Any, _meta: Any, _size: Any, _stride: Any) -> Any:
        return Pair(inner["a"], inner["b"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        first, second = (
            func(*[getattr(x, side) if isinstance(x, Pair) else x for x in args], **(kwargs or {}))
            for side in "ab"
        )
        return Pair(first, second) if isinstance(first, Tensor) else first


def _plain(value: Any) -> Any:
    if isinstance(value, Pair):
        return _plain(value.a), _plain(value.b)
    return value.as_subclass(torch.Tensor) if isinstance(value, Tensor) else value


def _run(compile: Compile, kind: Any, function: Any, calls: int = 2) -> Any:
    torch.manual_seed(0)
    compiled = compile(function)
    results = [compiled(torch.randn(3, 4).as_subclass(kind)) for _ in range(calls)]
    return [(type(r).__name__, _plain(r)) for r in results]


@scenario
def override_by_super(compile: Compile) -> Any:
    return _run(compile, Plain, lambda x: x.sigmoid() + 1)


@scenario
def override_inherited(compile: Compile) -> Any:
    return _run(compile, Bare, lambda x: (x * 2).sum(0)[None])


@scenario
def override_changes_results(compile: Compile) -> Any:
    return _run(compile, Scaled, lambda x: x.sin() + torch.sin(x) - x)


@scenario
def override_metadata(compile: Compile) -> Any:
    return _run(compile, Plain, lambda x: x.reshape(x.shape[0] * x.size(1)) + len(x) + x.ndim)


@scenario
def override_reflected_operators(compile: Compile) -> Any:
    return _run(compile, Plain, lambda x: (1 - x) / (2 + x) ** 2)


@scenario
def override_functional(compile: Compile) -> Any:
    return _run(compile, Plain, lambda x: F.relu(F.linear(x, torch.ones(5, 4))))


@scenario
def override_list_argument(compile: Compile) -> Any:
    return _run(compile, Plain, lambda x: torch.stack([x, x * 2]))


@scenario
def override_in_place(compile: Compile) -> Any:
    return _run(compile, Plain, lambda x: x.add_(1))


@scenario
def override_indexing(compile: Compile) -> Any:
    return _run(compile, Plain, lambda x: x[1:, ::2] * x[0, 0])


@scenario
def override_transposed(compile: Compile) -> Any:
    return _run(compile, Plain, lambda x: x.T @ x)


@scenario
def override_iteration(compile: Compile) -> Any:
    return _run(compile, Plain, lambda x: sum(row * 2 for row in x))


@scenario
def override_unwrapped(compile: Compile) -> Any:
    return _run(compile, Plain, lambda x: x.as_subclass(torch.Tensor) * 2)


@scenario
def override_wrapped_inside(compile: Compile) -> Any:
    torch.manual_seed(0)
    result = compile(lambda x: (x * 2).as_subclass(Plain).cos())(torch.randn(3))
    return type(result).__name__, _plain(result)


@scenario
def override_with_attributes(compile: Compile) -> Any:
    torch.manual_seed(0)
    compiled = compile(lambda x: x.exp() - 1)
    rows = []
    for tag in ("a", "b"):
        x = torch.randn(3).as_subclass(Metadata)
        x.tag = tag
        result = compiled(x)
        rows.append((type(result).__name__, result.tag, _plain(result)))
    return rows


@scenario
def override_gradients(compile: Compile) -> Any:
    torch.manual_seed(0)
    x = torch.randn(3, requires_grad=True)
    compile(lambda x: x.sin() * 3)(x.as_subclass(Scaled)).as_subclass(torch.Tensor).sum().backward()
    return x.grad


@scenario
def override_of_an_object(compile: Compile) -> Any:
    torch.manual_seed(0)
    return compile(lambda x: torch.add(Duck(x), 1))(torch.randn(3))


@scenario
def override_of_two_classes(compile: Compile) -> Any:
    torch.manual_seed(0)
    x = torch.randn(3)
    result = compile(torch.add)(x, x.as_subclass(Plain))
    return type(result).__name__, _plain(result)


@scenario
def parameter_subclass(compile: Compile) -> Any:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    model.weight = OwnParameter(model.weight.detach())
    out = compile(model)(torch.randn(2, 4))
    out.sum().backward()
    return out, model.weight.grad


@program(two)
def function_mode(x: Tensor, y: Tensor) -> Tensor:
    with Doubling():
        z = torch.sin(x) * 2
    return z + torch.sin(y)


@program()
def function_modes_nested(x: Tensor) -> Tensor:
    with Doubling(), Doubling():
        return x.sin() + 1


@scenario
def function_mode_around(compile: Compile) -> Any:
    torch.manual_seed(0)
    compiled, x = compile(lambda x: torch.sin(x) + 1), torch.randn(3)
    with Doubling():
        inside = compiled(x)
    return inside, compiled(x)


@scenario
def wrapper_as_argument(compile: Compile) -> Any:
    torch.manual_seed(0)
    compiled = compile(lambda x: x.sin() * 2)
    return [_plain(compiled(Pair(torch.randn(3), torch.randn(3)))) for _ in range(2)]


@scenario
def wrapper_made_inside(compile: Compile) -> Any:
    torch.manual_seed(0)
    return _plain(compile(lambda a, b: Pair(a, b) + 1)(torch.randn(3), torch.randn(3)))


@scenario
def wrapper_as_parameter(compile: Compile) -> Any:
    torch.manual_seed(0)
    model = nn.Linear(4, 3, bias=False)
    model.weight = nn.Parameter(Pair(torch.randn(3, 4), torch.randn(3, 4)), requires_grad=False)
    return _plain(compile(model)(torch.randn(2, 4)))


@scenario(reason="nested tensors: the call is Python's")
def nested_jagged(compile: Compile) -> Any:
    torch.manual_seed(0)
    compiled = compile(lambda x: (x * 2).sin())
    rows = []
    for lengths in ((2, 3), (4, 1)):
        x = torch.nested.nested_tensor([torch.randn(n, 4) for n in lengths], layout=torch.jagged)
        rows.append([part.clone() for part in compiled(x).unbind()])
    return rows


@scenario(reason="masked tensors: the call is Python's")
def masked_tensor(compile: Compile) -> Any:
    torch.manual_seed(0)
    x = torch.masked.masked_tensor(torch.randn(4), torch.tensor([True, False, True, True]))
    return compile(lambda x: x * 2)(x).get_data()


@scenario(reason="tensors of two dtypes and layouts: the call is Python's")
def sparse_argument(compile: Compile) -> Any:
    torch.manual_seed(0)
    return compile(lambda x: (x * 2).to_dense() + 1)(torch.eye(3).to_sparse())
