"""capture.rules.branches: a Python function given to an operator becomes a graph of its own.

In: a function and the fakes it is called with. Out: `Branch`: a torch-level graph over these and over what the function
reads from outside (lifted: tensors and sizes of the graph around it), and the fakes of its results. The same tracer
interprets it, so what it reads is guarded as everything else; what it changes outside is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, final

import torch
import torch.fx
from torch.utils import _pytree as pytree
from typing_extensions import override

from argand.capture.generated.torch_state import read_state
from argand.capture.objects.parts import Caller
from argand.capture.objects.tracer import Tracer
from argand.capture.record.recorder import Recorder, remove_dead
from argand.capture.sizes.floats import Float
from argand.capture.sizes.values import OpenSize
from argand.runtime.lifetimes import LazyGraph
from argand.sizes.expressions import Expr
from argand.support.errors import Break, CaptureBreak

_DATA: Final = "a size in it depends on data"


@final
class Branch(NamedTuple):
    """A traced function."""

    graph: torch.fx.Graph
    inputs: list[torch.fx.Node]  # of what it was called with
    # by what it is outside: the placeholder, the outer value
    lifted: dict[Any, tuple[torch.fx.Node, Any]]
    results: list[Any]  # leaves: fakes, or constants
    structure: pytree.TreeSpec
    keep: set[torch.fx.Node]
    modules: dict[str, torch.nn.Module]


@final
class BranchRecorder(Recorder):
    """The recorder of a graph inside of another: what is known outside becomes an input here."""

    def __init__(self, outer: Recorder) -> None:
        super().__init__(outer.world, outer.place, outer._is_handled, outer._count)
        self.outer = outer
        self.lifted: dict[Any, tuple[torch.fx.Node, Any]] = {}
        self.versions: list[tuple[torch.Tensor, tuple[int, bool]]] = []
        self.given: list[torch.fx.Node] = []
        outer._alive.append(self)  # fakes are known by their ids

    def give(self, value: Any, name: str) -> None:
        """An input of the function itself."""
        node = self._add_placeholder(value, name)
        self.given.append(node)
        if isinstance(value, torch.Tensor):
            self.nodes.setdefault(id(value), node)
            self.versions.append((value, self._version(value)))

    def _add_placeholder(self, value: Any, name: str) -> torch.fx.Node:
        anchor = self._first_call or self.graph._root
        with self.graph.inserting_before(anchor):
            node = self.graph.create_node("placeholder", name, (), {}, name=name)
        node.target = node.name  # parameters have names of their own, too
        node.meta["example_value"] = value
        return node

    def _lift(self, key: Any, outer: Any, value: Any) -> torch.fx.Node:
        if key not in self.lifted:
            self.lifted[key] = (self._add_placeholder(value, outer.name), outer)
        return self.lifted[key][0]

    @override
    def knows(self, tensor: torch.Tensor) -> bool:
        return id(tensor) in self.nodes or self.outer.knows(tensor)

    @override
    def node_of(self, tensor: torch.Tensor) -> torch.fx.Node:
        node = self.nodes.get(id(tensor))
        if node is None:
            node = self.nodes[id(tensor)] = self._lift(
                id(tensor), self.outer.node_of(tensor), tensor
            )
            self.versions.append((tensor, self._version(tensor)))
        return node

    @override
    def size_node(self, expr: Expr) -> Any:
        outer = self.outer.size_node(expr)
        if not isinstance(outer, torch.fx.Node):
            return outer
        return self._lift(expr, outer, self.world.sizes.table.size(expr))

    @override
    def _float(self, value: Float) -> torch.fx.Node:
        outer = self.outer._float(value)
        return self._lift(repr(value.source), outer, outer.meta["example_value"])

    def changes_inputs_of_branch(self) -> bool:
        """Whether the function has changed a tensor that it was given, or that it reads from outside."""
        return any(self._version(tensor) != version for tensor, version in self.versions)


def trace_branch(
    tracer: Tracer,
    operator: str,
    function: Any,
    args: Sequence[Any],
    given: Sequence[Any],
    *,
    single: bool = False,
    kept: Callable[[BranchRecorder], Sequence[Any]] | None = None,
) -> Branch:
    """Interpret `function(*args)`, where `given` are the leaves of the arguments.

    `single`: it gives one value. `kept`: what the graph gives besides, known when the function has run.
    """
    outer = tracer.recorder
    inner = BranchRecorder(outer)
    for number, value in enumerate(given):
        inner.give(value, f"arg{number}_1")
    mode, checks = tracer.world.sizes.mode, len(tracer.journal.checks)
    unbacked = None if mode is None else mode.unbacked
    before, state = tracer.written(), read_state()
    tracer.recorder = inner
    try:
        if mode is not None:
            mode.unbacked = None
        result = _call(tracer, function, args)
        leaves, structure = pytree.tree_flatten(result)
        leaves += () if kept is None else kept(inner)
        nodes = [inner.argument(leaf) if _is_value(leaf) else leaf for leaf in leaves]
    finally:
        tracer.recorder = outer
        if mode is not None:
            mode.unbacked = unbacked
    if tracer.written() != before or len(tracer.journal.checks) != checks:
        raise refused(operator, "a function given to it changes something outside")
    if read_state() != state:
        raise refused(
            operator, "a function given to it changes a state of torch, such as the grad mode"
        )
    if inner.changes_inputs_of_branch():
        raise refused(
            operator, "a function given to it changes a tensor in place that it was given"
        )
    if single and len(nodes) != 1:
        raise refused(operator, "a function given to it must give one value")
    inner.graph.output(nodes[0] if single else tuple(nodes))
    return Branch(
        graph=inner.graph,
        inputs=inner.given,
        lifted=inner.lifted,
        results=leaves,
        structure=structure,
        keep=inner.keep,
        modules=inner.modules,
    )


def _call(caller: Caller, function: Any, args: Sequence[Any]) -> Any:
    try:
        return caller.sealed(function, tuple(args), {})
    except CaptureBreak as cause:  # the operator runs in Python as a whole
        cause.native = True
        cause.frames.clear()
        raise


def _is_value(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) or type(leaf) is OpenSize


def refused(operator: str, reason: str) -> CaptureBreak:
    """What is wrong with a call; Python's own call will say it in torch's words."""
    broken = CaptureBreak(Break.B024, None, operator=operator, reason=reason)
    broken.native = True
    return broken


def check_own(operator: str, branch: Branch) -> None:
    """Refuse results that are inputs, or share memory with one or with each other, as eager does."""
    nodes = [*branch.inputs, *(node for node, _ in branch.lifted.values())]
    values = [node.meta["example_value"] for node in nodes]
    taken = {v.untyped_storage()._cdata for v in values if isinstance(v, torch.Tensor)}
    for leaf in branch.results:
        if isinstance(leaf, torch.Tensor):
            memory = leaf.untyped_storage()._cdata
            if memory in taken:
                raise refused(
                    operator, "a result shares memory with an input or another result: clone it"
                )
            taken.add(memory)


def close_branch(branch: Branch, lifted: Sequence[Any], name: str) -> LazyGraph:
    """The module of a branch that takes its own inputs, and then what is `lifted` (keys and outer nodes), used or not."""
    graph = branch.graph
    last = branch.inputs[-1] if branch.inputs else graph._root
    for key, outer in lifted:
        if key in branch.lifted:
            node = branch.lifted[key][0]
        else:
            with graph.inserting_after(last):
                node = graph.create_node("placeholder", outer.name, (), {}, name=outer.name)
            node.target = node.name
            node.meta["example_value"] = outer.meta["example_value"]
        if last.next is not node:
            last.append(node)
        last = node
    remove_dead(graph, branch.keep | {n for n in graph.nodes if n.op == "placeholder"})
    return LazyGraph(branch.modules, graph, name)
