"""capture.rules.control_flow: operators that take functions: cond, while_loop, scan, map.

In: a call of one of `torch.ops.higher_order`, as torch's Python functions of these names make it. Out: one node over
graphs of the functions (`branches`), as torch.compile has it, and fakes of its results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import torch
from torch.utils import _pytree as pytree

from argand.capture.objects.tracer import Tracer
from argand.capture.record.pending import Pending
from argand.capture.record.recorder import Recorder
from argand.capture.rules import torch_functions
from argand.capture.rules.branches import Branch, check_own, close_branch, refused, trace_branch
from argand.ops.control_flow import COND, MAP, SCAN, WHILE_LOOP, first_slice, stacked
from argand.support.errors import Break, CaptureBreak

# Operators that call their function once, and mean something to torch's own compiler only.
_MARKS: Final = frozenset({"invoke_quant", "invoke_quant_packed", "wrap"})


class _Joined(torch.autograd.Function):
    """Gives fakes the history of what they are computed from."""

    @staticmethod
    def forward(ctx: Any, likes: Sequence[Any], *sources: torch.Tensor) -> Any:
        """Fresh fakes."""
        made = tuple(torch.empty_like(like) for like in likes)
        ctx.mark_non_differentiable(
            *(m for m in made if not (m.is_floating_point() or m.is_complex()))
        )
        return made

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """What it would be is the operator's own, which runs when the graph does: who asks while tracing must wait."""
        broken = CaptureBreak(
            Break.B013, None, what="autograd.grad through an operator that takes functions"
        )
        broken.native = True
        raise broken


def joined(likes: Sequence[Any], sources: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Fakes like these, with a history of what they are computed from."""
    return list(_Joined.apply(likes, *sources)) if likes else []


def call(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of a higher-order operator."""
    if function.name() in _MARKS:
        return tracer.call(args[0], args[1:], {})
    rule = _RULES.get(function)
    if rule is None:
        raise CaptureBreak(Break.B002, None, function=f"torch.ops.higher_order.{function}")
    return rule(tracer, *args, **kwargs)


def _tensors(operator: str, values: Iterable[Any], what: str) -> list[torch.Tensor]:
    found = list(values)
    for value in found:
        if not isinstance(value, torch.Tensor):
            raise refused(operator, f"{what} must be tensors, not {type(value).__name__}")
    return found


def _emit(
    recorder: Recorder,
    target: Any,
    branches: Sequence[tuple[str, Branch]],
    arrange: Callable[[list[Any], list[Any]], tuple[Any, ...]],
    results: Sequence[Any],
) -> list[Any]:
    """The node, and its results as fakes. `arrange`: its arguments, of the graphs and of what is lifted."""
    lifted: dict[Any, Any] = {}
    for _, branch in branches:
        lifted |= {key: outer for key, (_, outer) in branch.lifted.items()}
    graphs = []
    for name, branch in branches:
        module = close_branch(branch, list(lifted.items()), name)
        graphs.append(recorder.submodule(name, module))
    args = arrange(graphs, list(lifted.values()))
    sources = [v for v in _values_of(args) if isinstance(v, torch.Tensor) and v.requires_grad]
    made = joined(results, sources)
    recorder.add_call(target, args, tuple(made))
    return made


def _values_of(args: Any) -> list[Any]:
    nodes = [n for n in pytree.tree_leaves(args) if isinstance(n, torch.fx.Node)]
    return [node.meta.get("example_value") for node in nodes]


def _cond(
    tracer: Tracer, pred: Any, true_fn: Any, false_fn: Any, operands: Sequence[Any] = ()
) -> Any:
    if isinstance(pred, Pending):
        pred = pred.tensor
    if not isinstance(pred, torch.Tensor):
        return tracer.call(true_fn if pred else false_fn, tuple(operands), {})
    leaves = _tensors("torch.cond", pytree.tree_leaves(list(operands)), "operands")
    if pred.numel() != 1:
        raise refused("torch.cond", "its condition must be one element")
    true, false = (
        trace_branch(tracer, "torch.cond", f, operands, leaves) for f in (true_fn, false_fn)
    )
    _check_alike("torch.cond", "true_fn", true, "false_fn", false)
    recorder = tracer.recorder
    places, likes = _split(true)
    likes = [_of_both(one, two) for one, two in zip(likes, _split(false)[1], strict=True)]
    node = recorder.node_of(pred)
    given = [recorder.node_of(leaf) for leaf in leaves]
    made = _emit(
        tracer.recorder,
        COND,
        (("cond_true", true), ("cond_false", false)),
        lambda graphs, lifted: (node, *graphs, (*given, *lifted)),
        likes,
    )
    return _rebuilt(true, places, made)


def _of_both(one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
    """What stands for a result of either branch."""
    return one if one.stride() == two.stride() else one.new_empty(one.shape)


def _split(branch: Branch) -> tuple[list[int], list[torch.Tensor]]:
    """Which leaves of the results are tensors, and these."""
    places = [i for i, leaf in enumerate(branch.results) if isinstance(leaf, torch.Tensor)]
    return places, [branch.results[i] for i in places]


def _rebuilt(branch: Branch, places: Sequence[int], made: Sequence[Any]) -> Any:
    leaves = list(branch.results)
    for place, value in zip(places, made, strict=True):
        leaves[place] = value
    return pytree.tree_unflatten(leaves, branch.structure)


def _check_alike(operator: str, name: str, one: Branch, other: str, two: Branch) -> None:
    """Both branches must give the same: structure, types, sizes."""
    for branch in (one, two):
        check_own(operator, branch)
    if one.structure != two.structure:
        raise refused(operator, f"{name} gives {one.structure}, {other} gives {two.structure}")
    for left, right in zip(one.results, two.results, strict=True):
        _check_pair(operator, name, left, other, right)


def _check_pair(operator: str, name: str, left: Any, other: str, right: Any) -> None:
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        if left.shape != right.shape:
            raise refused(
                operator, f"{name} gives sizes {list(left.shape)}, {other} {list(right.shape)}"
            )
        if left.dtype is not right.dtype:
            raise refused(operator, f"{name} gives {left.dtype}, {other} {right.dtype}")
    elif type(left) is not type(right) or left != right:
        raise refused(operator, f"{name} gives {left!r}, {other} {right!r}")


def _fresh(value: torch.Tensor) -> torch.Tensor:
    """What stands for a carry in the middle of a loop: dense, with the history that the first one has."""
    made = torch.empty_like(value, memory_format=torch.contiguous_format)
    return made.requires_grad_() if value.requires_grad else made


def _slice(value: torch.Tensor) -> torch.Tensor:
    made = first_slice(value.detach())
    fresh = torch.empty_strided(made.shape, made.stride(), dtype=made.dtype)
    return fresh.requires_grad_() if value.requires_grad else fresh


def _scan(tracer: Tracer, combine_fn: Any, init: Any, xs: Any, additional_inputs: Any = ()) -> Any:
    operator = "scan"
    init, xs = _tensors(operator, init, "carries"), _tensors(operator, xs, "xs")
    more = list(additional_inputs)
    carry, parts = [_fresh(value) for value in init], [_slice(value) for value in xs]
    branch = trace_branch(
        tracer, operator, combine_fn, (*carry, *parts, *more), (*carry, *parts, *more)
    )
    results = _tensors(operator, branch.results, "results of combine_fn")
    check_own(operator, branch)
    for number, (one, two) in enumerate(zip(carry, results, strict=False)):
        _check_pair(operator, f"carry {number} at first", one, "combine_fn", two)
    if len(results) < len(carry):
        raise refused(operator, "combine_fn gives fewer carries than it takes")
    recorder = tracer.recorder
    nodes = [[recorder.node_of(value) for value in values] for values in (init, xs, more)]
    likes = [
        *map(_dense, results[: len(init)]),
        *(stacked(row, xs[0].shape[0]) for row in results[len(init) :]),
    ]
    made = _emit(
        tracer.recorder,
        SCAN,
        (("scan_combine_fn", branch),),
        lambda graphs, lifted: (*graphs, nodes[0], nodes[1], [*nodes[2], *lifted]),
        likes,
    )
    return pytree.tree_unflatten(made, branch.structure)


def _dense(value: torch.Tensor) -> torch.Tensor:
    return value.new_empty(value.shape)


def _map(tracer: Tracer, function: Any, xs: Any, pos_args: Any = ()) -> Any:
    operator = "map"
    xs, more = _tensors(operator, xs, "xs"), list(pos_args)
    parts = [_slice(value) for value in xs]
    branch = trace_branch(tracer, operator, function, (*parts, *more), (*parts, *more))
    results = _tensors(operator, branch.results, "results")
    check_own(operator, branch)
    recorder = tracer.recorder
    nodes = [recorder.node_of(value) for value in xs]
    given = [recorder.argument(value) for value in more]
    made = _emit(
        tracer.recorder,
        MAP,
        (("map_body", branch),),
        lambda graphs, lifted: (*graphs, nodes, [*given, *lifted]),
        [stacked(row, xs[0].shape[0]) for row in results],
    )
    return pytree.tree_unflatten(made, branch.structure)


def _while_loop(
    tracer: Tracer, cond_fn: Any, body_fn: Any, carried_inputs: Any, additional_inputs: Any = ()
) -> Any:
    operator = "while_loop"
    # An integer among the carries is a tensor in the loop, and a number of the graph after it.
    numbers = {k for k, value in enumerate(carried_inputs) if type(value) is int}
    make = tracer.recorder.call_function
    listed = [
        make(torch.tensor, (v,), {}) if k in numbers else v for k, v in enumerate(carried_inputs)
    ]
    init, more = _tensors(operator, listed, "carried inputs"), list(additional_inputs)
    carry = [_fresh(value) for value in init]
    given = (*carry, *more)
    test = trace_branch(tracer, operator, cond_fn, given, given, single=True)
    body = trace_branch(tracer, operator, body_fn, given, given)
    if not isinstance(test.results[0], torch.Tensor):
        raise refused(operator, "cond_fn must give one boolean tensor")
    if test.results[0].shape != () or test.results[0].dtype is not torch.bool:
        raise refused(operator, "cond_fn must give a boolean tensor without dimensions")
    results = _tensors(operator, body.results, "results of body_fn")
    check_own(operator, body)
    if len(results) != len(carry):
        raise refused(operator, f"body_fn takes {len(carry)} carries and gives {len(results)}")
    for number, (one, two) in enumerate(zip(carry, results, strict=True)):
        _check_pair(operator, f"carry {number} at first", one, "body_fn", two)
    recorder = tracer.recorder
    nodes = [tuple(recorder.node_of(value) for value in values) for values in (init, more)]
    made = _emit(
        tracer.recorder,
        WHILE_LOOP,
        (("while_cond", test), ("while_body", body)),
        lambda graphs, lifted: (*graphs, nodes[0], (*nodes[1], *lifted)),
        list(map(_dense, results)),
    )
    leaves = [
        torch_functions.call_method(tracer, "item", (v,), {}) if k in numbers else v
        for k, v in enumerate(made)
    ]
    return pytree.tree_unflatten(leaves, body.structure)


_RULES: Final[Mapping[Any, Callable[..., Any]]] = {
    COND: _cond,
    SCAN: _scan,
    MAP: _map,
    WHILE_LOOP: _while_loop,
}
