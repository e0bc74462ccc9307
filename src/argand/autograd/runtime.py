"""autograd.runtime: compiled graphs under torch's autograd, at call time.

In: a ``Traced`` program, its compiled forward and a way to get its compiled backward. Out: a callable
on real tensors whose outputs behave as eager's: one ``torch.autograd.Function`` for the graph, then
mutated inputs are written back and views are replayed outside it, where autograd sees them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, final

import torch

from argand.autograd.geometry import ViewStep
from argand.autograd.kept import keep
from argand.autograd.outputs import Mutation, OutputRow, Traced
from argand.autograd.tangents import Places
from argand.protocol import Boxed
from argand.runtime import _native

# of one graph for different sets of gradients; then all of them are computed
MOST_BACKWARDS: Final = 8


class Asked(NamedTuple):
    """What one backward is for, as bits: the tangents that are there, the gradients that somebody wants."""

    tangents: int
    gradients: int


# (what is asked, primals) -> the backward for it
Backward = Callable[[Asked, Sequence[Any]], Boxed | None]
# (primals, the tangents that are there, what is asked) -> gradients that can be differentiated again
Differentiable = Callable[[Sequence[Any], Sequence[Any], Asked], Sequence[Any]]

_set_grad_enabled: Final = torch._C._set_grad_enabled
# `view_as` would tidy the strides of dimensions of size one
_alias: Final = torch.ops.aten.alias.default
_set_version: Final = torch._C._autograd._unsafe_set_version_counter


def without_autocast(call: Boxed) -> Boxed:
    """The casts are in the graph already: they must not happen twice."""

    def run(values: list[Any]) -> Any:
        enabled = torch.is_autocast_enabled("cpu")
        torch.set_autocast_enabled("cpu", False)
        try:
            return call(values)
        finally:
            torch.set_autocast_enabled("cpu", enabled)

    return run


def without_views(call: Boxed, places: Sequence[int]) -> Boxed:
    """Results at ``places`` as tensors of their own, no views in the eyes of autograd."""

    def run(values: list[Any]) -> Any:
        results = list(call(values))
        for place in places:
            results[place] = results[place].detach()
        return results

    return run


def without_bits(call: Boxed, bits: Mapping[int, tuple[bool, bool]]) -> Boxed:
    """Inputs with a conjugate or negative bit as graphs want them: the memory as it is."""

    def run(values: list[Any]) -> Any:
        for place, (conjugate, negative) in bits.items():
            value = values[place]
            if conjugate:
                value = torch._conj(value) if value.is_conj() else value.conj_physical()
            if negative:
                value = torch._neg_view(value) if value.is_neg() else value.neg()
            values[place] = value
        return call(values)

    return run


@contextlib.contextmanager
def _grad_mode(enabled: bool) -> Iterator[None]:
    previous = torch.is_grad_enabled()
    _set_grad_enabled(enabled)
    try:
        yield
    finally:
        _set_grad_enabled(previous)


# -- after the graph -------------------------------------------------------------------------


def _versions(mutations: Sequence[Mutation], inputs: Sequence[Any]) -> list[int]:
    """The version of each input that is changed; -1 where it has none."""
    targets = [inputs[mutation.index] for mutation in mutations]
    return [-1 if target.is_inference() else target._version for target in targets]


def _write_back(
    mutations: Sequence[Mutation],
    inputs: Sequence[Any],
    values: Sequence[torch.Tensor],
    odd: Container[int],
    before: Sequence[int],
) -> None:
    """Give inputs their new values and the versions eager would have left; ``odd`` ones have bits."""
    targets, news, counted, versions = [], [], [], []
    for mutation, value, version in zip(mutations, values, before, strict=False):
        target = inputs[mutation.index]
        if version >= 0:
            counted.append(target)
            versions.append(version + mutation.bump)
        if mutation.differentiable:
            target.copy_(value)
        elif mutation.index in odd:
            with _grad_mode(False):
                target.copy_(value)
        elif value is not target:  # else a kernel has written it there
            targets.append(target)
            news.append(value)
    if targets:
        with _grad_mode(False):
            torch._foreach_copy_(targets, news)
    if counted:
        _set_version(tuple(counted), tuple(versions))


def _replay(steps: tuple[ViewStep, ...], base: torch.Tensor) -> torch.Tensor:
    for step in steps:
        base = step.replay(base)
    return base


def _rebuild(row: OutputRow, base: torch.Tensor) -> torch.Tensor:
    """One output as a view of its base, as eager's autograd would know it."""
    if row.how == "self":
        return base
    if row.how == "plain":
        return _replay(row.steps, base) if row.steps else _alias(base)
    with _grad_mode(False):
        if row.how == "detach":
            return _replay(row.steps, base).detach()
        if row.how == "data":
            return _replay(row.steps, base).data
        if row.how in ("detached", "of_data"):
            base = base.detach() if row.how == "detached" else base.data
        view = _replay(row.steps, base)
        return view if view._is_view() else _alias(view)


@final
class OutputAssembly:
    """What happens between the results of the graph and the outputs of the program."""

    def __init__(self, traced: Traced, *, written_in_graph: bool) -> None:
        effects = traced.effects
        self.mutations, self.bumps = effects.mutations, effects.bumps
        self.rows = effects.rows
        self.sizes, self.bits = traced.sizes, traced.bits
        self.count = traced.results
        self.written_in_graph = written_in_graph
        self.trivial = (
            not self.mutations
            and not self.bumps
            and all(
                row.source == "fresh" and row.how == "self" and row.index == k
                for k, row in enumerate(self.rows)
            )
        )

    def __call__(
        self, inputs: Sequence[Any], results: Sequence[Any], versions: Sequence[int] | None = None
    ) -> tuple[Any, ...]:
        """The outputs of the program. ``versions`` of changed inputs: before the graph, which may write to them."""
        skip = 0
        if not self.written_in_graph:
            skip = len(self.mutations)
            if skip:
                before = _versions(self.mutations, inputs) if versions is None else versions
                _write_back(self.mutations, inputs, results, self.bits, before)
        for index, bump in self.bumps:
            if not inputs[index].is_inference():
                _set_version((inputs[index],), (inputs[index]._version + bump,))
        outputs: list[Any] = []
        rows: list[OutputRow] = self.rows
        if self.sizes is not None:
            rows = self.sizes.rows(rows, inputs)
        for row in rows:
            match row.source:
                case "constant":
                    outputs.append(row.value)
                case "same":
                    outputs.append(outputs[row.index])
                case "input":
                    outputs.append(_rebuild(row, inputs[row.index]))
                case "fresh":
                    outputs.append(_rebuild(row, results[skip + row.index]))
        return tuple(outputs)


def _dressed(traced: Traced, call: Boxed) -> Boxed:
    if traced.autocast is not None:
        call = without_autocast(call)
    if traced.bits:
        call = without_bits(call, traced.bits)
    return without_views(call, traced.view_results) if traced.view_results else call


# -- inference ---------------------------------------------------------------------------------


def run_inference(traced: Traced, compiled: Boxed, *, written_in_graph: bool) -> Callable[..., Any]:
    """The callable of a program without backward."""
    epilogue = OutputAssembly(traced, written_in_graph=written_in_graph)
    mutations = traced.effects.mutations if written_in_graph else []
    tracked = traced.grad_mode and traced.tracked
    compiled = _dressed(traced, compiled)

    def run(*inputs: Any) -> tuple[Any, ...]:
        versions = _versions(epilogue.mutations, inputs) if epilogue.mutations else None
        if tracked:
            with _grad_mode(False):
                results = compiled(list(inputs))
        else:
            results = compiled(list(inputs))
        return tuple(results) if epilogue.trivial else epilogue(inputs, results, versions)

    def run_writing(*inputs: Any) -> tuple[Any, ...]:
        counted = [(m, inputs[m.index]) for m in mutations if not inputs[m.index].is_inference()]
        versions = [target._version for _, target in counted]
        outputs = run(*inputs)
        for (mutation, target), version in zip(counted, versions, strict=True):
            _set_version((target,), (version + mutation.bump,))
        return outputs

    return run_writing if mutations else run


# -- training ----------------------------------------------------------------------------------


def full_backward(traced: Traced) -> Asked:
    """All tangents are there, all gradients are wanted."""
    return Asked((1 << len(traced.tangents)) - 1, (1 << len(traced.differentiable)) - 1)


def _twin(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the strides and bits of the original, gaps in memory included: code was made for them."""
    if tensor.is_conj():
        return torch._conj(_twin(torch._conj(tensor)))
    if tensor.is_neg():
        return torch._neg_view(_twin(torch._neg_view(tensor)))
    copy = tensor.clone()
    if copy.stride() == tensor.stride():
        return copy
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(tensor)


def run_training(
    traced: Traced, forward: Boxed, backward: Backward, again: Differentiable
) -> Callable[..., Any]:
    """The callable of a program with a backward; ``again`` serves ``create_graph=True``."""
    apply = _make_function(traced, forward, backward, again)
    epilogue = OutputAssembly(traced, written_in_graph=False)
    copied = traced.copied_inputs
    flipped = traced.flipped_inputs
    grad_mode = traced.grad_mode
    # No result has a gradient with respect to these. The engine must not walk their histories, as it does not in
    # eager: they may be freed, or have no derivative.
    written = {mutation.index for mutation in traced.effects.mutations}
    needs = zip(traced.differentiable, traced.gradient_needs, strict=True)
    unreached = [i for i, tangents in needs if not tangents and i not in written]
    plain = grad_mode and not copied and not flipped and not unreached

    def prepare(inputs: tuple[Any, ...]) -> list[Any]:
        for index in flipped:
            inputs[index].requires_grad_()
        values = list(inputs)
        for index in copied:
            values[index] = _twin(inputs[index])
        for index in unreached:
            values[index] = values[index].detach().requires_grad_()
        return values

    def run(*inputs: Any) -> tuple[Any, ...]:
        if plain:
            results = apply(*inputs)
        else:
            with _grad_mode(True):
                results = apply(*prepare(inputs))
        if epilogue.trivial:
            return results
        if grad_mode:
            return epilogue(inputs, results)
        with _grad_mode(True):
            return epilogue(inputs, results)

    return run


def _make_function(
    traced: Traced, forward: Boxed, backward: Backward, again: Differentiable
) -> Callable[..., Any]:
    """``apply`` of an autograd function made for one graph."""
    results, random, sizes, parts = traced.results, traced.random, traced.sizes, traced.parts
    places = Places(traced)
    checked, constant = places.checked, places.constant
    forward = _dressed(traced, forward)

    class CompiledFunction(torch.autograd.Function):
        """One compiled graph in torch's autograd."""

        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            """Run the forward, keep what the backward needs."""
            ctx.set_materialize_grads(False)
            ctx.primals = args
            ctx.versions = [args[k]._version for k, _ in checked]
            ctx.generator = torch.get_rng_state() if random else None
            values = forward(list(args))
            if sizes is not None:
                ctx.sizes = sizes.values(args)
                values = values[: len(values) - len(ctx.sizes)]
            # without, there may be any number of backwards, as in eager
            ctx.keeps = len(values) > results
            outputs = tuple(values[:results])
            ctx.kept = keep(parts, values[results:], outputs)
            if ctx.kept is None:
                ctx.save_for_backward(*values[results:])
            if constant:
                ctx.mark_non_differentiable(*[outputs[k] for k in constant])
            return outputs

        @staticmethod
        @_native.disabled  # it may compile, in the middle of a compiled function of the user that calls backward()
        def backward(ctx: Any, *grads: Any) -> Any:
            """Run the backward, or its differentiable form."""
            present, tangents = places.gather(grads, None if sizes is None else ctx.sizes)
            if not present:
                return (None,) * places.inputs
            asked = Asked(present, places.wanted(ctx.next_functions))
            gradients = None
            if not torch.is_grad_enabled():
                gradients = _run_backward(ctx, places, asked, tangents, backward)
            if gradients is None:
                gradients = _differentiate(ctx, tangents, asked, checked, again)
            return places.scatter(gradients, present)

    # Function.apply in Python only serves functorch transforms, which never reach a compiled graph
    return super(torch.autograd.Function, CompiledFunction).apply


def _run_backward(
    ctx: Any, places: Places, asked: Asked, tangents: list[Any], backward: Backward
) -> Sequence[Any] | None:
    """Gradients without a history; None when there is no code for what is asked, and the inputs are unchanged."""
    present = asked.tangents
    opened = None if places.sizes is None else ctx.sizes
    if ctx.primals is None:
        _saved(ctx, present)  # raises what eager raises when they were freed
    run = backward(asked, ctx.primals)
    if run is None:
        if _are_unchanged(ctx, places.checked, present):
            return None
        # zeros for what is missing: not quite the same, where a derivative is infinite
        run = backward(Asked(places.every, asked.gradients), ctx.primals)
        tangents[:] = places.fill(tangents, present, opened)
    assert run is not None
    values = [*(_saved(ctx, present) if ctx.keeps else ()), *(opened or {}).values(), *tangents]
    tangents.clear()
    if ctx.keeps:
        _release(ctx, present)
    gradients: Sequence[Any] = run(values)
    return gradients


def _saved(ctx: Any, present: int) -> Sequence[Any]:
    """What the forward kept; raises what eager raises when something that these tangents need was freed or changed."""
    found: Sequence[Any] = ctx.saved_tensors if ctx.kept is None else ctx.kept.take(present)
    return found


def _release(ctx: Any, present: int) -> None:
    """Let go of saved tensors and inputs before the backward runs, unless the graph is retained."""
    if ctx.kept is not None:
        if ctx.kept.release(present):
            ctx.primals = None
        return
    ctx.maybe_clear_saved_tensors()
    # the question that cleared them; to ask for them raises, which takes as long as a small kernel
    if not torch._C._autograd._get_current_graph_task_keep_graph():
        ctx.primals = None


def _are_unchanged(ctx: Any, checked: Sequence[tuple[int, int]], present: int) -> bool:
    """Whether the inputs that these tangents need are what they were in the forward."""
    rows = zip(checked, ctx.versions, strict=True)
    return all(
        ctx.primals[k]._version == version for (k, needs), version in rows if needs & present
    )


def _differentiate(
    ctx: Any,
    tangents: list[Any],
    asked: Asked,
    checked: Sequence[tuple[int, int]],
    again: Differentiable,
) -> Sequence[Any]:
    """Gradients with a history, from the same inputs and the same random draws."""
    if ctx.keeps:
        _saved(ctx, asked.tangents)
    primals = ctx.primals
    if not _are_unchanged(ctx, checked, asked.tangents):
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an "
            "inplace operation between the forward and this differentiable backward"
        )
    if ctx.generator is None:
        return again(primals, tangents, asked)
    state = torch.get_rng_state()
    torch.set_rng_state(ctx.generator)
    try:
        return again(primals, tangents, asked)
    finally:
        torch.set_rng_state(state)
