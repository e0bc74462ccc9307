"""autograd.outputs: what a program did to the outside, read off its fakes after it ran.

In: the input and output fakes of a traced program. Out: ``OutputRow`` s (how each output is rebuilt at run
time: an input, a fresh tensor of the compiled graph, or a view replayed on one of them, so that
``_base``, version counters and ``requires_grad`` come out as in eager) and ``Mutation`` s (inputs to
be written back). The same reading serves the trace and the differentiable backward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, Literal, NamedTuple, final

import torch
from torch.fx import Graph

from argand.autograd.geometry import ViewStep, bare
from argand.ops.layout import extent
from argand.support.dataclass import dataclass


class Untraceable(Exception):
    """This program cannot be traced soundly: it runs as it was captured, by eager."""


OutputSource = Literal["constant", "same", "input", "fresh"]
# "plain": a view in grad mode; "no_grad": a view autograd does not follow; "detach": no view to
# autograd; "detached": a view of a tensor that is none; "data", "of_data": the same with version counters of their own
How = Literal["self", "plain", "no_grad", "detach", "detached", "data", "of_data"]


@final
@dataclass(frozen=True, slots=True)
class OutputRow:
    """One output of the program."""

    source: OutputSource
    index: int = 0  # the input, the fresh tensor, or the earlier output that is the same object
    how: How = "self"
    value: Any = None  # "constant": the Python value; views: the fake
    steps: tuple[ViewStep, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class Mutation:
    """An input the program wrote to."""

    index: int
    bump: int  # how much eager raises the version counter
    differentiable: bool  # the new value has a gradient


@final
@dataclass(slots=True)
class Effects:
    """Everything the outside sees of one run."""

    rows: list[OutputRow] = field(default_factory=list)
    mutations: list[Mutation] = field(default_factory=list)
    fresh: list[torch.Tensor] = field(default_factory=list)  # base fakes the graph must return
    # inputs whose version rises, and by how much, although nothing is written: a view of them was turned over in place
    bumps: list[tuple[int, int]] = field(default_factory=list)

    def results(self, inputs: Sequence[Any]) -> list[torch.Tensor]:
        """The tensors the compiled graph returns: new values of inputs, then fresh ones."""
        return [inputs[m.index] for m in self.mutations] + self.fresh


@final
@dataclass(slots=True)
class Traced:
    """One traced program."""

    graph: Graph
    constants: dict[str, torch.Tensor]
    inputs: list[Any]  # fakes, without history
    effects: Effects
    results: int  # outputs of the forward: mutations, then fresh tensors
    differentiable: list[int]  # inputs that get a gradient
    tangents: list[int]  # results that take a gradient
    tangent_fakes: list[torch.Tensor]
    gradient_needs: list[
        int
    ]  # per differentiable input: bits of the tangents its gradient comes from
    # inputs whose values gradients depend on, bits of the tangents whose do
    gradient_reads: list[tuple[int, int]]
    copied_inputs: list[int]  # inputs whose old value the backward needs although they are written
    flipped_inputs: list[int]  # inputs on which the program calls requires_grad_()
    random: bool
    autocast: torch.dtype | None  # ambient autocast at the time of the trace
    grad_mode: bool  # ambient grad mode at the time of the trace
    tracked: bool  # whether an input requires grad
    view_results: list[int]  # results whose node is a view of an internal value
    # of what the forward keeps, see kept.parts_of
    parts: list[list[int]] = field(default_factory=list)
    # inputs with a conjugate or a negative bit
    bits: dict[int, tuple[bool, bool]] = field(default_factory=dict)
    cut: bool = False  # some of it is hidden from autograd (detach, no_grad, a Function of the user's): aten does not tell
    bent: bool = False  # its backward has formulas of users that are not known to be linear: see autograd.linear
    absolute: bool = False  # it holds for the storage offsets of these inputs alone, which no key of a cache tells
    sizes: Any = None  # OpenSizes when sizes are known only at run time

    @property
    def training(self) -> bool:
        """Whether there is a backward."""
        return bool(self.tangents)


class InputBefore(NamedTuple):
    """The state of an input before the program ran."""

    version: int
    grad_fn: Any
    requires_grad: bool


def state_of(value: Any) -> InputBefore | None:
    """What must be remembered of an input."""
    if not isinstance(value, torch.Tensor):
        return None
    return InputBefore(value._version, value.grad_fn, value.requires_grad)


def read_effects(
    inputs: Sequence[Any],
    before: Sequence[InputBefore | None],
    outputs: Sequence[Any],
    written: Callable[[torch.Tensor], bool],
    path: Callable[[torch.Tensor, torch.Tensor], tuple[ViewStep, ...]],
) -> Effects:
    """Effects of a run; ``path(base, view)`` are the view steps between two fakes."""
    effects = Effects()
    owners: dict[int, int] = {}
    for index, (value, old) in enumerate(zip(inputs, before, strict=True)):
        if old is None:
            continue
        first = owners.setdefault(_storage(value), index)
        if first != index:
            continue  # the same tensor given twice
        if written(value):
            changed = value.requires_grad and value.grad_fn is not old.grad_fn
            effects.mutations.append(Mutation(index, value._version - old.version, changed))
        elif value._version != old.version:
            effects.bumps.append((index, value._version - old.version))
    bases: dict[int, int] = {}
    slots: dict[int, int] = {}
    for slot, value in enumerate(outputs):
        if not isinstance(value, torch.Tensor):
            effects.rows.append(OutputRow("constant", value=value))
        elif id(value) in slots:
            effects.rows.append(OutputRow("same", slots[id(value)]))
        else:
            slots[id(value)] = slot
            storage = _storage(value)
            if storage in owners:
                source: OutputSource = "input"
                index = owners[storage]
                base = inputs[index]
            else:
                source = "fresh"
                if storage not in bases:
                    bases[storage] = len(effects.fresh)
                    effects.fresh.append(_base_of(storage, outputs))
                index = bases[storage]
                base = effects.fresh[index]
            effects.rows.append(_row(source, index, base, value, path))
    return effects


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _base_of(storage: int, outputs: Sequence[Any]) -> torch.Tensor:
    """The tensor all outputs on one storage are views of."""
    group = [o for o in outputs if isinstance(o, torch.Tensor) and _storage(o) == storage]
    base = bare(_find_base(group))
    if base.storage_offset() or any(_end(o) > _end(base) for o in group):  # by as_strided_ or set_
        raise Untraceable("a tensor was moved in its memory: others lie beyond it")
    return base


def _end(tensor: torch.Tensor) -> int:
    """The bytes of its storage up to the last one of a tensor."""
    return (tensor.storage_offset() + extent(tensor.shape, tensor.stride())) * tensor.itemsize


def _find_base(group: Sequence[torch.Tensor]) -> torch.Tensor:
    bases = [o._base if o._base is not None else o for o in group]
    tracked = [base for o, base in zip(group, bases, strict=True) if o.requires_grad]
    if any(base is not tracked[0] for base in tracked):
        raise Untraceable("two outputs share memory but not their gradient")
    if tracked:
        return tracked[0]
    # the base of views; an output beside them that is no view to autograd is of it, or of another type
    return next((o._base for o in group if o._base is not None), group[0])


def _row(
    source: OutputSource,
    index: int,
    base: torch.Tensor,
    value: torch.Tensor,
    path: Callable[[torch.Tensor, torch.Tensor], tuple[ViewStep, ...]],
) -> OutputRow:
    if value.retains_grad:
        raise Untraceable("retain_grad() on a result, inside the graph")
    if value.requires_grad and value.is_leaf and value._base is None and source == "fresh":
        raise Untraceable(
            "a result is a leaf made inside: backward() fills its grad, whatever else depends on it"
        )
    if value is base:
        return OutputRow(source, index)
    how: How
    if value._base is None:
        how = "detach" if _count_together(value, base) else "data"
    elif value._base is not base:
        how = "detached" if _count_together(value, base) else "of_data"
    elif value.requires_grad and value.is_leaf:
        how = "no_grad"  # a view made under no_grad says that it requires grad, as a leaf
    else:
        how = "plain"
    if value.requires_grad and (
        how not in ("plain", "no_grad") or (how == "plain" and not _follows(value, base))
    ):
        raise Untraceable("an output shares memory with a tensor of another history")
    return OutputRow(source, index, how, value, path(base, value))


def _count_together(value: torch.Tensor, base: torch.Tensor) -> bool:
    """Whether a write to one raises the version of the other: ``.data`` has a counter of its own."""
    if value.is_inference() or base.is_inference():
        return True
    before = base._version, value._version
    torch.autograd.graph.increment_version(base)
    together = value._version != before[1]
    torch._C._autograd._unsafe_set_version_counter((base,), before[:1])
    return together


def _follows(view: torch.Tensor, base: torch.Tensor) -> bool:
    """Whether the history of a view leads to its base; a no_grad view between would end it."""
    if not base.requires_grad:
        return False
    function = view.grad_fn
    while function is not None and function is not base.grad_fn:
        if getattr(function, "variable", None) is base:
            return True
        function = function.next_functions[0][0] if function.next_functions else None
    return function is not None
