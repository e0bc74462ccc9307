"""native.schedule.demand: where values leave our kernels, and with which layout.

In: tensor IR. Out: the same nodes plus ``copy`` nodes at the places where memory of a given layout is
needed and a view of existing memory cannot serve: graph outputs, operands of externs, pieces of
concatenations, sources of gathers.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, NamedTuple, final

from torch._ops import OpOverload

from argand.native.extern import Operand, blas_of, preallocates
from argand.native.ir.affine import Affine
from argand.native.ir.builder import Builder
from argand.native.ir.strides import Strided, apart, dense, same_layout, source_of, strided
from argand.native.ir.tensor import (
    ExternCall,
    Graph,
    Node,
    NodeKind,
    Output,
    TensorMeta,
    in_running_order,
    roots_of,
    topological,
)
from argand.native.ir.types import DType, Shape, at_least, contiguous_strides, numel
from argand.ops.table import Blas
from argand.support import events
from argand.support.dataclass import dataclass, replace

COMPUTED = (NodeKind.POINTWISE, NodeKind.REDUCE, NodeKind.GATHER)


class Destination(NamedTuple):
    """Where a copy is written: into the memory of ``owner`` at these forms of its coordinates."""

    owner: Node
    forms: tuple[Affine, ...]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """What must be in memory. ``operands`` replaces the inputs of a node where it has an entry."""

    graph: Graph
    layouts: Mapping[Node, Shape]
    operands: Mapping[Node, tuple[Node, ...]]
    # writes that must follow another write, draws and checks the one before
    after: Mapping[Node, Node]
    destinations: Mapping[Node, Destination]
    writes: Mapping[Node, int]  # copies into inputs, and which result each is
    # values that are inputs with a part of them written anew, in the inputs' memory
    placed: Mapping[Node, Node]
    outputs: tuple[Any, ...]
    required: frozenset[Node]  # computed nodes that need memory
    nodes: tuple[Node, ...]  # topological over ``needs``

    def inputs(self, node: Node) -> tuple[Node, ...]:
        """Data inputs of a node, as the schedule sees them."""
        return self.operands.get(node, node.inputs)

    def needs(self, node: Node) -> tuple[Node, ...]:
        """What must be there before a node: its inputs, and a write that it must follow."""
        return (*self.inputs(node), *([self.after[node]] if node in self.after else []))

    def strides(self, node: Node) -> Shape | None:
        """Strides of a node that has or may get memory of its own."""
        return _strides(self.layouts, node)

    def with_write_aside(self, copy: Node) -> Demand:
        """The new value of an input gets memory of its own, and the caller copies it."""
        position, strides = self.writes[copy], self.layouts[self.destinations[copy].owner]
        own = strides if dense(copy.shape, strides) else contiguous_strides(copy.shape)
        return replace(
            self,
            layouts={**self.layouts, copy: own},
            writes={node: k for node, k in self.writes.items() if node is not copy},
            destinations={
                node: destination
                for node, destination in self.destinations.items()
                if node is not copy
            },
            outputs=(*self.outputs[:position], copy, *self.outputs[position + 1 :]),
        )

    def aside(self, copy: Node, reason: str) -> str:
        """The decision to write an input's new value aside, in words."""
        return f"write input {self.destinations[copy].owner.attribute} aside: {reason}"


def _strides(layouts: Mapping[Node, Shape], node: Node) -> Shape | None:
    if node.op in ("constant", "iota", "size"):
        return None
    return layouts.get(node) or contiguous_strides(node.shape)


@final
@dataclass(slots=True, eq=False)
class _Draft:
    """A ``Demand`` while it is collected."""

    graph: Graph
    layouts: dict[Node, Shape] = field(default_factory=dict)
    operands: dict[Node, tuple[Node, ...]] = field(default_factory=dict)
    after: dict[Node, Node] = field(default_factory=dict)
    destinations: dict[Node, Destination] = field(default_factory=dict)
    writes: dict[Node, int] = field(default_factory=dict)
    placed: dict[Node, Node] = field(default_factory=dict)
    required: set[Node] = field(default_factory=set)

    def strides(self, node: Node) -> Shape | None:
        return _strides(self.layouts, node)

    def finish(self, outputs: tuple[Any, ...]) -> Demand:
        fields = (
            self.graph,
            self.layouts,
            self.operands,
            self.after,
            self.destinations,
            self.writes,
            self.placed,
        )
        whole = Demand(*fields, outputs, frozenset(self.required), ())
        roots = [*roots_of(self.graph.effects, outputs), *self.writes]
        return replace(whole, nodes=topological(roots, whole.needs))


def find_demand(graph: Graph) -> Demand:
    """Collect demands, making copies where a view of memory does not do."""
    demand = _Draft(graph)
    build = Builder()
    for node in graph.nodes:
        _leaf_layout(demand, node)
    _prefer_layouts(demand)
    _place_updates(demand)
    for node in graph.nodes:
        if node.op == "extern":
            call: Any = node.attribute
            factors = (
                _factors(demand, node)
                if blas_of(call.target) is Blas.PLAIN
                else (None,) * len(node.inputs)
            )
            demand.operands[node] = tuple(
                factor
                or _uncopied(demand, build, value, strides)
                or _in_memory(demand, build, value, strides)
                for factor, value, strides in zip(factors, node.inputs, call.layouts, strict=True)
            )
        elif node.op == "gather":
            source = _in_memory(demand, build, node.inputs[0], None)
            demand.operands[node] = (source, *node.inputs[1:])
        elif node.kind is NodeKind.ASSEMBLED:
            _pieces(demand, node)
    for earlier, later in itertools.pairwise(in_running_order(graph.effects)):
        demand.after[later] = earlier
    return demand.finish(_outputs(demand, build))


def _factors(demand: _Draft, node: Node) -> tuple[Node | None, ...]:
    """What to read in place of each operand of a matrix product; nothing where torch's kernel would get it.

    Only BLAS takes batches of two dimensions, so either all operands and the result suit it, or none is replaced.
    """
    call: Any = node.attribute
    factors = tuple(_factor(demand, value) for value in node.inputs)
    (spec,) = call.outputs
    operands = []
    for number, (value, strides, factor) in enumerate(
        zip(node.inputs, call.layouts, factors, strict=True)
    ):
        shape, steps = (
            (value.shape, strides) if factor is None else (factor[0].shape, factor[1].strides)
        )
        operands.append(Operand(number, shape, steps, spec.torch_dtype))
    result = Operand(len(operands), spec.shape, spec.strides, spec.torch_dtype)
    if not preallocates(call.target, operands, call.kwargs, [result]):
        return (None,) * len(factors)
    for factor in factors:
        if factor is not None and factor[1].leaf.kind in COMPUTED:
            demand.required.add(factor[1].leaf)
    return tuple(None if factor is None else factor[0] for factor in factors)


def _factor(demand: _Draft, node: Node) -> tuple[Node, Strided] | None:
    """An operand of a matrix product without the copies before it: BLAS reads most strides.

    Batches that were merged from two dimensions are taken apart again.
    """
    inner = node
    if node.op == "reshape" and len(node.shape) == 3:
        split = node.inputs[0]
        if len(split.shape) == 4 and split.shape[2:] == node.shape[1:]:
            inner = split
    while inner.op == "copy":
        inner = inner.inputs[0]
    place = strided(inner, demand.strides)
    if inner is node or place is None or node.dtype not in (DType.F32, DType.F64):
        return None
    (rows, columns), (down, along) = inner.shape[-2:], place.strides[-2:]
    across = along == 1 and at_least(down, columns)
    if not across and not (down == 1 and at_least(along, rows)):
        return None
    return inner, place


def _leaf_layout(demand: _Draft, node: Node) -> None:
    if node.op == "input":
        position: Any = node.attribute
        spec = demand.graph.inputs[position]
        assert isinstance(spec, TensorMeta)
        demand.layouts[node] = spec.strides
    elif node.op == "tensor":
        baked: Any = node.attribute
        demand.layouts[node] = baked.strides
    elif node.op == "item":
        call: Any = node.inputs[0].attribute
        assert isinstance(call, ExternCall)
        demand.layouts[node] = call.outputs[node.attribute].strides  # type: ignore[union-attr,index]
        if call.in_place:
            demand.placed[node] = node.inputs[0].inputs[0]


def _prefer_layouts(demand: _Draft) -> None:
    """A computed node takes the layout eager gives it, so that its views are laid out as in eager.

    Not one whose rows are reduced and lie across memory: loops run along rows, so each of its readers would walk over all of it. And
    where all calls that read it want it in one other layout, it takes that: it would be stored twice.
    """
    rows = _rows_of_reductions(demand.graph)
    wishes = _wishes_of_calls(demand.graph)
    for node, strides in demand.graph.layouts.items():
        strides = wishes.get(node, strides)
        owned = node.kind in COMPUTED or node.kind is NodeKind.ASSEMBLED
        across = node in rows and strides[-1] != 1
        if owned and not across and node not in demand.layouts and dense(node.shape, strides):
            demand.layouts[node] = strides


def _rows_of_reductions(graph: Graph) -> set[Node]:
    """What is reduced along its last dimension alone, and what that is made of place by place; results aside."""
    found: set[Node] = set()
    for node in graph.nodes:
        if node.kind is NodeKind.REDUCE and node.attribute == (len(node.inputs[0].shape) - 1,):
            waiting = [node.inputs[0]]
            while waiting:
                value = waiting.pop()
                same = value.kind is NodeKind.POINTWISE and value.shape == node.inputs[0].shape
                if same and value not in found:
                    found.add(value)
                    waiting.extend(value.inputs)
    return found - _sources_of_results(graph)


def _sources_of_results(graph: Graph) -> set[Node]:
    return {source_of(o.node) for o in graph.outputs if isinstance(o, Output)}


def _wishes_of_calls(graph: Graph) -> dict[Node, Shape]:
    """The layouts of values that calls read as they are, where these calls agree; not of results, which are laid out as eager's."""
    wishes: dict[Node, set[Shape]] = {}
    for node in graph.nodes:
        if isinstance(node.attribute, ExternCall) and node.op == "extern":
            for value, strides in zip(node.inputs, node.attribute.layouts, strict=True):
                wishes.setdefault(value, set()).add(strides)
    fixed = _sources_of_results(graph)
    return {
        value: next(iter(wanted))
        for value, wanted in wishes.items()
        if len(wanted) == 1 and value not in fixed
    }


def _outputs(demand: _Draft, build: Builder) -> tuple[Any, ...]:
    """Results in memory; two that eager keeps apart, or an input and a result, share none; none is a part of more."""
    graph = demand.graph
    inputs: dict[Any, Node] = {node.attribute: node for node in graph.nodes if node.op == "input"}
    owners: dict[Node, int] = {node: -1 - position for position, node in inputs.items()}
    fails = any(map(_may_fail, graph.nodes))  # an index out of range: inputs stay as they are
    results: list[Any] = []
    for output in graph.outputs:
        if not isinstance(output, Output):
            results.append(output)
            continue
        if output.node not in demand.placed and not fails and _takes(graph, output):
            results.append(_write(demand, inputs, output, len(results)))
            continue
        node = _in_memory(demand, build, output.node, output.spec.strides, apart)
        place = strided(node, demand.strides)
        part = place is not None and not output.is_view and _is_part(node, place.leaf)
        if place is None or part or owners.setdefault(place.leaf, output.memory) != output.memory:
            other = Node(
                "copy",
                (output.node,),
                output.node.shape,
                output.node.dtype,
                None,
                output.node.trace,
            )
            node = _in_memory(demand, build, other, output.spec.strides, apart)
        results.append(node)
    return tuple(results)


def _is_part(node: Node, leaf: Node) -> bool:
    """Whether a result would be less than the memory that holds it, or a view that torch's kernel made."""
    call = leaf.inputs[0].attribute if leaf.op == "item" else None
    target = call.target if isinstance(call, ExternCall) else None
    return numel(leaf.shape) > numel(node.shape) or (
        isinstance(target, OpOverload) and target.is_view
    )


def _may_fail(node: Node) -> bool:
    call: Any = node.attribute
    return node.op == "gather" or (node.op == "extern" and call.raises)


def _takes(graph: Graph, output: Output) -> bool:
    """Whether a result may be written into the input whose new value it is."""
    spec, node = graph.inputs[output.into] if output.into >= 0 else None, output.node
    if not isinstance(spec, TensorMeta) or node.dtype is None:
        return False
    return (spec.shape, spec.dtype) == (node.shape, node.dtype) and apart(spec.shape, spec.strides)


def _write(demand: _Draft, inputs: dict[Any, Node], output: Output, position: int) -> Node:
    """The input, which a copy writes; fuse takes it back where that would be too early."""
    node, number = output.node, output.into
    target = inputs.setdefault(number, Node("input", (), node.shape, node.dtype, number))
    _leaf_layout(demand, target)
    copy = Node("copy", (node,), node.shape, node.dtype, None, node.trace)
    demand.destinations[copy] = Destination(
        target, tuple(Affine.of(d) for d in range(len(node.shape)))
    )
    demand.writes[copy] = position
    demand.required.add(copy)
    return target


def _in_memory(
    demand: _Draft,
    build: Builder,
    node: Node,
    strides: Shape | None,
    fits: Callable[[Shape, Shape], bool] = dense,
) -> Node:
    """The node if its memory serves, else a copy of it, with these strides where they are fit for a copy."""
    place = strided(node, demand.strides)
    if place is not None and (strides is None or same_layout(node.shape, place.strides, strides)):
        if place.leaf.kind in COMPUTED:
            demand.required.add(place.leaf)
        return node
    wanted = contiguous_strides(node.shape)
    if strides is not None:
        if fits(node.shape, strides):
            wanted = strides
        elif _expanded(node.shape, strides):
            narrow = tuple(1 if s == 0 else n for n, s in zip(node.shape, strides, strict=True))
            forms = [Affine.of(d) for d in range(len(narrow))]
            base = _in_memory(demand, build, build.view(node, narrow, forms), strides)
            return build.expand(base, node.shape)
    copy = build.node("copy", (node,), node.shape, node.dtype)
    if copy in demand.layouts and not same_layout(node.shape, demand.layouts[copy], wanted):
        # the value in a second layout
        copy = Node("copy", (node,), node.shape, node.dtype, None, node.trace)
    demand.layouts.setdefault(copy, wanted)
    demand.required.add(copy)
    return copy


def _uncopied(demand: _Draft, build: Builder, node: Node, strides: Shape) -> Node | None:
    """What a copy was made of, when that has the memory an extern wants."""
    bare = _without_copies(build, node)
    if bare is node:
        return None
    place = strided(bare, demand.strides)
    fits = place is not None and same_layout(node.shape, place.strides, strides)
    return bare if fits and place and place.leaf.kind not in COMPUTED else None


def _without_copies(build: Builder, node: Node) -> Node:
    """The same value as views of what was copied."""
    if node.op == "copy":
        return _without_copies(build, node.inputs[0])
    if node.kind is not NodeKind.VIEW:
        return node
    below = _without_copies(build, node.inputs[0])
    return node if below is node.inputs[0] else build.rebuild(node, (below,))


def _expanded(shape: Shape, strides: Shape) -> bool:
    """A dense tensor broadcast along some dimensions."""
    pairs = [(n, s) for n, s in zip(shape, strides, strict=True) if n > 1]
    kept = [(n, s) for n, s in pairs if s != 0]
    return len(kept) < len(pairs) and dense(tuple(n for n, _ in kept), tuple(s for _, s in kept))


def _pieces(demand: _Draft, node: Node) -> None:
    """One copy into the node's memory per input; they may be written by any kernel."""
    copies: list[Node] = []
    begin = 0
    for position, piece in enumerate(node.inputs):
        forms = [Affine.of(d) for d in range(len(piece.shape))]
        if node.op == "concat":
            (dim,) = node.attribute  # type: ignore[misc]
            forms[dim] = forms[dim].shift(begin)  # type: ignore[index]
            begin += piece.shape[dim]  # type: ignore[index]
        elif position == 1:
            forms = list(node.attribute)  # type: ignore[arg-type]
        copy = Node("copy", (piece,), piece.shape, piece.dtype, None, piece.trace)
        demand.destinations[copy] = Destination(node, tuple(forms))
        demand.required.add(copy)
        if node.op == "update" and copies:
            demand.after[copy] = copies[0]
        copies.append(copy)
    if node in demand.placed:  # all but the piece is there
        base, piece = copies
        del demand.destinations[base], demand.after[piece]
        demand.required.discard(base)
        copies = [piece]
    demand.operands[node] = tuple(copies)


def _place_updates(demand: _Draft) -> None:
    """Updates of inputs that are the inputs' new values: the piece is written where it belongs, the rest stays.

    Nothing else reads the input. So a call that fails later has left nothing behind that the same call, begun anew, would see.
    """
    graph = demand.graph
    users = Counter(value for node in graph.nodes for value in node.inputs)
    users.update(source_of(output.node) for output in graph.outputs if isinstance(output, Output))
    for output in graph.outputs:
        if (
            not isinstance(output, Output)
            or output.node.op != "update"
            or not _takes(graph, output)
        ):
            continue
        node = output.node
        base = node.inputs[0]
        if base.op == "input" and base.attribute == output.into and users[base] == 1:
            events.count("native.slots", detail="update")
            demand.placed[node] = base
            demand.layouts[node] = demand.layouts[base]
