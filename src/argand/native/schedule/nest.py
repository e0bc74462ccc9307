"""native.schedule.nest: a group of nodes becomes a loop nest.

In: Schedule. Out: LoopNests: per group a Kernel and the nodes behind its buffers, calls of torch between them.
Values are pulled: starting
from what must be stored, each expression is built where its coordinates are known. Values of a row go
before or after the loops over the row, by how many reductions they wait for (their depth); loops of
the same depth over the same variables are one loop.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from typing import Any, TypeAlias, final

from argand.native.ir import loops as ir
from argand.native.ir.affine import Affine, NotAffine, linear
from argand.native.ir.strides import strided
from argand.native.ir.tensor import OPS, Lookup, Node, NodeKind
from argand.native.ir.types import DType, at_least, contiguous_strides
from argand.native.schedule.demand import COMPUTED
from argand.native.schedule.groups import Group, Variables, variables_of
from argand.native.schedule.loop_order import arrange
from argand.native.schedule.mapping import Coordinates, reads, view_coordinates
from argand.native.schedule.order import Schedule
from argand.native.target import CPU_LIMITS, Limits
from argand.sizes.expressions import SizeInt
from argand.support.dataclass import dataclass, replace
from argand.support.errors import InternalError

SiteKey: TypeAlias = tuple[int, Variables]  # depth, inner variables


@final
@dataclass(slots=True, eq=False)
class Site:
    """Statements of one place: the row (no inner variables) or a loop over part of it."""

    depth: int
    inner: Variables
    statements: list[ir.Statement] = field(default_factory=list)
    memo: dict[tuple[Node, Coordinates], ir.ValueId] = field(default_factory=dict)


@final
@dataclass(frozen=True, slots=True, eq=False)
class LoopNest:
    """One kernel, and the nodes behind its buffers."""

    kernel: ir.Kernel | ir.Contraction
    owners: tuple[Node, ...]
    traces: Mapping[ir.ValueId, str] = field(default_factory=dict)  # the user's lines behind values


@final
@dataclass(frozen=True, slots=True, eq=False)
class LoopNests:
    """What runs, in order: loop nests and calls of torch (extern nodes)."""

    schedule: Schedule
    work: tuple[LoopNest | Node, ...]


def build_nests(schedule: Schedule, limits: Limits = CPU_LIMITS) -> LoopNests:
    """The loop nests of all groups.

    Only the finished loops show whether an element of an input is read after it was written; such a write
    is taken aside, so the schedule that comes out may have one write into an input less.
    """
    externs = {schedule.group_of[n]: n for n in schedule.demand.nodes if n.op == "extern"}
    work: list[LoopNest | Node] = []
    for group in schedule.order:
        if group in externs:
            work.append(externs[group])
            continue
        built = build_nest(schedule, group, limits) if group.members else None
        while built is not None and (late := _late_writes(schedule, group, built)):
            schedule = _write_aside(schedule, late)
            built = build_nest(schedule, group, limits)
        if built is not None:
            work.append(built)
    return LoopNests(schedule, tuple(work))


def build_nest(schedule: Schedule, group: Group, limits: Limits) -> LoopNest | None:
    """The kernel of a group and the owners of its buffers; None when nothing is stored."""
    return _Nest(schedule, group, limits).run()


def _late_writes(schedule: Schedule, group: Group, nest: LoopNest) -> list[Node]:
    """The group's copies into inputs whose old elements its kernel reads after they were written."""
    demand = schedule.demand
    found = []
    for copy in demand.nodes:
        if copy not in demand.writes or copy not in group.members:
            continue
        owner = demand.destinations[copy].owner
        if owner in nest.owners and _read_late(nest.kernel, nest.owners.index(owner)):
            found.append(copy)
    return found


def _write_aside(schedule: Schedule, copies: list[Node]) -> Schedule:
    reason = "another element of this kernel reads the old value"
    demand, decisions = schedule.demand, schedule.decisions
    for copy in copies:
        decisions = (*decisions, demand.aside(copy, reason))
        demand = demand.with_write_aside(copy)
    return replace(schedule, demand=demand, decisions=decisions)


@final
class _Nest:
    def __init__(self, schedule: Schedule, group: Group, limits: Limits) -> None:
        self.schedule, self.demand, self.limits = schedule, schedule.demand, limits
        # Numbering the variables from 0 makes kernels of equal layers equal.
        order = sorted(group.variables)
        self.group = group.substitute({var: Affine.of(k) for k, var in enumerate(order)})
        self.extents = {k: schedule.extents[var] for k, var in enumerate(order)}
        self.outer = self.group.outer or frozenset()
        self.sites: dict[SiteKey, Site] = {}
        self.buffers: dict[Node, int] = {}
        self.depths: dict[Node, int] = {}
        self.reductions: dict[Node, ir.ValueId] = {}
        self.cached: dict[Node, int] = {}
        self.scratch: list[tuple[DType, int]] = []
        self.hosts: dict[
            Node, Node
        ] = {}  # rows of unknown length, and the result in whose memory they wait
        self.storing: Node | None = None
        self.finished: set[Node] = set()
        self.next_value = 0
        self.traces: dict[ir.ValueId, str] = {}

    def run(self) -> LoopNest | None:
        stored = [
            n
            for n in self.demand.nodes
            if n in self.group.members and n in self.schedule.in_memory and 0 not in n.shape
        ]
        if not stored:
            return None
        for node in stored:
            self.storing = node
            self._store(node)
            self.finished.add(node)
        rows = [s for s in self.sites.values() if not s.inner]
        loops = [s for s in self.sites.values() if s.inner and s.statements]
        dtypes = tuple(_known(node) for node in self.buffers)
        kernel = arrange(
            dtypes,
            self.group,
            extents=self.extents,
            rows=[(s.depth, tuple(s.statements)) for s in rows],
            sites=[(s.depth, s.inner, tuple(s.statements)) for s in loops],
            scratch=tuple(self.scratch),
            limits=self.limits,
        )
        return LoopNest(kernel, tuple(self.buffers), self.traces)

    # --- where things go ---------------------------------------------------------------------

    def _site(self, depth: int, variables: Variables) -> Site:
        key = (depth, variables - self.outer)
        if key not in self.sites:
            self.sites[key] = Site(depth, key[1])
        return self.sites[key]

    def _depth(self, node: Node) -> int:
        """How many reductions of this kernel must be finished before the node can be computed."""
        if node.kind is NodeKind.VIEW:
            return self._depth(node.inputs[0])
        if node in self.depths:
            return self.depths[node]
        inside = node in self.group.members
        if node.kind not in COMPUTED or (not inside and node in self.schedule.in_memory):
            depth = 0
        else:
            listed = self.demand.inputs(node)
            pulled = listed[1:] if node.kind is NodeKind.GATHER else listed
            depth = max((self._depth(i) for i in pulled), default=0)
            depth += node.kind is NodeKind.REDUCE
        self.depths[node] = depth
        return depth

    def _fresh(self) -> ir.ValueId:
        self.next_value += 1
        return self.next_value - 1

    def _buffer(self, node: Node) -> int:
        return self.buffers.setdefault(node, len(self.buffers))

    # --- stores ------------------------------------------------------------------------------

    def _store(self, node: Node) -> None:
        coordinates = self.group.members[node]
        site = self._site(self._depth(node), variables_of(coordinates))
        value = self._pull(node, coordinates, site)
        destination = self.demand.destinations.get(node)
        owner, at = node, coordinates
        if destination is not None:
            owner = destination.owner
            at = tuple(f.substitute(dict(enumerate(coordinates))) for f in destination.forms)
        index = self._linear(owner, at)
        site.statements.append(ir.Store(_known(node), self._buffer(owner), index, value))

    def _linear(self, node: Node, coordinates: Coordinates) -> Affine:
        return linear(coordinates, self.demand.strides(node) or ())

    # --- pulling values ----------------------------------------------------------------------

    def _pull(self, node: Node, coordinates: Coordinates, site: Site) -> ir.ValueId:
        """The value of a node at coordinates, for use in a site."""
        if self.group.outer is not None and not variables_of(coordinates) - self.outer:
            home = self._site(self._depth(node), frozenset())
            site = home if home.depth <= site.depth else site
        key = (node, coordinates)
        if key not in site.memo:
            made = site.memo[key] = self._make(node, coordinates, site)
            if node.trace:
                self.traces.setdefault(made, node.trace)
        return site.memo[key]

    def _make(self, node: Node, coordinates: Coordinates, site: Site) -> ir.ValueId:
        if node.op == "constant":
            return self._emit(site, ir.Literal(self._fresh(), _known(node), node.attribute))  # type: ignore[arg-type]
        if node.op == "size":
            (value,) = node.attribute  # type: ignore[misc]
            return self._emit(site, ir.Coordinate(self._fresh(), Affine(value)))  # type: ignore[arg-type]
        if node.op == "iota":
            (dim,) = node.attribute  # type: ignore[misc]
            return self._emit(site, ir.Coordinate(self._fresh(), coordinates[dim]))  # type: ignore[index]
        direct = self._load(node, coordinates, site)
        if direct is not None:
            return direct
        if node.kind is NodeKind.VIEW:
            try:
                below = view_coordinates(node, coordinates, self.extents)
            except NotAffine:
                return self._load_reshaped(node, coordinates, site)
            return self._pull(node.inputs[0], below, site)
        if node.kind is NodeKind.REDUCE:
            return self._reduce(node)
        if node.op == "copy":
            ((source, place),) = reads(self.demand, node, coordinates, None)
            return self._pull(source, place, site)
        if node.kind is NodeKind.GATHER:
            return self._gather(node, coordinates, site)
        again = self._from_earlier_loop(node, coordinates, site)
        if again is not None:
            return again
        listed = reads(self.demand, node, coordinates, None)
        arguments = tuple(self._pull(value, at, site) for value, at in listed)
        operand = _known(node.inputs[-1] if node.op == "select" else node.inputs[0])
        compute = ir.Compute(self._fresh(), _known(node), node.op, arguments, operand)
        return self._emit(site, compute)

    def _emit(self, site: Site, statement: Any) -> ir.ValueId:
        site.statements.append(statement)
        return int(statement.result)

    def _strides(self, node: Node) -> tuple[int, ...] | None:
        """Strides of a node whose memory this kernel may read."""
        if node.kind in COMPUTED and (
            node not in self.schedule.in_memory or node in self.group.members
        ):
            return None
        if node in self.demand.destinations:
            return None
        return self.demand.strides(node)

    def _load(self, node: Node, coordinates: Coordinates, site: Site) -> ir.ValueId | None:
        place = strided(node, self._strides)
        if place is None:
            return None
        index = linear(coordinates, place.strides, place.offset)
        return self._emit(
            site, ir.Load(self._fresh(), _known(node), self._buffer(place.leaf), index)
        )

    def _from_earlier_loop(
        self, node: Node, coordinates: Coordinates, site: Site
    ) -> ir.ValueId | None:
        """Reuse what an earlier loop over the same row computed, when that is cheaper."""
        depth = self._depth(node)
        if depth >= site.depth or not site.inner or self.group.members.get(node) != coordinates:
            return None
        if node in self.schedule.in_memory and node not in self.demand.destinations:
            index = self._linear(node, coordinates)
            load = ir.Load(self._fresh(), _known(node), self._buffer(node), index)
            return self._emit(site, load)
        if node not in self.cached and not self._keep_row(node):
            return self._hosted(node, coordinates, site)
        inner = variables_of(coordinates) - self.outer  # maybe less than the site's
        dtype, index = _computed_type(node), self._row_index(inner)
        if node not in self.cached:
            earlier = self._site(depth, inner | self.outer)
            value = self._pull(node, coordinates, earlier)
            self.cached[node] = len(self.scratch)
            self.scratch.append((dtype, self._row_length(inner)))
            earlier.statements.append(ir.Store(dtype, -1 - self.cached[node], index, value))
        return self._emit(site, ir.Load(self._fresh(), dtype, -1 - self.cached[node], index))

    def _hosted(self, node: Node, coordinates: Coordinates, site: Site) -> ir.ValueId | None:
        """Keep a row that may not fit the stack in the memory of a result that is written after its last use."""
        host = self.hosts.get(node, self.storing)
        length = self._row_length(variables_of(coordinates) - self.outer)
        if host is None or not isinstance(length, SizeInt) or _weight(self.schedule, node) < 4:
            return None
        dtype = _computed_type(node)
        if (
            self.group.members[host] != coordinates
            or host in self.demand.destinations
            or _known(host) is not dtype
        ):
            return None
        if site.depth > self._depth(host) - (host in self.finished):
            return None
        if node not in self.hosts:
            if host in self.hosts.values():
                return None
            self.hosts[node] = host  # before its operands ask: the memory holds one row at a time
            earlier = self._site(self._depth(node), variables_of(coordinates))
            value = self._pull(node, coordinates, earlier)
            earlier.statements.append(
                ir.Store(dtype, self._buffer(host), self._linear(host, coordinates), value)
            )
        index = self._linear(host, coordinates)
        return self._emit(site, ir.Load(self._fresh(), dtype, self._buffer(host), index))

    def _keep_row(self, node: Node) -> bool:
        """Worth a row of near memory: costly to compute again, and the row fits."""
        inner = variables_of(self.group.members[node]) - self.outer
        used = sum(count * dtype.row.bytes for dtype, count in self.scratch)
        fits = at_least(self.limits.row_bytes, used + 8 * self._row_length(inner))
        return fits and _weight(self.schedule, node) >= 4

    def _row_length(self, inner: Variables) -> int:
        return math.prod(self.extents[var] for var in inner)

    def _row_index(self, inner: Variables) -> Affine:
        index, step = Affine(), 1
        for var in sorted(inner, reverse=True):
            index = index + Affine.of(var).scale(step)
            step *= self.extents[var]
        return index

    def _reduce(self, node: Node) -> ir.ValueId:
        if node in self.reductions:
            return self.reductions[node]
        if node not in self.group.members:
            raise InternalError("native.schedule", f"reduction {node.op} has no memory")
        operand = self.group.operands[node]
        (source,) = self.demand.inputs(node)
        site = self._site(self._depth(source), variables_of(operand))
        value = self._pull(source, operand, site)
        result = self._fresh()
        self.reductions[node] = result
        position = Affine()
        if node.op.startswith("arg"):
            (dim,) = node.attribute  # type: ignore[misc]
            position = operand[dim]  # type: ignore[index]
        site.statements.append(
            ir.Accumulate(result, _known(node), node.op, value, _known(source), position)
        )
        return result

    def _gather(self, node: Node, coordinates: Coordinates, site: Site) -> ir.ValueId:
        source = self.demand.inputs(node)[0]
        place = strided(source, self._strides)
        if place is None:
            raise InternalError("native.schedule", "the source of a gather has no memory")
        values = [
            self._pull(value, at, site) for value, at in reads(self.demand, node, coordinates, None)
        ]
        index = Affine(place.offset)
        indirect: list[tuple[ir.ValueId, int, int]] = []
        marks: list[int] = []
        forms: Any = node.attribute
        for dim, (form, stride, size) in enumerate(
            zip(forms, place.strides, source.shape, strict=True)
        ):
            if isinstance(form, Lookup):
                indirect.append((values[form - 1], stride, size))
                marks.append(form.mark(dim))
            else:
                index = index + form.substitute(dict(enumerate(coordinates))).scale(stride)
        buffer = self._buffer(place.leaf)
        flag = self._buffer(self.schedule.flag)
        load = ir.Load(
            result=self._fresh(),
            dtype=_known(node),
            buffer=buffer,
            index=index,
            indirect=tuple(indirect),
            flag=flag,
            marks=tuple(marks),
        )
        return self._emit(site, load)

    def _load_reshaped(self, view: Node, coordinates: Coordinates, site: Site) -> ir.ValueId:
        """A reshape whose loops do not split evenly: divide the linear index at run time."""
        source = view.inputs[0]
        whole = linear(coordinates, contiguous_strides(view.shape))
        place = strided(source, self._strides)
        if place is None:
            raise InternalError("native.schedule", f"{source.op} is read through a hard reshape")
        i64 = DType.I64
        rest = self._emit(site, ir.Coordinate(self._fresh(), whole))
        indirect: list[tuple[ir.ValueId, int, int]] = []
        for size, stride in zip(reversed(source.shape), reversed(place.strides), strict=True):
            by = self._fresh()
            opened = isinstance(size, SizeInt)
            self._emit(
                site, ir.Coordinate(by, Affine(size)) if opened else ir.Literal(by, i64, size)
            )
            digit = self._emit(site, ir.Compute(self._fresh(), i64, "irem", (rest, by), i64))
            rest = self._emit(site, ir.Compute(self._fresh(), i64, "idiv", (rest, by), i64))
            indirect.append((digit, stride, 0))
        buffer = self._buffer(place.leaf)
        index = Affine(place.offset)
        return self._emit(
            site, ir.Load(self._fresh(), _known(view), buffer, index, tuple(indirect))
        )


def _read_late(kernel: ir.Kernel | ir.Contraction, buffer: int) -> bool:
    """Whether an element may be read after it was written: in a later loop, or as another element of the same."""
    written: object = None
    early: list[object] = []
    for top in kernel.body:
        found = [
            s for s in ir.walk((top,)) if isinstance(s, ir.Load | ir.Store) and s.buffer == buffer
        ]
        if found and isinstance(found[-1], ir.Store):
            if any(s.index != found[-1].index for s in found):
                return True
            written = _span(found[-1], top)
        elif found and written:
            return True
        early += [_span(s, top) for s in found]
    return any(span != written for span in early)


def _span(access: ir.Load | ir.Store, top: ir.Statement) -> object:
    """The elements that a statement walks over, whatever its loops are called."""
    extents = {s.var: s.extent for s in ir.walk((top,)) if isinstance(s, ir.Loop)}
    steps = sorted(
        (step, extents.get(var, var), var in extents) for var, step in access.index.terms
    )
    return access.index.constant, steps, isinstance(access, ir.Load) and bool(access.indirect)


def _known(node: Node) -> DType:
    if node.dtype is None:
        raise InternalError("native.schedule", f"{node.op} has a type only torch can handle")
    return node.dtype


def _computed_type(node: Node) -> DType:
    dtype = _known(node)
    return DType.F32 if dtype.is_half else dtype


def _weight(schedule: Schedule, node: Node) -> int:
    """Cost of computing a value again from memory, up to a bound."""
    cost, stack, seen = 0, [node], set()
    while stack and cost < 64:
        current = stack.pop()
        if current in seen:
            continue
        seen.add(current)
        cost += OPS[current.op].cost
        if current.kind is NodeKind.POINTWISE and (
            current is node or current not in schedule.in_memory
        ):
            stack.extend(schedule.demand.inputs(current))
    return cost
