"""autograd.functional: how one aten op is recorded without writing to memory.

In: an ``OpOverload``. Out: its ``Recipe``: what it writes, and the functional op that computes the
same values. An op that writes and has no functional twin gets a ``Copied``: a callable that runs it
on copies and returns what was written, so that graphs stay functional whatever the user's op does.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import torch
from torch._ops import OpOverload

from argand.ops.copied import Copied
from argand.ops.fakes import functional_twins
from argand.ops.rows import OF_TORCH, draws, row_of
from argand.ops.table import Raises, written_arguments


class Action(enum.Enum):
    """What the recorder does with an op."""

    PURE = "record it"
    VIEW = "a new region of known memory, nothing recorded until it is read"
    WRITE = "record the functional op, then store its results in what the op writes"
    RESHAPE = "changes the geometry of a tensor object, not its memory (t_, squeeze_)"
    COMPOSITE = "run its decomposition"
    QUESTION = "asks about metadata"
    EFFECT = (
        "record it for what it does: a check of values, an op of the user's that gives nothing back"
    )
    DEPENDENT = "record it if FakeMode does not refuse: its type may depend on data"
    REFUSE = "changes storages themselves"


class Recipe(NamedTuple):
    """How to record one op."""

    action: Action
    functional: Any = None  # WRITE: an OpOverload or a Copied
    written: tuple[tuple[int, str], ...] = ()  # WRITE: positions and names of written arguments
    pure_results: int = 0  # WRITE: leading results of `functional` that are no written argument


_COMPOSITE: Final = torch._C.DispatchKey.CompositeImplicitAutograd


@functools.cache
def recipe_of(func: Any) -> Recipe:
    """The recipe of an op, from its schema."""
    schema, row = func._schema, row_of(func)
    if row.changes_storage:
        return Recipe(Action.REFUSE)
    if torch.Tag.inplace_view in func.tags:
        return Recipe(Action.RESHAPE)
    if func.is_view and func.namespace == "aten":
        # composites such as `to` are views only at times
        return Recipe(Action.COMPOSITE if is_composite(func) else Action.VIEW)
    if is_effect(func):
        return Recipe(Action.EFFECT)
    if not schema.is_mutable and not any("Tensor" in str(result.type) for result in schema.returns):
        return Recipe(Action.QUESTION)
    if not schema.is_mutable and row.data_dependent:
        return Recipe(Action.DEPENDENT)
    if func.namespace == "aten" and is_composite(func):
        return Recipe(Action.COMPOSITE)
    if not schema.is_mutable:
        return Recipe(Action.PURE)
    written = written_arguments(schema)
    pure = sum(1 for r in schema.returns if r.alias_info is None)
    results = len(written) + pure
    twins = (
        t for t in functional_twins(func) if not t.is_view and len(t._schema.returns) == results
    )
    return Recipe(Action.WRITE, next(twins, None) or Copied(func, written), written, pure)


def twin_of(func: OpOverload, recipe: Recipe, targets: Sequence[Any], *, eager_draws: bool) -> Any:
    """What is recorded for an op that writes.

    The functional twin of ``bernoulli_`` draws in the order of indices, whatever the layout; written in place, numbers are drawn in the
    order that torch's kernel takes through memory. Who wants eager's draws gets the op itself, on a copy.
    """
    if (
        eager_draws
        and recipe.functional is torch.ops.aten.bernoulli.p
        and not targets[0].is_contiguous()
    ):
        return Copied(func, recipe.written)
    return recipe.functional


def is_composite(func: OpOverload) -> bool:
    """Whether torch computes this op by others, in C++ (its Python kernels import sympy)."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), _COMPOSITE.name)


def run_composite(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a composite op; a mode around it sees the ops it is made of."""
    return func._op_dk(_COMPOSITE, *args, **kwargs)


def is_random(func: Any, args: tuple[Any, ...]) -> bool:
    """Whether this call draws from a generator."""
    op = func.op if isinstance(func, Copied) else func
    return isinstance(op, OpOverload) and draws(op, args)


def is_effect(func: Any) -> bool:
    """Whether an op gives nothing back and writes to no argument: it checks values, or it is a user's."""
    if not isinstance(func, OpOverload) or func._schema.returns or func._schema.is_mutable:
        return False
    return func.namespace not in OF_TORCH or row_of(func).raises is not Raises.NEVER


def complete(
    func: OpOverload, twin: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, ...]:
    """Arguments for a twin that lacks a default of the op (bernoulli.p and bernoulli_.float)."""
    if isinstance(twin, Copied):
        return args
    missing = []
    for own, other in zip(
        func._schema.arguments[len(args) :], twin._schema.arguments[len(args) :], strict=False
    ):
        if own.kwarg_only or own.name in kwargs or other.has_default_value():
            break
        missing.append(own.default_value)
    return (*args, *missing) if missing else args


def recurrent_layer(*args: Any) -> Any:
    """oneDNN's layer with the workspace of its backward, which torch makes only with grad mode on: graphs have it off."""
    with torch._C._AutoDispatchBelowAutograd(), torch.enable_grad():
        return torch.ops.aten.mkldnn_rnn_layer.default(*args)
