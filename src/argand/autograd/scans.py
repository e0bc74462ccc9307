"""autograd.scans: a program over and over, once per slice of its operands, traced with its gradients.

In: a call of `torch.ops.higher_order.scan` or `map_impl` on fakes, while a recorder watches. Out: fakes, and one node
over an aten body. The backward is a scan that runs the other way, over what the rounds have kept; a backward
that is to be differentiated itself scans the program again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import torch

from argand.autograd.bodies import (
    Halves,
    Program,
    RunBody,
    aside,
    emit_call,
    gradient_of,
    halve,
    is_float,
    needs_gradient,
    only_tensors,
    trace_body,
)
from argand.autograd.nodes import fresh_like
from argand.autograd.recorder import AtenRecorder
from argand.ops.control_flow import SCAN, first_slice, stacked


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


def scan(
    recorder: AtenRecorder,
    run: RunBody,
    combine: Any,
    init: Sequence[Any],
    xs: Sequence[Any],
    more: Sequence[Any] = (),
) -> tuple[Any, ...]:
    """The rule of ``scan``: the last carries, and the rows of all rounds."""
    program, tensors = only_tensors(run(combine), [*init, *xs, *more])
    lengths = Lengths(len(init), len(xs), len(tensors) - len(init) - len(xs))
    return apply_scan(recorder, run, program, lengths, tensors)


def map_rows(
    recorder: AtenRecorder, run: RunBody, function: Any, xs: Sequence[Any], more: Sequence[Any] = ()
) -> tuple[Any, ...]:
    """The rule of ``map``: a scan that carries nothing."""
    return scan(recorder, run, function, (), xs, more)


def apply_scan(
    recorder: AtenRecorder,
    run: RunBody,
    program: Program,
    lengths: Lengths,
    tensors: Sequence[torch.Tensor],
) -> tuple[Any, ...]:
    """A program over and over: (carries, slices, others) -> (carries, rows)."""
    if needs_gradient(tensors):
        return tuple(_Scan.apply(recorder, run, program, lengths, *tensors))
    return tuple(_emit_scan(recorder, program, lengths, tensors))


def _round(lengths: Lengths, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What one round gets."""
    init, xs, more = lengths.split(tensors)
    return [
        *(torch.empty(x.shape, dtype=x.dtype) for x in init),
        *(first_slice(x.detach()) for x in xs),
        *more,
    ]


def _emit_scan(
    recorder: AtenRecorder, program: Program, lengths: Lengths, tensors: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    with torch.no_grad(), aside():
        body = trace_body(recorder, program, _round(lengths, tensors))
        rows = body.results[lengths.carries :]
        init, xs, more = lengths.split([recorder.node_of(value) for value in tensors])
        count = tensors[lengths.carries].shape[0]
        results = [
            *map(fresh_like, body.results[: lengths.carries]),
            *(stacked(row, count) for row in rows),
        ]
        return emit_call(
            recorder,
            SCAN,
            [body],
            lambda graphs, sizes: (*graphs, init, xs, [*more, *sizes]),
            results,
        )


@final
class _Scan(torch.autograd.Function):
    """A loop; what each round keeps for the backward is stacked."""

    @staticmethod
    def forward(
        ctx: Any,
        recorder: AtenRecorder,
        run: RunBody,
        program: Program,
        lengths: Lengths,
        *tensors: torch.Tensor,
    ) -> Any:
        """Record the loop."""
        init, _, _ = lengths.split(tensors)
        wanted = [
            k
            for k, value in enumerate(tensors)
            if is_float(value) and (value.requires_grad or k < len(init))
        ]
        with aside():
            values = _round(lengths, tensors)
        half = halve(recorder, program, values, wanted, run)
        forward = _keeping(half, lengths)
        made = _emit_scan(recorder, forward, lengths, tensors)
        carried = sum(s.source == "input" and s.place < lengths.carries for s in half.saved)
        count = len(made) - half.kept - carried
        results = made[:count]
        ctx.mark_non_differentiable(*(value for value in results if not is_float(value)))
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
            found = _gradient_again(
                recorder,
                run,
                program=program,
                lengths=lengths,
                wanted=wanted,
                tensors=tensors,
                grads=grads,
                tangents=half.tangents,
            )
        else:
            found = _gradient_once(
                recorder,
                run,
                lengths=lengths,
                half=half,
                wanted=wanted,
                tensors=tensors,
                grads=grads,
                kept=ctx.kept,
            )
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
        found = dict(
            zip(wanted, one_round(inner, [*inputs, *(given[k] for k in tangents)]), strict=True)
        )
        added = [s + found[k] for s, k in zip(sums, others, strict=True)]
        return [*(found[k] for k in carries), *added, *(found[k] for k in slices)]

    start = [*(grads[k] for k in carries), *(torch.zeros_like(tensors[k]) for k in others)]
    over = [*(grads[k] for k in rows), *befores, *(tensors[k] for k in xs)]
    reverse = Lengths(len(start), len(over), len(more))
    made = list(
        apply_scan(
            recorder, run, back, reverse, [*start, *_flipped(over), *(tensors[k] for k in more)]
        )
    )
    named = dict(zip([*carries, *others], made, strict=False))
    named |= dict(zip(slices, _flipped(made[len(start) :]), strict=True))
    return [named[k] for k in wanted]
