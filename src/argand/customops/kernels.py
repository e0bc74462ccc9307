"""customops.kernels: what the dispatcher calls: implementations with the contract checked around them.

The first calls of an operator are checked in full (aliases, types, undeclared mutation); afterwards only
the checks that cost nothing remain, because a custom operator must not be slower than a plain one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from argand.customops.errors import ContractViolation, NoImplementation
from argand.customops.operator import Operator
from argand.customops.registry import location_of

CHECKED_CALLS: Final = 3  # full checks on the first calls of each implementation


def flat_tensors(values: Sequence[Any]) -> list[torch.Tensor]:
    """The tensors among arguments or results, those in lists included."""
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found.extend(item for item in value if isinstance(item, torch.Tensor))
    return found


def as_tuple(result: Any) -> tuple[Any, ...]:
    """The results of an operator as a tuple."""
    return result if isinstance(result, tuple) else (result,)


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def check_aliases(op: Operator, inputs: Sequence[Any], result: Any, function: Any) -> None:
    """No output may share memory with an input or with another output."""
    owners = {_storage(t): "an input" for t in flat_tensors(inputs) if t.numel()}
    for index, output in enumerate(flat_tensors(as_tuple(result))):
        if output.numel() == 0:
            continue
        owner = owners.setdefault(_storage(output), f"output {index}")
        if owner != f"output {index}":
            raise ContractViolation(
                f"output {index} of {op.qualname} shares memory with {owner}",
                where=location_of(function),
                hint="return a copy: .clone(); an operator's outputs must be new tensors",
            )


def _check_types(op: Operator, result: Any, function: Any) -> None:
    returns = op.schema.returns
    results = () if result is None and not returns else as_tuple(result)
    if len(results) != len(returns):
        raise ContractViolation(
            f"{op.qualname} returned {len(results)} values, its schema says {len(returns)}",
            where=location_of(function),
        )
    for index, (value, declared) in enumerate(zip(results, returns, strict=True)):
        if str(declared.type) == "Tensor" and not isinstance(value, torch.Tensor):
            raise ContractViolation(
                f"output {index} of {op.qualname} is a {type(value).__name__}, not a Tensor",
                where=location_of(function),
            )


def _call_checked(
    op: Operator, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call an implementation and check all that its schema promises."""
    inputs = (*args, *kwargs.values())
    versions = [(t, t._version) for t in flat_tensors(inputs) if not t.is_inference()]
    mutated = [op.argument(position, args, kwargs) for position in op.mutated_positions]
    declared = {id(tensor) for tensor in flat_tensors(mutated)}
    result = function(*args, **kwargs)
    for tensor, version in versions:
        if tensor._version != version and id(tensor) not in declared:
            raise ContractViolation(
                f"{op.qualname} mutated an argument it does not name in mutates_args",
                where=location_of(function),
                hint="name it in mutates_args, or work on a clone",
            )
    _check_types(op, result, function)
    check_aliases(op, inputs, result, function)
    return result


def checked_kernel(op: Operator, function: Callable[..., Any]) -> Callable[..., Any]:
    """An implementation for the dispatcher, with the contract checked around it."""
    remaining = CHECKED_CALLS
    mutated = op.mutated_positions

    def careful(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        nonlocal remaining
        if op.wants_autograd_kernel and torch.is_grad_enabled() and op.meets_gradient(args, kwargs):
            op.install_autograd_kernel()
            return op.overload(*args, **kwargs)
        run = op.choose(function, args, kwargs) if op.needs_care else function
        if remaining:
            result = _call_checked(op, run, args, kwargs)
            remaining -= 1
        else:
            result = run(*args, **kwargs)
        for position in mutated:
            for tensor in flat_tensors((op.argument(position, args, kwargs),)):
                torch.autograd.graph.increment_version(tensor)
        return result

    def kernel(*args: Any, **kwargs: Any) -> Any:
        # What every call after the first does: one look at each argument, no more.
        if remaining or mutated or kwargs or op.needs_care:
            return careful(args, kwargs)
        if op.wants_autograd_kernel:
            for value in args:
                if type(value) is list or getattr(value, "requires_grad", False):
                    return careful(args, kwargs)
        return function(*args)

    return kernel


def missing_kernel(op: Operator) -> Callable[..., Any]:
    """A kernel that says there is none for the device of the arguments."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        device = next((t.device.type for t in flat_tensors((*args, *kwargs.values()))), "no device")
        known = ", ".join(sorted(set(op.implementations) - {"meta"})) or "none"
        raise NoImplementation(
            f"{op.qualname} has no implementation for {device} (it has: {known})",
            where=op.where,
            hint=f'register one with @op.impl("{device}")',
        )

    return kernel
