"""capture.record.recorder: writes the torch-level graph while fakes compute its types.

In: calls of torch functions on fakes. Out: fx nodes with `example_value` and `stack_trace`, placeholders
made when an input is first used. A call that gives back its argument untouched leaves no node, nor does
one that answers with no tensor (a question about metadata).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any, Final

import torch
import torch.fx

from argand.capture.outside import real
from argand.capture.outside.kinds import is_numpy_number, scalar_in
from argand.capture.outside.subclasses import Overrides, plain
from argand.capture.outside.world import Known, World
from argand.capture.record.pending import Pending
from argand.capture.record.size_nodes import SizeNodes
from argand.capture.sizes.fitting import explain_failure
from argand.capture.sizes.floats import Float
from argand.capture.sizes.frame_sizes import floats_in, tensors_in
from argand.capture.sizes.values import Claim, OpenShape, OpenSize, expression
from argand.ops.fakes import DataDependent, check_reads, reads_offset
from argand.runtime.guards import GuardKind
from argand.runtime.levels import unwrapped
from argand.runtime.sources import OffsetOf
from argand.sizes.expressions import Expr
from argand.sizes.facts import Fact
from argand.sizes.floats import OpenFloat
from argand.support.errors import Break, CaptureBreak

_ATOMS: Final = frozenset(
    {int, float, bool, str, complex, type(None), type(...), torch.dtype, torch.device}
    | {torch.layout, torch.memory_format}
)
_SEQUENCES: Final[dict[type, Any]] = {torch.Size: tuple, range: list}
# Their integers are no sizes.
_NO_SIZES: Final = frozenset(
    {"dim", "storage_offset", "ndimension", "element_size", "get_device", "__hash__"}
)
_is_wrapped: Final = torch._C._functorch.is_functorch_wrapped_tensor
_NOT_NAME: Final = re.compile(r"\W+")


class Recorder:
    """The graph of a trace, and which node each fake is."""

    def __init__(
        self,
        world: World,
        place: Callable[[], str],
        is_handled: Callable[[], bool],
        count: Callable[[], int],
    ) -> None:
        self.graph = torch.fx.Graph()
        self.world = world
        self.nodes: dict[int, torch.fx.Node] = {}
        self.inputs: list[tuple[torch.fx.Node, Known]] = []
        self.calls = 0
        self.keep: set[torch.fx.Node] = set()  # nodes with effects: never dead
        self.mutated_inputs = False
        # number of the torch.utils.checkpoint region being traced: to be computed again in backward
        self.checkpoint: int | None = None
        self.checkpoints = 0
        self.effects = 0  # changes of torch's state among the nodes
        self.handled = False  # whether code of the user would see what a node of the graph raises
        self._is_handled = is_handled  # the same for the next node
        self.modules: dict[
            str, torch.nn.Module
        ] = {}  # graphs of functions that operators of this graph take
        self.place = place  # the user's lines that run now
        self._count = count
        self.made_at: dict[torch.fx.Node, int] = {}  # the instruction that was run
        self.overrides = Overrides()
        self.unwrap: Callable[..., Any]  # a call with tensors that hold others (rules.wrappers)
        self.dispatch: Callable[..., Any]  # a call that is an override's (rules.overrides)
        self._alive: list[Any] = []
        self._first_call: torch.fx.Node | None = None
        self._first_versions: dict[int, tuple[int, bool]] = {}  # of inputs
        self._names: dict[str, int] = {}
        self._sizes = SizeNodes(world.sizes)
        self._floats: dict[str, torch.fx.Node] = {}

    def close(self) -> None:
        """Let go of the inputs of the call; the graph stays with what was captured."""
        self.inputs.clear()
        self._alive.clear()

    def alive(self) -> list[Any]:
        """The tensors that nodes of the graph have made."""
        return [value for value in self._alive if isinstance(value, torch.Tensor)]

    def knows(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor belongs to the trace."""
        return id(tensor) in self.nodes or id(tensor) in self.world.inputs

    def node_of(self, tensor: torch.Tensor) -> torch.fx.Node:
        """The node of a fake; the placeholder of an input is made here."""
        node = self.nodes.get(id(tensor))
        if node is not None:
            return node
        known = self.world.inputs.get(id(tensor))
        if known is None:
            raise CaptureBreak(Break.B010, None, type=f"{type(tensor).__name__} not of this trace")
        return self.placeholder(known)

    def placeholder(self, known: Known, name: str = "") -> torch.fx.Node:
        """An input of the graph, made from what lives at a source."""
        name = name or "L_" + _NOT_NAME.sub("_", str(known.source)).strip("_") + "_"
        number = self._names.get(name, 0)
        self._names[name] = number + 1
        name = f"{name}{number}_" if number else name
        anchor = self._first_call or self.graph._root
        with self.graph.inserting_before(anchor):
            node = self.graph.create_node("placeholder", name, (), {}, name=name.lower())
        node.meta["example_value"] = plain(known.value)
        self.nodes[id(known.value)] = node
        self.inputs.append((node, known))
        # a placeholder is made before what it is used for
        if isinstance(known.value, torch.Tensor):
            self._first_versions[id(known.value)] = self._version(known.value)
        return node

    def argument(self, value: Any) -> Any:
        """A value as fx takes it: fakes become nodes, containers are copied."""
        kind = type(value)
        if kind in _ATOMS:
            return value
        if isinstance(value, torch.Tensor):
            return self.node_of(value)
        if kind in (tuple, list, OpenShape):
            items = [self.argument(item) for item in value]
            return items if kind is list else tuple(items)
        if kind in _SEQUENCES:
            return _SEQUENCES[kind](value)
        if kind is dict:
            return {key: self.argument(item) for key, item in value.items()}
        if kind is slice:
            return slice(*map(self.argument, (value.start, value.stop, value.step)))
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return kind(*[self.argument(item) for item in value])
        if isinstance(value, list | tuple):
            return type(value)([self.argument(item) for item in value])
        if kind is OpenSize:
            return self.size_node(value.expr)
        if kind is Float:
            return self._float(value)
        if kind is Claim:
            return value.node
        return self._plain(value)

    def _plain(self, value: Any) -> Any:
        if type(value) is Pending:
            raise CaptureBreak(Break.B004, None, method="item")
        if is_numpy_number(value):
            return value.item()
        scalar = scalar_in(value)
        # of an enumeration, or another subclass
        if isinstance(scalar, int | float | complex | str):
            return scalar
        raise CaptureBreak(Break.B009, None, type=type(value).__name__)

    def _float(self, value: Float) -> torch.fx.Node:
        """The input that is a float; floats computed in the same way are one input."""
        key = repr(value.source)
        if key not in self._floats:
            source: Any = value.source  # perhaps computed
            self._floats[key] = self.placeholder(
                Known(value.real, OpenFloat(value.real, value.symbols), source)
            )
        return self._floats[key]

    def number(self, value: Any) -> Any:
        """Numbers in an argument that the graph reads from tensors: under `fullgraph` integers are sizes."""
        kind = type(value)
        if kind is Pending and value.kind is int and self.world.sizes.reads_data:
            if value.size is None:
                value.size = self.call_method("item", (value.tensor,), {})
            return value.size
        if kind is tuple or kind is list:
            return kind([self.number(item) for item in value])
        return (
            slice(*map(self.number, (value.start, value.stop, value.step)))
            if kind is slice
            else value
        )

    def claim(self, function: Any, symbol: str, left: Any, right: Any) -> Any:
        """A comparison of sizes: decided now, or by the graph when it runs."""
        table, sides = self.world.sizes.table, (expression(left), expression(right))
        fact = Fact(symbol, *sides, table.place())
        if not table.unbacked & fact.symbols or table.proven(symbol, *sides) is not None:
            return real.apply(function, left, right)
        node = self.add(
            "call_function", function, (self.argument(left), self.argument(right)), {}, True
        )
        self.calls -= 1
        return Claim(fact, node)

    def check(self, claim: Claim, text: str) -> None:
        """`torch._check`: the graph sees to it, and what comes after relies on it."""
        self.effect(check_size, (claim.node, text))
        self.world.sizes.table.assume(claim.fact)

    def size_node(self, expr: Expr) -> Any:
        """The node that computes an expression of sizes; an int when it is constant."""
        return self._sizes.of(self, expr)

    def compute(self, function: Any, left: Any, right: Any, expr: Expr) -> torch.fx.Node:
        """A node that computes a size from two others."""
        node = self.add("call_function", function, (left, right), {}, None)
        node.meta["example_value"] = self.world.sizes.table.size(expr)
        self.calls -= 1
        return node

    def alias(self, made: torch.Tensor, tensor: torch.Tensor) -> None:
        """Another object for the value of a tensor."""
        self.nodes[id(made)] = self.node_of(tensor)
        self._alive.append(made)

    def call_function(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a function on fakes and record it."""
        return self._call("call_function", function, function, args, kwargs)

    def call_method(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a method of `args[0]` and record it."""
        return self._call("call_method", name, getattr(type(args[0]), name), args, kwargs)

    def _call(
        self, op: str, target: Any, run: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if self.overrides.apply(args, kwargs):
            return self.dispatch(
                run, args, kwargs, lambda: self._call(op, target, run, args, kwargs)
            )
        if self.world.wrappers and any(
            id(t) in self.world.wrappers for t in tensors_in((args, kwargs))
        ):
            return self.unwrap(run, args, kwargs)
        args, kwargs = self.number(args), {key: self.number(value) for key, value in kwargs.items()}
        node_args = tuple([self.argument(value) for value in args])
        node_kwargs = {key: self.argument(value) for key, value in kwargs.items()}
        tensors = list(tensors_in((args, kwargs) if kwargs else args))
        versions = [self._version(tensor) for tensor in tensors]
        sizes = self.world.sizes
        floats = []
        effects = self._effects()
        if sizes.active:
            floats = [*floats_in((*args, *kwargs.values()))]
            args, kwargs = sizes.lower((args, kwargs))
            if target in (operator.getitem, operator.setitem):
                sizes.slice(args[0], args[1])
        name = getattr(run, "__name__", "")
        if reads_offset(name, args, kwargs):
            self._guard_offset(tensors[0])
        try:
            check_reads(name, args, kwargs)
            result = real.call(run, args, kwargs)
        except DataDependent as cause:
            name = target if op == "call_method" else getattr(target, "__name__", str(target))
            row = Break.B004 if name in {"item", "tolist", "__bool__", "numpy"} else Break.B008
            raise CaptureBreak(row, None, method=name, op=cause.op_name) from None
        except Exception as error:
            self._failed(run, args, kwargs, error)
            raise
        mutated = self._note_writes(tensors, versions)
        if floats and not mutated:
            sizes.keep_apart(floats, tensors, result)
        if sizes.fresh:
            node = self.add(op, target, node_args, node_kwargs, result)
            self._bind(result, node)
            self._name_sizes(node, result)
        else:
            self._note(
                op,
                target,
                args=node_args,
                kwargs=node_kwargs,
                result=result,
                tensors=tensors,
                mutated=mutated,
                must_run=self._effects() != effects,
            )
        if sizes.active and target not in _NO_SIZES:
            if type(result) is bool and "same_size" in str(target):
                sizes.fix_all(tensors, str(target))
            return sizes.wrap(result)
        return result

    def _effects(self) -> int:
        """How many operators so far must run whoever reads their results (ops.fakes.FakeMode)."""
        return 0 if self.world.sizes.mode is None else self.world.sizes.mode.effects

    def draws(self) -> bool:
        """Whether the graph may draw random numbers."""
        return self.world.sizes.mode is not None and self.world.sizes.mode.draws > 0

    def _note_writes(self, tensors: list[torch.Tensor], versions: list[tuple[int, bool]]) -> bool:
        """Whether a call has written to one of its tensors."""
        written = [
            tensor
            for tensor, version in zip(tensors, versions, strict=True)
            if self._version(tensor) != version
        ]
        self.mutated_inputs |= any(id(tensor) in self.world.inputs for tensor in written)
        return bool(written)

    def _failed(self, run: Any, args: Any, kwargs: Any, error: Exception) -> None:
        """An operator raised on fakes. They may err: before a handler of the user sees it, eager shall have raised it."""
        if self.world.sizes.active:
            explain_failure(self.world.sizes, run, args, kwargs, error)
        if self._is_handled() and not _is_of_torch(error):
            raise CaptureBreak(Break.B022, None, error=repr(error)) from None

    def _guard_offset(self, tensor: torch.Tensor) -> None:
        """What comes now depends on where a tensor, or what it is a view of, lies in its storage."""
        storage = unwrapped(tensor).untyped_storage()._cdata
        for known in list(self.world.inputs.values()):
            if known.value.untyped_storage()._cdata == storage:
                self.world.guard(
                    GuardKind.EQUALS, OffsetOf(known.source), known.raw.storage_offset()
                )
        if self.world.sizes.active:
            self.world.sizes.fix_all([tensor], "storage_offset")

    def _version(self, tensor: torch.Tensor) -> tuple[int, bool]:
        """What changes when an operator changes a tensor in place; those of inference mode have no counter.

        Nor have tensors of a transform one that tells of writes to what they wrap.
        """
        if tensor.is_inference() or _is_wrapped(tensor):
            return (
                0 if self.world.sizes.mode is None else self.world.sizes.mode.writes
            ), not tensor.is_inference() and tensor.requires_grad
        return int(tensor._version), tensor.requires_grad

    def changes_inputs(self) -> bool:
        """Whether the graph changes an input, or a view of one."""
        return self.mutated_inputs or bool(self.changed_inputs())

    def changed_inputs(self) -> list[Known]:
        """The inputs that the graph changes, as far as they count their changes."""
        inputs = [known for _, known in self.inputs if isinstance(known.value, torch.Tensor)]
        return [
            known
            for known in inputs
            if self._version(known.value) != self._first_versions[id(known.value)]
        ]

    def is_false(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is false whatever the data: a random number of [0, 1) is never below 0."""
        node = self.nodes.get(id(tensor))
        if node is None or node.target is not operator.lt or tensor.is_inference():
            return False
        left, right = node.args
        drawn = (
            isinstance(left, torch.fx.Node)
            and left.target is torch.rand
            and not left.meta["example_value"]._version
        )
        return drawn and not tensor._version and isinstance(right, int | float) and right <= 0

    def _name_sizes(self, node: torch.fx.Node, result: Any) -> None:
        """Sizes that depend on data are read from the result that has them."""
        sizes = self.world.sizes
        node.meta["unbacked"], sizes.fresh = tuple(sizes.fresh), []
        if isinstance(result, int):
            node.meta["example_value"] = size = sizes.table.express(result)
            self._sizes.name(Expr.of(size), node)
        for tensor in tensors_in((result,)):
            for dim, number in enumerate(tensor.shape):
                expr = Expr.of(sizes.table.express(number))
                if not self._sizes.knows(expr) and any(
                    expr == Expr.of(symbol) for symbol in node.meta["unbacked"]
                ):
                    place = (self.nodes[id(tensor)], dim)
                    self._sizes.name(expr, self.effect("size", place, sizes.table.size(expr)))

    def _note(
        self,
        op: str,
        target: Any,
        args: Any,
        kwargs: Any,
        result: Any,
        tensors: list[Any],
        mutated: bool,
        must_run: bool,
    ) -> None:
        made = list(tensors_in((result,)))
        if not all(tensor.is_cpu for tensor in made):
            raise CaptureBreak(Break.B010, None, type=f"one on the device {made[0].device}")
        if not mutated:
            if not made and result is not None:
                return  # a question about metadata
            given = {id(tensor) for tensor in tensors}
            if made and result is made[0] and id(result) in given:
                return  # nothing happened: contiguous() of a contiguous tensor
        node = self.add(op, target, args, kwargs, result)
        if mutated or result is None or must_run:
            self.keep.add(node)
        self._bind(result, node)

    def add(self, op: str, target: Any, args: Any, kwargs: Any, result: Any) -> torch.fx.Node:
        """Append a node."""
        node = self.graph.create_node(op, target, args, kwargs)
        node.meta["example_value"] = result
        node.meta["stack_trace"] = self.place()
        self.made_at[node] = self._count()
        self.handled = self.handled or self._is_handled()
        if self.checkpoint is not None:
            node.meta["checkpoint"] = self.checkpoint
        if self._first_call is None:
            self._first_call = node
        self.calls += 1
        return node

    def submodule(self, name: str, module: torch.nn.Module) -> torch.fx.Node:
        """The node of a graph inside of this one, under a name like that."""
        number = sum(known.rpartition("_")[0] == name for known in self.modules)
        name = f"{name}_{number}"
        self.modules[name] = module
        node = self.add("get_attr", name, (), {}, module)
        self.calls -= 1
        return node

    def add_call(self, target: Any, args: tuple[Any, ...], results: tuple[Any, ...]) -> None:
        """A call that was computed already, with several results."""
        node = self.add("call_function", target, args, {}, results)
        self._bind(results, node)

    def effect(self, target: Any, args: tuple[Any, ...], result: Any = None) -> torch.fx.Node:
        """Record a change of torch's state, such as the grad mode; it is never dead."""
        op = "call_method" if isinstance(target, str) else "call_function"
        node = self.add(op, target, args, {}, result)
        self.keep.add(node)
        self.effects += 1
        self.calls -= 1  # alone it makes no graph worth running
        return node

    def _bind(self, result: Any, node: torch.fx.Node) -> None:
        """Let fakes in a result stand for the node, or for items of it."""
        if isinstance(result, torch.Tensor):
            self.nodes[id(result)] = node
            self._alive.append(result)
        elif isinstance(result, tuple | list):
            for index, item in enumerate(result):
                self._bind_item(item, node, index)
        elif isinstance(result, dict):
            for key, item in result.items():
                self._bind_item(item, node, key)

    def _bind_item(self, item: Any, node: torch.fx.Node, place: Any) -> None:
        if isinstance(item, torch.Tensor | tuple | list | dict):
            if isinstance(item, torch.Tensor) and id(item) in self.nodes:
                return
            part = self.graph.create_node("call_function", operator.getitem, (node, place))
            part.meta["example_value"] = item
            for key in ("stack_trace", "checkpoint"):
                if key in node.meta:
                    part.meta[key] = node.meta[key]
            self._bind(item, part)


def _is_of_torch(error: Exception) -> bool:
    """Whether an operator raised before it was asked of our fakes: what it looked at is as in eager."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code is real.call.__code__


def check_size(condition: bool, text: str) -> None:
    """What `torch._check` does in a graph."""
    if not condition:
        raise RuntimeError(text)


def remove_dead(graph: torch.fx.Graph, keep: set[torch.fx.Node]) -> int:
    """Take nodes without users out of a graph; the number of those left that compute something."""
    calls = 0
    for node in reversed(list(graph.nodes)):
        if node.users or node in keep or node.op == "output":
            calls += node.op not in ("placeholder", "output")
        else:
            graph.erase_node(node)
    return calls
