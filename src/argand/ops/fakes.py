"""ops.fakes: run torch code on tensors without data (design D2).

A fake is a plain CPU tensor from ``torch.empty_strided``: untouched virtual memory. Under ``FakeMode``
no kernel runs: views are made for real (C++ keeps aliasing and metadata right), every other op
answers from our type rules, and only an op without a row asks torch's own kernels (`ops.fallback`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from typing_extensions import override

from argand.ops.fallback import infer_by_torch

Handler = Callable[["FakeMode", tuple[Any, ...], dict[str, Any]], Any]

# Their result or control flow depends on data, and torch does not tag them.
_DATA_DEPENDENT: Final = frozenset({"aten::equal", "aten::is_nonzero", "aten::_local_scalar_dense"})
_EMPTY: Final[dict[str, Any]] = {}


class DataDependent(RuntimeError):
    """An op whose result (its type, or a Python number) depends on the values in a tensor."""

    def __init__(self, op_name: str) -> None:
        super().__init__(f"the result of {op_name} depends on the data of a tensor")
        self.op_name = op_name


def fake_of(real: torch.Tensor) -> torch.Tensor:
    """A fake with the metadata of a real tensor, ``requires_grad`` included."""
    fake = torch.empty_strided(real.size(), real.stride(), dtype=real.dtype, device="cpu")
    if real.is_conj():
        fake = torch._conj(fake)
    if real.is_neg():
        fake = torch._neg_view(fake)
    return fake.requires_grad_() if real.requires_grad else fake


def infer(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Result(s) of one non-view aten op as fresh fakes; raises what eager raises for wrong shapes."""
    return infer_by_torch(func, args, kwargs)


class FakeMode(TorchDispatchMode):
    """Inside it, torch functions on fakes give fakes."""

    @classmethod
    @override
    def _should_skip_dynamo(cls) -> bool:
        return False  # True would import torch._dynamo at the first call (design D2)

    @override
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _handler(func)(self, args, kwargs or _EMPTY)


@cache
def _handler(func: Any) -> Handler:
    """How FakeMode answers this op, decided once from its schema."""
    tags = func.tags
    schema = func._schema
    if (
        func.name() in _DATA_DEPENDENT
        or torch.Tag.data_dependent_output in tags
        or torch.Tag.dynamic_output_shape in tags
    ):
        return _data_dependent(func)
    if torch.Tag.inplace_view in tags or func.name() in ("aten::resize_", "aten::set_"):
        return _real(func)
    if func.is_view and func.namespace == "aten":
        return _real(func)
    if not any("Tensor" in str(result.type) for result in schema.returns) and schema.returns:
        return _real(func)  # aten.size, prim.device: questions about metadata
    if func._can_decompose():
        return _composite(func)
    if schema.is_mutable:
        return _mutating(func)
    return lambda _mode, args, kwargs: infer(func, args, kwargs)


def _data_dependent(func: Any) -> Handler:
    def answer(_mode: FakeMode, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise DataDependent(str(func))

    return answer


def _real(func: Any) -> Handler:
    return lambda _mode, args, kwargs: func(*args, **kwargs)


def _composite(func: Any) -> Handler:
    """Composite ops reach a mode only where autograd is out of the way (inference mode)."""

    def answer(mode: FakeMode, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with mode:
            return func.decompose(*args, **kwargs)

    return answer


def _functional_pair(func: Any) -> Any:
    """The op that computes the same without writing: ``add.Tensor`` of ``add_.Tensor``, ``add.out``."""
    schema = func._schema
    name = func._opname
    if name.endswith("_") and not name.endswith("__"):
        name = name[:-1]
    packet = getattr(getattr(torch.ops, func.namespace), name, None)
    if packet is None:
        return None
    out = {argument.name for argument in schema.arguments if argument.is_out}
    wanted = [(a.name, str(a.type)) for a in schema.arguments if a.name not in out]
    for overload in packet.overloads():
        candidate = getattr(packet, overload)
        arguments = [(a.name, str(a.type)) for a in candidate._schema.arguments]
        if arguments == wanted and not candidate._schema.is_mutable:
            return candidate
    return None


def _written(schema: Any) -> list[tuple[int, str]]:
    return [
        (index, argument.name)
        for index, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]


def _mutating(func: Any) -> Handler:
    """In-place and ``out=`` ops give back what they write; nothing is written."""
    written = _written(func._schema)
    results = len(func._schema.returns)
    is_out = any(argument.is_out for argument in func._schema.arguments)
    pair = _functional_pair(func) if is_out else None

    def answer(_mode: FakeMode, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        targets = [args[i] if i < len(args) else kwargs[name] for i, name in written]
        if pair is not None:
            names = {name for _, name in written}
            inputs = {name: value for name, value in kwargs.items() if name not in names}
            _resize(targets, infer(pair, args, inputs))
        if results == 0:
            return None
        return targets[0] if results == 1 else tuple(targets[:results])

    return answer


def _resize(targets: list[Any], results: Any) -> None:
    """``out=`` tensors take the shape of the result, as in eager."""
    for target, result in zip(
        targets, results if isinstance(results, tuple) else (results,), strict=False
    ):
        if isinstance(target, torch.Tensor) and target.shape != result.shape:
            target.resize_(result.shape)
