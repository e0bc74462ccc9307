"""autograd.control_flow: operators that take graphs, traced with their gradients.

In: a call of `torch.ops.higher_order.cond`, `scan` or `map_impl` on fakes, while a recorder watches. Out: fakes, and one
node over aten bodies. Where something needs a gradient the call is an autograd function whose backward is a call of the
same operator over the backwards of the bodies. When the gradient itself is to be differentiated, the backward
is a program in terms of the operators themselves, so there are derivatives of any order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, final

import torch

from argand.autograd.bodies import Halves, Program, aside, emit_call, halve, trace_body
from argand.autograd.outputs import Untraceable
from argand.autograd.recorder import AtenRecorder
from argand.autograd.recording import run_engine
from argand.ops.control_flow import COND, MAP, SCAN, WHILE_LOOP, first_slice, stacked

RunBody = Callable[[Any], Program]


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def _needs_gradient(values: Sequence[Any]) -> bool:
    return torch.is_grad_enabled() and any(isinstance(v, torch.Tensor) and v.requires_grad for v in values)


def _fresh(value: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)


def _only_tensors(program: Program, operands: Sequence[Any]) -> tuple[Program, list[torch.Tensor]]:
    """A program of the tensors among its operands; the sizes are what they are."""
    places = [k for k, value in enumerate(operands) if isinstance(value, torch.Tensor)]
    others = list(operands)

    def of_tensors(recorder: AtenRecorder, inputs: list[Any]) -> Sequence[Any]:
        values = list(others)
        for place, value in zip(places, inputs, strict=True):
            values[place] = value
        result = program(recorder, values)
        return (result,) if isinstance(result, torch.Tensor) else result

    return of_tensors, [operands[k] for k in places]


def gradient_of(program: Program, count: int, wanted: Sequence[int], tangents: Sequence[int]) -> Program:
    """(inputs, tangents) -> the gradients of the inputs in ``wanted``, zeros where there is none."""

    def gradients(recorder: AtenRecorder, values: list[Any]) -> Sequence[Any]:
        inputs, given = values[:count], dict(zip(tangents, values[count:], strict=True))
        again = any(value.requires_grad for value in values)
        with torch.enable_grad():
            leaves = [x if x.requires_grad else x.detach().requires_grad_() for x in (inputs[i] for i in wanted)]
            for place, leaf in zip(wanted, leaves, strict=True):
                inputs[place] = leaf
            results = list(program(recorder, inputs))
            chosen = [k for k in given if results[k].requires_grad]
            ends, starts = [results[k] for k in chosen], [given[k] for k in chosen]
            found = run_engine(ends, starts, leaves, create_graph=again) if ends else [None] * len(leaves)
        return [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found, strict=True)]

    return gradients


# -- cond ------------------------------------------------------------------------------------------


def _cond(
    recorder: AtenRecorder, run: RunBody, pred: Any, true: Any, false: Any, operands: Sequence[Any]
) -> tuple[Any, ...]:
    if not isinstance(pred, torch.Tensor):
        return tuple(run(true if pred else false)(recorder, list(operands)))
    pred = pred if pred.dtype is torch.bool else pred != 0
    programs: list[Program] = []
    tensors: list[torch.Tensor] = []
    for graph in (true, false):
        program, tensors = _only_tensors(run(graph), operands)
        programs.append(program)
    return apply_cond(recorder, run, pred, programs, tensors)


def apply_cond(
    recorder: AtenRecorder,
    run: RunBody,
    pred: torch.Tensor,
    programs: Sequence[Program],
    tensors: Sequence[torch.Tensor],
) -> tuple[Any, ...]:
    """One of two programs."""
    if _needs_gradient(tensors):
        return tuple(_Cond.apply(recorder, run, programs, pred, *tensors))
    return tuple(_emit_cond(recorder, pred, programs, tensors))


def _emit_cond(
    recorder: AtenRecorder, pred: torch.Tensor, programs: Sequence[Program], tensors: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    bodies = [trace_body(recorder, program, tensors) for program in programs]
    with aside():
        results = [_fresh(value) for value in bodies[0].results]
        nodes = [recorder.node_of(value) for value in tensors]
        condition = recorder.node_of(pred)
        return emit_call(recorder, COND, bodies, lambda graphs, sizes: (condition, *graphs, (*nodes, *sizes)), results)


@final
class _Cond(torch.autograd.Function):
    """A condition; what the branches keep for the backward are results of both."""

    @staticmethod
    def forward(
        ctx: Any,
        recorder: AtenRecorder,
        run: RunBody,
        programs: Sequence[Program],
        pred: torch.Tensor,
        *tensors: torch.Tensor,
    ) -> Any:
        """Record the call."""
        wanted = [k for k, value in enumerate(tensors) if value.requires_grad and _is_float(value)]
        halves = [halve(recorder, program, tensors, wanted, run) for program in programs]
        likes = [_kept(recorder, half, tensors) for half in halves]
        count = len(likes[0]) - halves[0].kept
        kept = [like[count:] for like in likes]
        both = [_padded(half.forward, count, kept, which) for which, half in enumerate(halves)]
        made = _emit_cond(recorder, pred, both, tensors)
        results = made[:count]
        ctx.mark_non_differentiable(*(value for value in results if not _is_float(value)))
        ctx.save_for_backward(pred, *tensors)
        ctx.call = (recorder, run, programs, halves, wanted)
        ctx.kept = made[count:]
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Record the call of the backwards."""
        recorder, run, programs, halves, wanted = ctx.call
        pred, *tensors = ctx.saved_tensors
        tangents = sorted({k for half in halves for k in half.tangents})
        given = [grads[k] for k in tangents]
        if torch.is_grad_enabled():
            again = [gradient_of(program, len(tensors), wanted, tangents) for program in programs]
            found = apply_cond(recorder, run, pred, again, [*tensors, *given])
        else:
            split = halves[0].kept
            kept = (ctx.kept[:split], ctx.kept[split:])
            inputs = [*tensors, *ctx.kept, *given]
            places = [(len(tensors), split), (len(tensors) + split, len(kept[1]))]
            backs = [
                _backward_of(half, place, wanted, tangents, len(inputs) - len(given), run)
                for half, place in zip(halves, places, strict=True)
            ]
            found = tuple(_emit_cond(recorder, pred, backs, inputs))
        answer: list[Any] = [None] * len(tensors)
        for place, gradient in zip(wanted, found, strict=True):
            answer[place] = gradient
        return (None, None, None, None, *answer)


def _kept(recorder: AtenRecorder, half: Halves, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return trace_body(recorder, half.forward, tensors).results


def _padded(forward: Program, count: int, kept: Sequence[Sequence[torch.Tensor]], which: int) -> Program:
    """A forward that gives something for what the other branch keeps."""

    def program(recorder: AtenRecorder, inputs: list[Any]) -> Sequence[Any]:
        results = list(forward(recorder, inputs))
        own, mine = results[:count], results[count:]
        others = [torch.zeros(like.shape, dtype=like.dtype) for like in kept[1 - which]]
        return [*own, *mine, *others] if which == 0 else [*own, *others, *mine]

    return program


def _backward_of(
    half: Halves, place: tuple[int, int], wanted: Sequence[int], tangents: Sequence[int], before: int, run: RunBody
) -> Program:
    """The backward of a branch as a program of (inputs, kept of both, tangents)."""
    backward = run(half.backward)

    def program(recorder: AtenRecorder, values: list[Any]) -> Sequence[Any]:
        given = dict(zip(tangents, values[before:], strict=True))
        saved = [_find(s, values, place[0]) for s in half.saved]
        found = backward(recorder, [*saved, *(given[k] for k in half.tangents)]) if half.tangents else ()
        listed = list(found) or [None] * len(wanted)
        return [torch.zeros_like(values[k]) if g is None else g for k, g in zip(wanted, listed, strict=True)]

    return program


def _find(saved: Any, values: Sequence[Any], kept_from: int) -> Any:
    if saved.source == "size":
        return saved.size
    return values[saved.place if saved.source == "input" else kept_from + saved.place]


# -- scan and map ----------------------------------------------------------------------------------


@final
class Lengths:
    """How many carries, slices and other operands a scan has."""

    __slots__ = ("carries", "more", "slices")

    def __init__(self, carries: int, slices: int, more: int) -> None:
        self.carries, self.slices, self.more = carries, slices, more

    def split(self, values: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """Operands by what they are."""
        a, b = self.carries, self.carries + self.slices
        return list(values[:a]), list(values[a:b]), list(values[b:])


def _scan(
    recorder: AtenRecorder, run: RunBody, combine: Any, init: Sequence[Any], xs: Sequence[Any], more: Sequence[Any] = ()
) -> tuple[Any, ...]:
    program, tensors = _only_tensors(run(combine), [*init, *xs, *more])
    lengths = Lengths(len(init), len(xs), len(tensors) - len(init) - len(xs))
    return apply_scan(recorder, run, program, lengths, tensors)


def _map(
    recorder: AtenRecorder, run: RunBody, function: Any, xs: Sequence[Any], more: Sequence[Any] = ()
) -> tuple[Any, ...]:
    return _scan(recorder, run, function, (), xs, more)


def apply_scan(
    recorder: AtenRecorder, run: RunBody, program: Program, lengths: Lengths, tensors: Sequence[torch.Tensor]
) -> tuple[Any, ...]:
    """A program over and over: (carries, slices, others) -> (carries, rows)."""
    if _needs_gradient(tensors):
        return tuple(_Scan.apply(recorder, run, program, lengths, *tensors))
    return tuple(_emit_scan(recorder, program, lengths, tensors))


def _round(lengths: Lengths, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What one round gets."""
    init, xs, more = lengths.split(tensors)
    return [*(torch.empty(x.shape, dtype=x.dtype) for x in init), *(first_slice(x.detach()) for x in xs), *more]


def _emit_scan(
    recorder: AtenRecorder, program: Program, lengths: Lengths, tensors: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    with torch.no_grad(), aside():
        body = trace_body(recorder, program, _round(lengths, tensors))
        rows = body.results[lengths.carries :]
        init, xs, more = lengths.split([recorder.node_of(value) for value in tensors])
        count = tensors[lengths.carries].shape[0]
        results = [*map(_fresh, body.results[: lengths.carries]), *(stacked(row, count) for row in rows)]
        return emit_call(recorder, SCAN, [body], lambda graphs, sizes: (*graphs, init, xs, [*more, *sizes]), results)


@final
class _Scan(torch.autograd.Function):
    """A loop; what each round keeps for the backward is stacked."""

    @staticmethod
    def forward(
        ctx: Any, recorder: AtenRecorder, run: RunBody, program: Program, lengths: Lengths, *tensors: torch.Tensor
    ) -> Any:
        """Record the loop."""
        init, _, _ = lengths.split(tensors)
        wanted = [k for k, value in enumerate(tensors) if _is_float(value) and (value.requires_grad or k < len(init))]
        with aside():
            values = _round(lengths, tensors)
        half = halve(recorder, program, values, wanted, run)
        forward = _keeping(half, lengths)
        made = _emit_scan(recorder, forward, lengths, tensors)
        carried = sum(s.source == "input" and s.place < lengths.carries for s in half.saved)
        count = len(made) - half.kept - carried
        results = made[:count]
        ctx.mark_non_differentiable(*(value for value in results if not _is_float(value)))
        ctx.save_for_backward(*tensors)
        ctx.call = (recorder, run, program, lengths, half, wanted)
        ctx.kept = made[count:]
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Record the loop from its end."""
        recorder, run, program, lengths, half, wanted = ctx.call
        tensors = list(ctx.saved_tensors)
        if torch.is_grad_enabled():
            found = _gradient_again(recorder, run, program, lengths, wanted, tensors, grads, half.tangents)
        else:
            found = _gradient_once(recorder, run, lengths, half, wanted, tensors, grads, ctx.kept)
        answer: list[Any] = [None] * len(tensors)
        for place, gradient in zip(wanted, found, strict=True):
            answer[place] = gradient if tensors[place].requires_grad else None
        return (None, None, None, None, *answer)


def _keeping(half: Halves, lengths: Lengths) -> Program:
    """The forward of a round that also gives the carries that the backward wants, as they were before it."""
    carried = [s.place for s in half.saved if s.source == "input" and s.place < lengths.carries]

    def program(recorder: AtenRecorder, inputs: list[Any]) -> Sequence[Any]:
        return [*half.forward(recorder, inputs), *(inputs[k] for k in carried)]

    return program


def _flipped(values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [value.flip([0]) for value in values]


def _gradient_once(
    recorder: AtenRecorder,
    run: RunBody,
    lengths: Lengths,
    half: Halves,
    wanted: Sequence[int],
    tensors: Sequence[torch.Tensor],
    grads: Sequence[Any],
    kept: Sequence[torch.Tensor],
) -> list[Any]:
    """The gradients, from what the rounds kept."""
    carried = [s.place for s in half.saved if s.source == "input" and s.place < lengths.carries]
    init, xs, more = lengths.split(range(len(tensors)))
    carries = [k for k in wanted if k in init]
    others = [k for k in wanted if k in more]
    slices = [k for k in wanted if k in xs]
    rows = [k for k in half.tangents if k >= lengths.carries]
    backward = run(half.backward)

    def program(inner: AtenRecorder, values: list[Any]) -> Sequence[Any]:
        feed = iter(values)
        tangents = {k: next(feed) for k in carries}
        sums = [next(feed) for _ in others]
        tangents |= {k: next(feed) for k in rows}
        stack = [next(feed) for _ in kept]
        at = dict(zip([*xs, *more], feed, strict=True))
        at |= dict(zip(carried, stack[half.kept :], strict=True))
        saved = [_find_round(s, at, stack) for s in half.saved]
        found = backward(inner, [*saved, *(tangents[k] for k in half.tangents)])
        named = dict(zip(wanted, found, strict=True))
        made = {k: torch.zeros_like(tangents[k]) if named[k] is None else named[k] for k in carries}
        added = [s if named[k] is None else s + named[k] for s, k in zip(sums, others, strict=True)]
        parts = [torch.zeros_like(at[k]) if named[k] is None else named[k] for k in slices]
        return [*made.values(), *added, *parts]

    start = [*(grads[k] for k in carries), *(torch.zeros_like(tensors[k]) for k in others)]
    over = [*(grads[k] for k in rows), *kept, *(tensors[k] for k in xs)]
    each = [tensors[k] for k in more]
    reverse = Lengths(len(start), len(over), len(each))
    made = list(apply_scan(recorder, run, program, reverse, [*start, *_flipped(over), *each]))
    named = dict(zip([*carries, *others], made, strict=False))
    named |= dict(zip(slices, _flipped(made[len(start) :]), strict=True))
    return [named[k] for k in wanted]


def _find_round(saved: Any, inputs: Mapping[int, Any], stack: Sequence[Any]) -> Any:
    if saved.source == "size":
        return saved.size
    return inputs[saved.place] if saved.source == "input" else stack[saved.place]


def _gradient_again(
    recorder: AtenRecorder,
    run: RunBody,
    program: Program,
    lengths: Lengths,
    wanted: Sequence[int],
    tensors: Sequence[torch.Tensor],
    grads: Sequence[Any],
    tangents: Sequence[int],
) -> list[Any]:
    """The same as a program that can be differentiated: the loop runs once more, and gives all its carries."""
    init, xs, more = lengths.split(range(len(tensors)))
    count = len(init)

    def with_carries(inner: AtenRecorder, values: list[Any]) -> Sequence[Any]:
        results = list(program(inner, list(values)))
        return [*results[:count], *(value.clone() for value in values[:count])]

    befores = list(apply_scan(recorder, run, with_carries, lengths, tensors))[count:]
    one_round = gradient_of(program, len(tensors), wanted, tangents)
    carries, others = [k for k in wanted if k in init], [k for k in wanted if k in more]
    slices, rows = [k for k in wanted if k in xs], [k for k in tangents if k >= count]

    def back(inner: AtenRecorder, values: list[Any]) -> Sequence[Any]:
        feed = iter(values)
        given = {k: next(feed) for k in carries}
        sums = [next(feed) for _ in others]
        given |= {k: next(feed) for k in rows}
        inputs = [next(feed) for _ in tensors]
        found = dict(zip(wanted, one_round(inner, [*inputs, *(given[k] for k in tangents)]), strict=True))
        added = [s + found[k] for s, k in zip(sums, others, strict=True)]
        return [*(found[k] for k in carries), *added, *(found[k] for k in slices)]

    start = [*(grads[k] for k in carries), *(torch.zeros_like(tensors[k]) for k in others)]
    over = [*(grads[k] for k in rows), *befores, *(tensors[k] for k in xs)]
    reverse = Lengths(len(start), len(over), len(more))
    made = list(apply_scan(recorder, run, back, reverse, [*start, *_flipped(over), *(tensors[k] for k in more)]))
    named = dict(zip([*carries, *others], made, strict=False))
    named |= dict(zip(slices, _flipped(made[len(start) :]), strict=True))
    return [named[k] for k in wanted]


# -- while_loop ------------------------------------------------------------------------------------


def _while_loop(
    recorder: AtenRecorder, run: RunBody, test: Any, body: Any, carried: Sequence[Any], more: Sequence[Any] = ()
) -> tuple[Any, ...]:
    programs: list[Program] = []
    tensors: list[torch.Tensor] = []
    for graph in (test, body):
        program, tensors = _only_tensors(run(graph), [*carried, *more])
        programs.append(program)
    if _needs_gradient(tensors):
        raise Untraceable("the gradient of while_loop")
    count = len(carried)
    with torch.no_grad(), aside():
        values = [torch.empty(x.shape, dtype=x.dtype) for x in tensors[:count]] + tensors[count:]
        condition = trace_body(recorder, programs[0], values, single=True)
        once = trace_body(recorder, programs[1], values)
        nodes = [recorder.node_of(value) for value in tensors]
        made = emit_call(
            recorder,
            WHILE_LOOP,
            [condition, once],
            lambda graphs, sizes: (*graphs, tuple(nodes[:count]), (*nodes[count:], *sizes)),
            [_fresh(value) for value in once.results],
        )
    return tuple(made)


RULES: Final[Mapping[Any, Callable[..., Any]]] = {COND: _cond, SCAN: _scan, MAP: _map, WHILE_LOOP: _while_loop}
