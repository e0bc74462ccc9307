"""backends.foreign: a compiled graph that anybody may call.

In: a graph and a compiler. Out: a callable on the inputs of the graph. Code is compiled for inputs of one kind: types,
shapes, strides, gradients, what shares memory, torch's global state. The guards of our own captures say that each call
is of that kind; nobody says so of a graph that torch.compile or a user hands over. So each call is compared with what
code was compiled for. Where none fits the graph is compiled again, with the sizes that varied left open; torch runs it
where that is not sound, or after too many times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, final

import torch
from torch.fx import GraphModule

from argand.backends.opening import CapturedOpening, InputPlace, Opening, plain_copy, sizes_in
from argand.backends.writes import may_write, reads_offsets
from argand.ops.fakes import FakeMode, fake_of
from argand.protocol import CompiledGraph, Compiler, context_of, settled
from argand.runtime import quiet, state
from argand.runtime._native import FrameView
from argand.runtime.guard_programs import compile_guards
from argand.runtime.guards import Guard, GuardKind, tensor_spec
from argand.runtime.sources import Item, Local, SizeOf, Source
from argand.sizes.expressions import Symbol
from argand.sizes.facts import Fact
from argand.sizes.plan import SizePlan
from argand.sizes.refusals import Refusal, or_refusal
from argand.support import events
from argand.support.dataclass import replace
from argand.support.errors import ArgandError
from argand.support.locks import Turns

MOST_VARIANTS: Final = 8  # kinds of inputs code is compiled for, as in ``Options.recompile_limit``
_MOST_SIZES: Final = 4096  # combinations of sizes whose answer is remembered
_MANY: Final = 32  # attempts to leave sizes open
_PLAIN: Final = (torch.Tensor, torch.nn.Parameter)
_SCALARS: Final = (
    int,
    float,
    bool,
    complex,
    str,
    type(None),
    torch.dtype,
    torch.device,
    torch.layout,
)
_INPUTS: Final = Local("inputs")
_UNKNOWN: Final = (-1,)  # not asked yet


def _graph(*inputs: Any) -> None:
    """The frame that guards are about."""


def checked(
    gm: GraphModule, example_inputs: Sequence[Any], compiler: Compiler
) -> Callable[..., Any]:
    """The graph, compiled for each kind of inputs it is called with.

    For the examples at once, so that what is wrong with it raises here; at the first call when they are symbols.
    """
    graph = CheckedGraph(gm, compiler, example_inputs)
    if all(type(x) in (*_PLAIN, *_SCALARS) for x in example_inputs):
        graph.add(tuple(example_inputs))
    return graph


@final
class Variant:
    """Code for inputs of one kind."""

    def __init__(
        self,
        compiled: CompiledGraph,
        rows: Sequence[Guard],
        opening: Opening | CapturedOpening | None,
        works: Callable[[Sequence[Any]], bool],
    ) -> None:
        places = opening.places if opening else {}
        self.call = compiled.takes_inputs
        self.program = compile_guards(rows, [_source(place) for place in places], _graph.__code__)
        self._sizes = tuple(places.values())
        self._symbols: Mapping[Symbol, tuple[int, int]] = opening.symbols if opening else {}
        self._extra = opening.extra if opening else ()
        self._facts: tuple[Fact, ...] = (*(opening.facts if opening else ()), *compiled.facts)
        self._works = works  # whether eager would not raise for inputs of these sizes
        self._known: dict[tuple[int, ...], tuple[int, ...] | None] = {}

    def match(self, view: FrameView) -> tuple[int, ...] | None:
        """What to call the code with besides the inputs; None: it is not for them."""
        sizes = self.program.check(view)
        if not sizes:
            return () if sizes == () else None
        if isinstance(sizes, int):  # the row that does not hold
            return None
        more = self._known.get(sizes, _UNKNOWN)
        if more is _UNKNOWN:
            if len(self._known) >= _MOST_SIZES:
                self._known.clear()
            more = self._fit(sizes)
            if more is not None and not self._works(view.localsplus[0]):
                more = None
            self._known[sizes] = more
        return more

    def _fit(self, sizes: tuple[int, ...]) -> tuple[int, ...] | None:
        values = {symbol: sizes[place] // by for symbol, (place, by) in self._symbols.items()}
        within = all(
            s.minimum <= n <= (n if s.maximum is None else s.maximum) for s, n in values.items()
        )
        if not within or any(
            expr.evaluate(values) != size for expr, size in zip(self._sizes, sizes, strict=True)
        ):
            return None
        if not all(fact.holds(values) for fact in self._facts):
            return None
        return tuple(expr.evaluate(values) for expr in self._extra)


@final
class CheckedGraph:
    """A graph under calls that nobody has checked."""

    def __init__(self, gm: GraphModule, compiler: Compiler, examples: Sequence[Any]) -> None:
        self.gm, self._compiler = gm, compiler
        # a graph of our own captures, by way of a backend of the user's, has one
        self._context = context_of(gm)
        self._writes, self._reads_offsets = may_write(gm), reads_offsets(gm)
        self._variants: tuple[Variant, ...] = ()  # replaced as a whole: other threads read it
        self._seen: dict[
            tuple[Any, ...], list[tuple[int, ...]]
        ] = {}  # sizes of earlier calls, by kind of inputs
        self._closed: set[tuple[Any, ...]] = set()  # kinds whose sizes cannot be left open
        self._symbolic = _symbolic_places(gm, examples)
        # tensors inside of the graph that may be written to: it cannot be tried on fakes
        self._has_state = self._writes and any(node.op == "get_attr" for node in gm.graph.nodes)
        self._turns = Turns()

    def __call__(self, *inputs: Any) -> Any:
        """Run the graph."""
        if state.is_watched() or (self._reads_offsets and _lies_inside(inputs)):
            return self.gm.forward(*inputs)
        found = self._find(inputs)
        if found is None:
            with self._turns.take("graph"):
                found = self._find(inputs) or self._try_add(inputs)
        if found is None:
            return self.gm.forward(*inputs)
        call, more = found
        return call(*inputs, *more)

    def _find(self, inputs: tuple[Any, ...]) -> tuple[Callable[..., Any], tuple[int, ...]] | None:
        view = FrameView((_graph.__code__, None, {}, {}, (inputs,)))
        for variant in self._variants:
            more = variant.match(view)
            if more is not None:
                return variant.call, more
        return None

    def _try_add(
        self, inputs: tuple[Any, ...]
    ) -> tuple[Callable[..., Any], tuple[int, ...]] | None:
        try:
            with quiet.compiling(), state.own_history():
                self.add(inputs)
        except (ArgandError, RuntimeError, TypeError, ValueError, NotImplementedError) as error:
            # it was compiled for other inputs, so torch may run these
            events.count("foreign.eager", detail=f"{type(error).__name__}: {error}")
            return None
        return self._find(inputs)

    def add(self, inputs: tuple[Any, ...]) -> None:
        """Compile for inputs like these, unless torch is to run them."""
        reason = self._refused(inputs)
        if reason:
            events.count("foreign.eager", detail=reason)
            return
        made = self._by_capture(inputs) or self._open(inputs) or self._exact(inputs)
        self._variants = (*self._variants, made)

    def _refused(self, inputs: tuple[Any, ...]) -> str:
        if any(type(x) not in (*_PLAIN, *_SCALARS) for x in inputs):
            return "inputs of other types than tensors and numbers"
        if self._writes and len(_storages(inputs)) < len(
            {id(x) for x in inputs if isinstance(x, torch.Tensor)}
        ):
            return "inputs that share memory, in a graph that may write to it"
        if self._reads_offsets and _lies_inside(inputs):
            return "inputs that are parts of storages, in a graph that reads their offsets"
        if len(self._variants) >= MOST_VARIANTS:
            return f"inputs of more than {MOST_VARIANTS} kinds"
        return ""

    def _by_capture(self, inputs: tuple[Any, ...]) -> Variant | None:
        """Sizes that our own capture has left open, which a backend of the user's hands on to us."""
        if self._variants or self._context.sizes is None:
            return None
        # our capture tries other sizes
        compiled = settled(self._compiler(self.gm, list(inputs), self._context))
        return self._variant(inputs, compiled, CapturedOpening(self.gm, self._context.sizes))

    def _exact(self, inputs: tuple[Any, ...]) -> Variant:
        graph = self.gm if self._context.sizes is None else plain_copy(self.gm)
        context = replace(self._context, sizes=None)
        return self._variant(inputs, settled(self._compiler(graph, list(inputs), context)), None)

    def _open(self, inputs: tuple[Any, ...]) -> Variant | None:
        """Code with the sizes left open that are not what they were in an earlier call."""
        kind, sizes = _kind(inputs), sizes_in(inputs)
        calls = [*self._seen.setdefault(kind, []), tuple(sizes.values())]
        self._seen[kind].append(calls[-1])
        varied = {
            place: column
            for place, *column in zip(sizes, *calls, strict=True)
            if len(set(column)) > 1
        }
        if len(calls) == 1:
            varied = {place: [sizes[place]] for place in self._symbolic if place in sizes}
        groups = {place: tuple(column) for place, column in varied.items() if column[-1] >= 2}
        if not groups or kind in self._closed or self._has_state:
            return None
        plan = SizePlan(None)
        for _ in range(_MANY):
            made = or_refusal(lambda: self._try_open(plan, inputs, groups))
            if isinstance(made, Variant):
                return made
            if made is None:
                break
            events.count("foreign.retry", detail=str(made))
            try:
                plan.learn(made)
            except ArgandError:
                break
        self._closed.add(kind)
        return None

    def _try_open(
        self, plan: SizePlan, inputs: tuple[Any, ...], groups: Mapping[InputPlace, tuple[int, ...]]
    ) -> Variant | Refusal | None:
        """One attempt at it; None when no size is left open."""
        opening = Opening(plan, inputs, groups)
        if not opening.symbols:
            return None
        context = replace(self._context, sizes=opening.sizes)
        compiled = self._compiler(opening.graph(self.gm), [*inputs, *opening.extra_reals], context)
        return (
            self._variant(inputs, compiled, opening)
            if isinstance(compiled, CompiledGraph)
            else compiled
        )

    def _variant(
        self,
        inputs: tuple[Any, ...],
        compiled: CompiledGraph,
        opening: Opening | CapturedOpening | None,
    ) -> Variant:
        free = set(opening.places) if opening else set()
        rows = [Guard(GuardKind.GLOBAL_STATE, None), Guard(GuardKind.LENGTH, _INPUTS, len(inputs))]
        first: dict[int, Source] = {}
        for number, value in enumerate(inputs):
            source = Item(_INPUTS, number)
            if isinstance(value, torch.Tensor):
                dims = frozenset(
                    place.dim for place in free if place.number == number and place.dim is not None
                )
                rows.append(Guard(GuardKind.TENSOR, source, tensor_spec(value, free=dims)))
                if first.setdefault(id(value), source) is not source:
                    rows.append(Guard(GuardKind.SAME_OBJECT, source, first[id(value)]))
            elif InputPlace(number) in free:
                rows.append(Guard(GuardKind.TYPE_IS, source, int))
            else:
                rows.append(Guard(GuardKind.EQUALS, source, value))
        if self._writes and len(first) > 1:
            one, *others = first.values()
            rows.append(Guard(GuardKind.NO_OVERLAP, one, tuple(others)))
        # what our own capture left open has been tried with other sizes, and its facts say where it works
        works = self._works if isinstance(opening, Opening) else _always
        return Variant(compiled, rows, opening, works)

    def _works(self, inputs: Sequence[Any]) -> bool:
        """Whether the graph runs for inputs of these sizes: kernels compiled for other ones would not raise as eager does."""
        with state.own_history(), torch.no_grad():
            fakes = [fake_of(x.detach()) if isinstance(x, torch.Tensor) else x for x in inputs]
            try:
                with FakeMode():
                    self.gm.forward(*fakes)
            except Exception:  # eager's error comes when it runs
                return False
        return True


def _always(_: Sequence[Any]) -> bool:
    return True


def _source(place: InputPlace) -> Source:
    item = Item(_INPUTS, place.number)
    return item if place.dim is None else SizeOf(item, place.dim)


def _kind(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """What inputs are, but for their sizes."""
    rows: list[Any] = []
    for value in inputs:
        if isinstance(value, torch.Tensor):
            keys = torch._C._dispatch_keys(value).raw_repr()
            rows.append(
                (type(value), value.dtype, value.device, value.dim(), value.requires_grad, keys)
            )
        else:
            rows.append(int if type(value) is int else (type(value), repr(value)))
    return tuple(rows)


def _lies_inside(inputs: tuple[Any, ...]) -> bool:
    """Whether an input does not begin where its storage does."""
    return any(
        isinstance(x, torch.Tensor) and x.layout is torch.strided and x.storage_offset()
        for x in inputs
    )


def _storages(inputs: tuple[Any, ...]) -> set[int]:
    tensors = (x for x in inputs if isinstance(x, torch.Tensor))
    return {x.untyped_storage()._cdata if x.layout is torch.strided else id(x) for x in tensors}


def _symbolic_places(gm: GraphModule, examples: Sequence[Any]) -> list[InputPlace]:
    """The sizes that torch.compile has left open: ints of the graph, and dimensions of the fakes in it."""
    found: list[InputPlace] = []
    nodes = [node for node in gm.graph.nodes if node.op == "placeholder"]
    for number, (node, example) in enumerate(zip(nodes, examples, strict=False)):
        shown = node.meta.get("example_value")
        if isinstance(example, torch.SymInt):
            found.append(InputPlace(number))
        elif isinstance(shown, torch.Tensor) and isinstance(example, torch.Tensor):
            found += [
                InputPlace(number, dim)
                for dim, size in enumerate(shown.shape)
                if isinstance(size, torch.SymInt)
            ]
    return found
