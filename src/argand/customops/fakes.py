"""customops.fakes: what an operator does on tensors without data.

Its registered fake says it. Without one it is found out by running the kernel on made-up tensors, where that
can neither be seen nor do harm: a kernel written in Python that calls torch, numpy and math alone. What was
found out is checked at every call, so a size that depends on data is an error, never a wrong result.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch

from argand.bytecode import decode
from argand.customops.errors import ContractViolation, CustomOpError, NoImplementation
from argand.customops.kernels import flat_tensors
from argand.customops.operator import Operator
from argand.ops.fallback import FakeContext, elements, fake_context, freeze, thaw
from argand.ops.layout import DataDependent

_HARMLESS: Final = frozenset({"torch", "numpy", "math", "operator", "typing", "collections"})
_PLAIN: Final = (int, float, str, type(None), torch.dtype, torch.device)
_SEEN_BUILTINS: Final = frozenset(
    {"breakpoint", "compile", "delattr", "eval", "exec", "exit", "globals", "input", "open"}
    | {"print", "quit", "setattr", "vars", "__import__"}
)
_SEEN_NAMES: Final = re.compile("save|load|seed|random|print|write|file|set_|register|_ptr|ctypes")
_SEEN_STEPS: Final = frozenset(
    {"store_global", "store_attr", "delete_global", "delete_attr", "import_name"}
)
_LARGEST: Final = 1 << 24  # elements: above it the kernel would run for long


def get_ctx() -> FakeContext:
    """Inside a fake: ``get_ctx().new_dynamic_size()`` is a size that depends on data."""
    context: FakeContext | None = torch.library.get_ctx()
    if context is None:
        raise CustomOpError("get_ctx() was called outside of a fake implementation")
    return context


def run_fake(op: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Results without data."""
    if op.fake is None:
        return _find_out(op, args, kwargs)
    with fake_context(op.qualname):
        return op.fake(*args, **kwargs)


def call_verified(op: Operator, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run an implementation whose result types were found out before, and compare."""
    result = function(*args, **kwargs)
    expected = op.found_out.get(freeze((args, tuple(kwargs.items()))))
    if expected is not None and freeze(result) != expected:
        raise ContractViolation(
            f"{op.qualname} gave {freeze(result)}, but {expected} on other data of the same shapes",
            where=op.where,
            hint="its sizes depend on data: register a fake that uses argand.get_ctx()",
        )
    return result


def _find_out(op: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not op.schema.returns:
        return None
    key = freeze((args, tuple(kwargs.items())))
    device = next((t.device.type for t in flat_tensors((*args, *kwargs.values()))), "cpu")
    if key in op.found_out:
        return thaw(op.found_out[key], device)
    function = op.functions.get("cpu") or op.functions.get("factory")
    answers: set[Any] = set()
    if op.mutated_positions or elements(key) > _LARGEST:
        why = "it mutates an argument, or its tensors are large"
    else:
        why = _what_is_seen(function) or _try_out(function, key, answers)
    if why:
        raise NoImplementation(
            f"{op.qualname} has no fake implementation, so it cannot be traced, and it is not run to find out: {why}",
            where=op.where,
            hint="register one with @op.impl_fake: a function of the same arguments that returns"
            " empty tensors of the right shape and dtype",
        )
    if len(answers) > 1:
        raise DataDependent(op.qualname)
    op.needs_care = True
    (op.found_out[key],) = answers
    return thaw(op.found_out[key], device)


def _try_out(function: Any, key: Any, answers: set[Any]) -> str:
    """Run on zeros, ones and random numbers; why that failed each time, "" when it did not."""
    failure = ""
    state = torch.get_rng_state()
    with torch._C._DisableTorchDispatch(), torch.no_grad():
        for fill in (torch.Tensor.zero_, torch.Tensor.random_, _one):
            args, kwargs = thaw(key, "cpu", zero=True)
            try:
                for tensor in flat_tensors((*args, *dict(kwargs).values())):
                    fill(tensor)
                answers.add(freeze(function(*args, **dict(kwargs))))
            except Exception as error:
                failure = f"{type(error).__name__}: {error}"
    torch.set_rng_state(state)
    return "" if answers else failure


def _one(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.fill_(1)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _what_is_seen(function: Any, depth: int = 0) -> str:
    """What the world might see of a call of this function, "" if nothing."""
    if not isinstance(function, types.FunctionType) or depth > 8:
        return f"{function!r} is not a function written in Python"
    outside = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    for code in _codes(function.__code__):
        written = {step.op for step in decode(code).instructions} & _SEEN_STEPS
        if written:
            return f"{function.__name__} has {written.pop()}"
        for name in code.co_names:
            if _SEEN_NAMES.search(name) or name in _SEEN_BUILTINS:
                return f"{function.__name__} uses {name!r}"
            if name in function.__globals__:
                outside[name] = types.CellType(function.__globals__[name])
    for name, cell in outside.items():
        value = cell.cell_contents
        place = value if isinstance(value, types.ModuleType) else getattr(value, "__module__", "")
        root = (getattr(place, "__name__", place) or type(value).__module__).partition(".")[0]
        if isinstance(value, types.FunctionType) and root not in _HARMLESS:
            if why := _what_is_seen(value, depth + 1):
                return why
        elif not isinstance(value, _PLAIN) and root.lstrip("_") not in _HARMLESS:
            return f"{function.__name__} uses {name!r}, a {type(value).__name__}"
    return ""
