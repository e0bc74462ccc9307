"""autograd.programs: graphs as programs that a recorder can watch.

In: a graph, at torch or aten level. Out: ``Program``: a Python callable on a flat list of fakes that runs it node by node.
Operators that take graphs are run by ``control_flow``.
"""

from __future__ import annotations

import bisect
import functools
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

import torch
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from argand.autograd.bodies import Program as Program
from argand.autograd.opaque import is_custom
from argand.autograd.recorder import AtenRecorder
from argand.ops.function_graphs import OF_USERS, apply_graphs
from argand.ops.hooks import HOOKS
from argand.ops.layers import RECURRENT
from argand.runtime.disk.graphs import attribute
from argand.sizes.expressions import SizeInt
from argand.support.later import later

if TYPE_CHECKING:
    from argand.autograd import control_flow, recurrent
else:
    control_flow = later("argand.autograd.control_flow")
    recurrent = later("argand.autograd.recurrent")


def _call(recorder: AtenRecorder, target: Any, args: Any, kwargs: Any, loops: bool) -> Any:
    if isinstance(recorder, AtenRecorder):
        if isinstance(target, torch._ops.HigherOrderOperator) and target in control_flow.RULES:
            run = functools.partial(run_graph, loops=loops)
            return control_flow.RULES[target](recorder, run, *args, **kwargs)
        if loops and target in RECURRENT and not kwargs:
            made = recurrent.as_loop(recorder, run_graph, target, args)
            return target(*args) if made is None else made
    return target(*args, **kwargs)


def run_graph(module: GraphModule, *, loops: bool = False) -> Program:
    """A captured graph as a program; each node lends its line to what it makes torch do.

    ``loops``: recurrent layers become loops, instead of as many copies of a step as a sequence is long.
    """

    def program(recorder: AtenRecorder, inputs: list[Any]) -> Sequence[Any]:
        values: dict[Node, Any] = {}
        feed = iter(inputs)
        lookup = values.__getitem__
        lines = _LineBook(recorder)
        recorder.line_book = lines
        result: Any = ()
        for node in module.graph.nodes:
            if node.op == "placeholder":
                values[node] = next(feed)
                continue
            args = torch.fx.node.map_arg(node.args, lookup)
            kwargs = torch.fx.node.map_arg(node.kwargs, lookup)
            lines.enter(node.meta.get("stack_trace"))
            recorder.checkpoint = node.meta.get("checkpoint")
            match node.op:
                case "call_function":
                    values[node] = _call(recorder, node.target, args, kwargs, loops)
                    if isinstance(values[node], SizeInt) and recorder.sizes is not None:
                        recorder.sizes.learn(values[node])  # it may be met again as a plain integer
                case "call_method":
                    values[node] = getattr(args[0], node.target)(*args[1:], **kwargs)
                case "call_module":
                    values[node] = module.get_submodule(node.target)(*args, **kwargs)
                case "get_attr":
                    values[node] = attribute(module, node.target)
                case _:
                    result = args[0]
            if node.op in ("call_function", "call_method"):
                hidden = node.target in HOOKS or _cuts(args, kwargs, values[node])
                recorder.cut = recorder.cut or hidden
                recorder.foreign = recorder.foreign or has_own_formula(node)
        recorder.stack_trace = recorder.checkpoint = None
        return result

    return program


@final
class Flat:
    """A program made to give its results as one flat list."""

    def __init__(self, program: Program) -> None:
        self._program = program
        # how results are nested, known when the program has run once; None: they are a flat tuple as they are
        self.nested: pytree.TreeSpec | None = None

    def program(self, recorder: Any, inputs: list[Any]) -> Sequence[Any]:
        """The program, giving a list."""
        result = self._program(recorder, inputs)
        leaves, structure = pytree.tree_flatten(result)
        is_flat = (
            type(result) is tuple
            and len(leaves) == len(result)
            and all(map(operator.is_, leaves, result))
        )
        self.nested = None if is_flat else structure
        return leaves

    def rebuilt(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """The same callable with results nested as those of the program."""
        structure = self.nested
        if structure is None:
            return run
        return lambda *inputs: pytree.tree_unflatten(run(*inputs), structure)


def has_own_formula(node: Node) -> bool:
    """Whether the backward of a node is a user's: a function's, a hook's, that of an op of the user's."""
    target: Any = node.target
    own = target in HOOKS or target is apply_graphs or is_custom(target)
    return own or getattr(target, "__module__", None) == OF_USERS


def _cuts(args: Any, kwargs: Any, result: Any) -> bool:
    """Whether a call hides from autograd what its result is made of."""
    if isinstance(result, torch.Tensor):
        open_ended = not result.requires_grad and (
            result.is_floating_point() or result.is_complex()
        )
        return open_ended and any(
            isinstance(value, torch.Tensor) and value.requires_grad
            for value in (*args, *kwargs.values())
        )
    return False


@final
class _LineBook:
    """Which user line made which autograd node, by the sequence numbers autograd gives them."""

    def __init__(self, recorder: AtenRecorder) -> None:
        self.recorder = recorder
        self.starts: list[int] = []
        self.traces: list[str | None] = []

    def enter(self, trace: str | None) -> None:
        """The line of what runs from now on."""
        self.recorder.stack_trace = trace
        self.starts.append(torch._C._autograd._get_sequence_nr())
        self.traces.append(trace)

    def current(self) -> str | None:
        """The line of the forward op whose backward runs now."""
        node = torch._C._current_autograd_node()
        if node is None:
            return None
        place = bisect.bisect_right(self.starts, node._sequence_nr()) - 1
        return self.traces[place] if place >= 0 else None
