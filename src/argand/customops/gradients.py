"""customops.gradients: custom operators under autograd.

Two ways to give a formula, one mechanism: ``register_autograd(backward, setup_context=)`` works on
positions, the pair ``impl_save_for_backward`` / ``impl_backward`` on argument names. Both become one
``torch.autograd.Function`` per operator; tensors in list arguments are flattened for it.
"""

from __future__ import annotations

import collections
import types
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from argand.customops.errors import GradientError, RegistrationError
from argand.customops.kernels import as_tuple
from argand.customops.operator import Operator
from argand.customops.registry import location_of


class GradientFormula(NamedTuple):
    """How to differentiate an operator, on positions: (setup of the context, backward)."""

    setup: Callable[[Any, tuple[Any, ...], dict[str, Any], Any], None]
    backward: Callable[..., Sequence[Any]]
    differentiable: tuple[bool, ...]  # per output


def flatten_lists(values: Sequence[Any]) -> tuple[list[Any], list[int]]:
    """Values with lists of tensors spread out; the length of each list, -1 for a plain value."""
    flat: list[Any] = []
    lengths: list[int] = []
    for value in values:
        if isinstance(value, list | tuple) and any(isinstance(v, torch.Tensor) for v in value):
            flat.extend(value)
            lengths.append(len(value))
        else:
            flat.append(value)
            lengths.append(-1)
    return flat, lengths


def restore_lists(flat: Sequence[Any], lengths: Sequence[int]) -> list[Any]:
    """The inverse of ``flatten_lists``."""
    values: list[Any] = []
    position = 0
    for length in lengths:
        if length < 0:
            values.append(flat[position])
            position += 1
        else:
            values.append(list(flat[position : position + length]))
            position += length
    return values


def make_function(op: Operator, formula: GradientFormula) -> Callable[..., Any]:
    """A function of the operator's arguments that runs it under autograd."""
    plain_returns = [str(result.type) for result in op.schema.returns] == ["Tensor"]
    if (
        plain_returns
        and not op.keyword_names
        and not any("List" in str(a.type) for a in op.schema.arguments)
    ):
        return _plain_function(op, formula)
    return _general_function(op, formula)


def _plain_function(op: Operator, formula: GradientFormula) -> Callable[..., Any]:
    """The common case: positional arguments, no lists, one tensor out."""
    count = len(op.positional_names)
    lengths = [-1] * count
    numbers = [i for i, a in enumerate(op.schema.arguments) if "Tensor" not in str(a.type)]

    class Generated(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            with torch._C._AutoDispatchBelowAutograd():
                result = op.overload._op(*args)
            formula.setup(ctx, args, {}, result)
            return result

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            answer = formula.backward(ctx, gradient)
            if (
                type(answer) is tuple
                and len(answer) == count
                and all(answer[i] is None for i in numbers)
            ):
                return answer
            return tuple(_flatten_gradients(op, answer, lengths, formula))

    Generated.__name__ = f"{op.name}_autograd"
    apply = Generated.apply

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(args) == count:
            return apply(*args)
        return apply(*op.complete_arguments(args, kwargs))

    return run


def _general_function(op: Operator, formula: GradientFormula) -> Callable[..., Any]:
    """Lists of tensors are spread out for autograd and put together again."""
    n_positional = len(op.positional_names)

    class Generated(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *flat_and_call: Any) -> Any:
            *flat, call = flat_and_call
            values = restore_lists(flat, call.input_lengths)
            args = tuple(values[:n_positional])
            kwargs = dict(zip(op.keyword_names, values[n_positional:], strict=True))
            with torch._C._AutoDispatchBelowAutograd():
                result = op.overload(*args, **kwargs)
            ctx.argand_call = call
            formula.setup(ctx, args, kwargs, result)
            outputs, call.output_lengths = flatten_lists(as_tuple(result))
            blocked = [
                out
                for out, good in zip(as_tuple(result), formula.differentiable, strict=False)
                if not good and isinstance(out, torch.Tensor)
            ]
            if blocked:
                ctx.mark_non_differentiable(*blocked)
            return tuple(outputs)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            restored = restore_lists(gradients, ctx.argand_call.output_lengths)
            answer = formula.backward(ctx, *restored)
            lengths = ctx.argand_call.input_lengths
            return (*_flatten_gradients(op, answer, lengths, formula), None)

    Generated.__name__ = f"{op.name}_autograd"
    single = len(op.schema.returns) == 1

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        complete = op.complete_arguments(args, kwargs)
        flat, lengths = flatten_lists(complete)
        # how lists were spread out
        call = types.SimpleNamespace(input_lengths=lengths, output_lengths=[])
        outputs = restore_lists(Generated.apply(*flat, call), call.output_lengths)
        return outputs[0] if single else tuple(outputs)

    return run


def _flatten_gradients(
    op: Operator, answer: Any, lengths: Sequence[int], formula: GradientFormula
) -> list[Any]:
    gradients = list(answer) if isinstance(answer, tuple | list) else [answer]
    where = location_of(formula.backward)
    if len(gradients) == len(op.positional_names):
        gradients += [None] * len(op.keyword_names)
    if len(gradients) != len(lengths):
        raise GradientError(
            f"the backward of {op.qualname} returned {len(gradients)} gradients for"
            f" {len(op.positional_names)} arguments ({', '.join(op.positional_names)})",
            where=where,
            hint="return one gradient, or None, per argument",
        )
    flat: list[Any] = []
    for name, gradient, length in zip(op.names, gradients, lengths, strict=True):
        if gradient is not None and name not in op.tensor_names:
            raise GradientError(
                f"the backward of {op.qualname} gave {name!r}, no tensor, a gradient", where=where
            )
        if length < 0:
            flat.append(gradient)
        elif gradient is None:
            flat.extend([None] * length)
        elif not isinstance(gradient, list | tuple) or len(gradient) != length:
            raise GradientError(
                f"the gradient of the list argument {name!r} of {op.qualname} must be a list of"
                f" {length}, got {_describe(gradient)}",
                where=where,
            )
        else:
            flat.extend(gradient)
    return flat


def _describe(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"


def formula_by_position(
    op: Operator, backward: Callable[..., Any], setup_context: Callable[..., Any] | None
) -> GradientFormula:
    """The formula of ``register_autograd``."""

    def setup(ctx: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        if setup_context is None:
            return
        if op.keyword_names:
            setup_context(ctx=ctx, inputs=args, keyword_only_inputs=kwargs, output=result)
        else:
            setup_context(ctx=ctx, inputs=args, output=result)

    return GradientFormula(setup, backward, (True,) * len(op.schema.returns))


def formula_by_name(
    op: Operator,
    save: Callable[..., Any],
    backward: Callable[..., Any],
    differentiable: tuple[bool, ...],
) -> GradientFormula:
    """The formula of the pair ``impl_save_for_backward`` and ``impl_backward``."""
    inputs_type = collections.namedtuple(f"{op.name}_inputs", op.names)  # type: ignore[misc]

    def setup(ctx: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        saved = save(inputs_type(*args, *kwargs.values()), result)
        leaves, ctx.argand_spec = torch.utils._pytree.tree_flatten(saved)
        tensors = [leaf if isinstance(leaf, torch.Tensor) else None for leaf in leaves]
        ctx.argand_leaves = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        ctx.save_for_backward(*tensors)
        given = dict(zip(op.names, (*args, *kwargs.values()), strict=True))
        ctx.argand_tensor_names = frozenset(
            name for name in op.tensor_names if given[name] is not None
        )

    def run(ctx: Any, *gradients: Any) -> list[Any]:
        leaves = [
            other if tensor is None else tensor
            for tensor, other in zip(ctx.saved_tensors, ctx.argand_leaves, strict=True)
        ]
        saved = torch.utils._pytree.tree_unflatten(leaves, ctx.argand_spec)
        by_name = backward(types.SimpleNamespace(), saved, *gradients)
        _check_named(op, by_name, ctx.argand_tensor_names, backward)
        return [by_name.get(name) for name in op.names]

    return GradientFormula(setup, run, differentiable)


def _check_named(
    op: Operator, by_name: Any, tensor_names: frozenset[str], backward: Callable[..., Any]
) -> None:
    where = location_of(backward)
    if not isinstance(by_name, dict):
        raise GradientError(
            f"the backward of {op.qualname} must return a dict of gradients by argument name, got {_describe(by_name)}",
            where=where,
        )
    if not tensor_names <= set(by_name) <= op.tensor_names:
        raise GradientError(
            f"the backward of {op.qualname} returned gradients for"
            f" {', '.join(sorted(map(str, by_name))) or 'nothing'}, expected"
            f" {', '.join(sorted(tensor_names))}",
            where=where,
            hint="one key per tensor argument, None where there is no gradient",
        )
    for name, gradient in by_name.items():
        values = gradient if isinstance(gradient, list | tuple) else [gradient]
        for value in values:
            if value is not None and not isinstance(value, torch.Tensor):
                raise GradientError(
                    f"the gradient of {name!r} of {op.qualname} is a {type(value).__name__}, not a Tensor or None",
                    where=where,
                )


def refuse_unless_functional(op: Operator, function: Callable[..., Any]) -> None:
    """A gradient formula needs an operator that returns fresh tensors and mutates nothing."""
    if op.mutated_positions or not op.schema.returns or op.differentiates_itself:
        why = "is differentiated already" if op.differentiates_itself else "is not functional"
        raise RegistrationError(
            f"{op.qualname} {why}, so it cannot have a gradient formula",
            where=location_of(function),
            hint="write a functional operator and mutate outside of it",
        )
