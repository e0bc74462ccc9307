"""native.plan: a schedule becomes the data of a launch plan.

In: Schedule, and the kernels of its groups. Out: buffers and steps of ``runtime.launch``, with the
kernels still by name; ``runtime.plans.link`` puts in the addresses.
"""

from __future__ import annotations

import math
from dataclasses import field
from typing import Any, Final, final

import torch

from argand.native import extern
from argand.native.codegen.llvm.convolutions import ConvolutionCall
from argand.native.codegen.llvm.module import KernelCall, Work
from argand.native.control_flow import Flow
from argand.native.ir.strides import Strided, same_layout, strided, with_unit_steps
from argand.native.ir.tensor import ExternCall, Node, TensorArgument, TensorMeta
from argand.native.ir.types import contiguous_strides
from argand.native.kept import KeptWork, find_kept
from argand.native.numbers import Numbers
from argand.native.schedule.memory import Lifetime, place
from argand.native.schedule.order import Schedule
from argand.runtime import launch
from argand.runtime.plan_rows import plan_rows
from argand.runtime.plans import Detached, Rows
from argand.sizes.expressions import SizeInt
from argand.support.dataclass import dataclass, replace
from argand.support.errors import InternalError

ALIGNMENT: Final = 64


@final
@dataclass(frozen=True, slots=True, eq=False)
class PlanData:
    """Everything a launch plan needs but the machine code."""

    inputs: int
    buffers: tuple[launch.Buffer, ...]
    steps: tuple[Any, ...]  # launch steps; kernels have their name in place of the pointer
    returns: tuple[int, ...]
    arena_bytes: launch.PlanSize
    numbers: tuple[launch.Number, ...] = ()
    given: tuple[launch.Buffer, ...] = ()  # what the inputs of a branch look like
    origins: tuple[tuple[str, ...], ...] = ()  # the user's lines of each step


def make_plan(
    schedule: Schedule,
    work: tuple[Work, ...],
    *,
    frozen: bool = False,
    is_branch: bool = False,
    reuse: bool = True,
) -> PlanData:
    """Number the buffers, plan their memory, and list the steps. ``frozen``: weights are not watched."""
    return _Planner(schedule, work, is_branch, frozen, reuse).run()


def rows_of(data: PlanData) -> Rows:
    """The rows of a plan, kernels by name: what runs, and what a cache stores."""
    return plan_rows(
        inputs=data.inputs,
        buffers=data.buffers,
        steps=data.steps,
        returns=data.returns,
        arena_bytes=data.arena_bytes,
        numbers=data.numbers,
        given=data.given,
    )


@final
@dataclass(slots=True, eq=False)
class _Planner:
    schedule: Schedule
    work: tuple[Work, ...]
    is_branch: bool
    frozen: bool = False
    reuse: bool = True  # of memory, by values that live one after the other
    kept: KeptWork = field(default_factory=KeptWork)
    ids: dict[Node, int] = field(default_factory=dict)
    buffers: list[Any] = field(default_factory=list)
    views: dict[tuple[int, tuple[int, ...], tuple[int, ...], int], int] = field(
        default_factory=dict
    )
    first: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    arena: dict[int, int] = field(default_factory=dict)  # buffer id -> bytes
    seeds: int = -1  # buffer of the seeds of this call
    drawn: dict[Node, int] = field(default_factory=dict)  # random op's seed -> its place there
    returned: set[Node] = field(default_factory=set)
    settled: dict[int, tuple[int, ...]] = field(default_factory=dict)  # strides of results' memory

    def run(self) -> PlanData:
        demand = self.schedule.demand
        inputs = len(demand.graph.inputs)
        self.returned = {self._strided(o).leaf for o in demand.outputs if isinstance(o, Node)}
        steps: list[Any] = []
        seeds = sum(n.op == "seed" for n in demand.nodes)
        if seeds:
            self.seeds = self._new(launch.Made((seeds,), (1,), torch.int64))
            self.drawn = {n: k for k, n in enumerate(n for n in demand.nodes if n.op == "seed")}
        self.kept = KeptWork() if self.is_branch else find_kept(demand, self.work, self.returned)
        made: list[Any] = []  # what is kept from call to call
        sources: list[tuple[str, ...]] = []  # the user's lines, of `made`
        for number, item in enumerate(self.work):
            steps.append([])
            if isinstance(item, KernelCall):
                is_kept = item in self.kept.kernels
                buffers = tuple(
                    self._touch(self._leaf(o), -1 if is_kept else number) for o in item.owners
                )
                step = launch.KernelStep(item.function, buffers, item.total, item.grain, item.sizes)  # type: ignore[arg-type]
                if is_kept:
                    made.append(step)
                    sources.append(item.origins)
                else:
                    steps[-1].append(step)
            elif isinstance(item, ConvolutionCall):
                pack, run = self._convolve(item, number)
                if item in self.kept.packed:
                    made.append(pack)
                    sources.append(item.origins)
                else:
                    steps[-1].append(pack)
                steps[-1].append(run)
            else:
                steps[-1].extend(self._extern(item, number))
        wanted = demand.graph.outputs
        returns = tuple(self._return(o, w) for o, w in zip(demand.outputs, wanted, strict=True))
        self._free(steps, inputs)
        arena_bytes = self._place()
        first = [extern.seed_step(self.seeds, seeds)] if seeds else []
        flat = (*self._keep(made), *first, *(step for group in steps for step in group))
        listed = [
            _origins(item) for item, group in zip(self.work, steps, strict=True) for _ in group
        ]
        unmarked: list[tuple[str, ...]] = [()]  # a step of no line
        origins = (*(unmarked if made else ()), *sources, *(unmarked if seeds else ()), *listed)
        numbers = Numbers(demand.graph.inputs)
        given = tuple(map(_given, demand.graph.inputs)) if self.is_branch else ()
        plan = PlanData(
            inputs=inputs,
            buffers=tuple(self.buffers),
            steps=flat,
            returns=returns,
            arena_bytes=arena_bytes,
            numbers=(),
            given=given,
            origins=origins,
        )
        return _with_numbers(plan, numbers, arena_bytes) if numbers.sources else plan

    # --- buffers -----------------------------------------------------------------------------

    def _strided(self, node: Node) -> Strided:
        place_ = strided(node, self.schedule.demand.strides)
        if place_ is None:
            raise InternalError("native.plan", f"{node.op} {node.shape} is not in memory")
        return place_

    def _new(self, buffer: Any) -> int:
        self.buffers.append(buffer)
        return len(self.schedule.demand.graph.inputs) + len(self.buffers) - 1

    def _touch(self, number: int, step: int) -> int:
        if step < 0:
            return number  # what is kept lives on
        self.first.setdefault(number, step)
        self.last[number] = max(self.last.get(number, step), step)
        return number

    def _leaf(self, node: Node) -> int:
        """The buffer of a node that owns memory."""
        if node in self.ids:
            return self.ids[node]
        if node.op == "input":
            number = int(node.attribute)  # type: ignore[arg-type]
        elif node in self.schedule.demand.placed:
            number = self._leaf(self.schedule.demand.placed[node])
        elif node.op == "flag":
            number = self._new(launch.Marks())
        elif node.op == "seed":
            number = self._new(launch.View(self.seeds, (1,), (1,), self.drawn[node]))
        elif node.op == "tensor":
            number = self._new(launch.Constant(node.attribute.tensor))  # type: ignore[union-attr]
        else:
            number = self._memory(node)
        self.ids[node] = number
        return number

    def _memory(self, node: Node) -> int:
        """Fresh memory for a result, a piece of the arena for anything else."""
        strides = self.schedule.demand.strides(node)
        if node.op == "item":
            spec: Any = node.inputs[0].attribute.outputs[node.attribute]  # type: ignore[union-attr,index]
            kind = spec.torch_dtype
        elif node.dtype is not None:
            kind = node.dtype.row.torch_dtype
        if strides is None:
            raise InternalError("native.plan", f"{node.op} cannot own memory")
        if node in self.returned:
            return self._new(launch.Fresh(node.shape, strides, kind))
        if node in self.kept.values:
            return self._new(launch.Kept(0, node.shape, strides, kind))
        number = self._new(launch.Slot(0, node.shape, strides, kind))
        span = 1 + sum(
            (size - 1) * stride for size, stride in zip(node.shape, strides, strict=True)
        )
        self.arena[number] = (0 if 0 in node.shape else span) * kind.itemsize
        return number

    def _operand(self, node: Node, step: int) -> extern.Operand:
        place_ = self._strided(node)
        base = self._touch(self._leaf(place_.leaf), step)
        place_ = replace(place_, strides=with_unit_steps(node.shape, place_.strides))
        number = self._view(base, node, place_)
        return extern.Operand(number, node.shape, place_.strides, _torch_dtype(self, place_.leaf))

    def _view(self, base: int, node: Node, place_: Strided, exact: bool = False) -> int:
        leaf = place_.leaf
        own = self.schedule.demand.strides(leaf)
        if not exact and (
            node is leaf
            or (
                node.shape == leaf.shape
                and place_.offset == 0
                and own is not None
                and same_layout(node.shape, place_.strides, own)
            )
        ):
            return base
        key = (base, node.shape, place_.strides, place_.offset)
        if key not in self.views:
            self.views[key] = self._new(
                launch.View(base, node.shape, place_.strides, place_.offset)
            )
        return self.views[key]

    # --- steps -------------------------------------------------------------------------------

    def _convolve(self, item: ConvolutionCall, step: int) -> tuple[Any, Any]:
        """The step that packs weights, and the one that convolves."""
        call: Any = item.node.attribute
        inputs = self.schedule.demand.inputs(item.node)
        is_kept = item in self.kept.packed
        x = self._operand(inputs[0], step)
        weight, *rest = (self._operand(o, -1 if is_kept else step).id for o in inputs[1:])
        biased, scaled = call.args[2:4]
        bias = rest[:1] if biased is not None else []
        scale = rest[-1:] if scaled is not None else []
        kind = torch.float32
        made_as = launch.Kept if is_kept else launch.Slot
        packed = self._new(made_as(0, (item.floats,), (1,), kind))
        if not is_kept:
            self.arena[self._touch(packed, step)] = item.floats * kind.itemsize
        pack = launch.KernelStep(  # a name in place of the pointer
            item.pack.function,  # type: ignore[arg-type]
            (weight, packed, *scale, *bias),
            item.pack.total,
            item.pack.grain,
            item.pack.sizes,
        )
        buffers = (x.id, packed, *(self._touch(self._leaf(o), step) for o in item.owners))
        run = item.run
        return pack, launch.KernelStep(run.function, buffers, run.total, run.grain, run.sizes)  # type: ignore[arg-type]

    def _keep(self, made: list[Any]) -> list[Any]:
        """The steps that make what is kept, after the one that says when they run."""
        if not made:
            return []
        total, inputs = 0, len(self.schedule.demand.graph.inputs)
        for position, buffer in enumerate(self.buffers):
            if isinstance(buffer, launch.Kept):
                self.buffers[position] = replace(buffer, offset=total)
                total += (
                    -(-_bytes(buffer.sizes, buffer.strides, buffer.dtype) // ALIGNMENT) * ALIGNMENT
                )
        watched = {self._leaf(leaf): leaf for leaf in self.kept.watched}
        sizes = []
        for number, leaf in watched.items():
            strides = self.schedule.demand.strides(leaf)
            assert strides is not None and (number < inputs or leaf.op == "tensor")
            sizes.append(_bytes(leaf.shape, strides, _torch_dtype(self, leaf)))
        return [launch.Keep(tuple(watched), tuple(sizes), len(made), total, self.frozen), *made]

    def _extern(self, node: Node, step: int) -> tuple[Any, ...]:
        call: Any = node.attribute
        assert isinstance(call, ExternCall)
        operands = [self._operand(o, step) for o in self.schedule.demand.inputs(node)]
        args = _fill(call.args, operands)
        kwargs = {name: _fill(value, operands) for name, value in call.kwargs.items()}
        items = {
            n.attribute: n
            for n in self.schedule.demand.nodes
            if n.op == "item" and n.inputs[0] is node
        }
        trial = [
            None
            if k not in items or spec is None
            else extern.Operand(-1, spec.shape, spec.strides, spec.torch_dtype)
            for k, spec in enumerate(call.outputs)
        ]
        target = call.target if call.in_place else _detached(call.target)
        inside = extern.preallocates(target, args, kwargs, trial)
        outputs: list[extern.Operand | None] = []
        for k, wanted in enumerate(trial):
            if wanted is None:
                spec = call.outputs[k]
                unread = isinstance(target, Flow) and spec is not None
                outputs.append(
                    self._scratch(spec, target.scratch(spec.shape, k), step)
                    if unread and spec
                    else None
                )
                continue
            item = items[k]
            # what the call gives back is one of its arguments
            if item in self.schedule.demand.placed:
                outputs.append(None)
                continue
            if not inside:
                # Nothing has no layout to mend; and an empty type stands for a workspace only the kernel can size.
                made = (
                    launch.Made(wanted.sizes, wanted.strides, wanted.dtype)
                    if all(wanted.sizes)
                    else launch.Made()
                )
                self.ids[item] = self._new(made)
            number = self._touch(self._leaf(item), step)
            outputs.append(replace(wanted, id=number))
        return extern.make_extern(target, args, kwargs, outputs)

    def _scratch(self, spec: TensorMeta, shape: tuple[int, ...], step: int) -> extern.Operand:
        """Memory for a result that nobody reads."""
        strides = contiguous_strides(shape)
        number = self._touch(self._new(launch.Slot(0, shape, strides, spec.torch_dtype)), step)
        self.arena[number] = math.prod(shape) * spec.torch_dtype.itemsize
        return extern.Operand(number, shape, strides, spec.torch_dtype, one_row=shape != spec.shape)

    def _return(self, output: Any, wanted: Any) -> int:
        if not isinstance(output, Node):
            sized = isinstance(output, SizeInt)
            return self._new(launch.Integer(output) if sized else launch.PythonValue(output))
        place_ = self._strided(output)
        base = self._leaf(place_.leaf)
        self.last[base] = len(self.work)
        placed = self.schedule.demand.placed
        # written in place: the tensor itself
        if wanted.into >= 0 and (output.op == "input" or output in placed):
            return base
        number = self._view(base, output, place_)
        strides = wanted.spec.strides
        if not same_layout(output.shape, place_.strides, strides):
            return number
        own, place = place_.strides, base - len(self.schedule.demand.graph.inputs)
        if number == base and place >= 0 and isinstance(self.buffers[place], launch.Fresh):
            # Strides of sizes 0 and 1 are eager's too, those of the first result with this memory.
            own = self.settled.setdefault(base, strides)
            self.buffers[place] = replace(self.buffers[place], strides=own)
        if own == strides:
            return number
        return self._view(base, output, replace(place_, strides=strides), exact=True)

    def _free(self, steps: list[list[Any]], inputs: int) -> None:
        """Give back tensors made by torch, and inputs, after their last use."""
        ends: dict[int, list[int]] = {}
        for number, last in self.last.items():
            made = number >= inputs and isinstance(self.buffers[number - inputs], launch.Made)
            if (made or number < inputs) and last < len(steps) - 1:
                ends.setdefault(last, []).append(number)
        for step, numbers in ends.items():
            steps[step].append(launch.Free(tuple(numbers)))

    def _place(self) -> int:
        inputs = len(self.schedule.demand.graph.inputs)
        numbers = list(self.arena)
        lifetimes = [
            Lifetime(self.arena[n], self.first.get(n, 0), self.last.get(n, 0)) for n in numbers
        ]
        if not self.reuse:
            lifetimes = [lifetime._replace(first=0, last=len(numbers)) for lifetime in lifetimes]
        offsets, total = place(lifetimes)
        for number, offset in zip(numbers, offsets, strict=True):
            slot = self.buffers[number - inputs]
            self.buffers[number - inputs] = replace(slot, offset=offset)
        return total


def _with_numbers(plan: PlanData, numbers: Numbers, arena_bytes: int) -> PlanData:
    """The same plan with numbers of its own in place of expressions of sizes."""
    return replace(
        plan,
        buffers=numbers.within(plan.buffers),
        given=numbers.within(plan.given),
        steps=numbers.within(plan.steps),
        arena_bytes=numbers.of(arena_bytes),
        numbers=tuple(numbers.rows),
    )


def _origins(item: Work) -> tuple[str, ...]:
    return item.origins if not isinstance(item, Node) else (item.trace,) if item.trace else ()


def _given(spec: TensorMeta | int | None) -> launch.Buffer:
    """What an input of a branch looks like."""
    if isinstance(spec, TensorMeta):
        return launch.Fresh(spec.shape, spec.strides, spec.torch_dtype)
    return launch.PythonValue(None)


def _torch_dtype(planner: _Planner, leaf: Node) -> torch.dtype:
    if leaf.dtype is not None:
        return leaf.dtype.row.torch_dtype
    if leaf.op == "item":
        call: Any = leaf.inputs[0].attribute
        return call.outputs[leaf.attribute].torch_dtype
    if leaf.op == "tensor":
        baked: Any = leaf.attribute
        return baked.tensor.dtype
    spec = planner.schedule.demand.graph.inputs[leaf.attribute]  # type: ignore[index]
    assert isinstance(spec, TensorMeta)
    return spec.torch_dtype


def _bytes(sizes: Any, strides: Any, dtype: torch.dtype) -> int:
    """From the first to the last element of a tensor that has some."""
    return (
        int(1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True)))
        * dtype.itemsize
    )


def _fill(value: Any, operands: list[extern.Operand]) -> Any:
    if isinstance(value, TensorArgument):
        return operands[value.number]
    if isinstance(value, list | tuple):
        return type(value)(_fill(item, operands) for item in value)
    return value


def _detached(target: Any) -> Any:
    aliases = isinstance(target, torch._ops.OpOverload) and any(
        r.alias_info is not None for r in target._schema.returns
    )
    return Detached(target) if aliases else target
