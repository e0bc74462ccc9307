"""capture.rules.hooks: `register_hook` of a value that the trace computes.

In: the value and the hook. Out: a node that hands the graph of the hook to torch's engine (`ops.hooks`), and a handle. A hook
that changes anything outside, or whose value or handle leaves the trace, is Python's: a graph break at the call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, final

import torch
import torch.fx

from argand.capture.attempts import BreakAt
from argand.capture.markers import Args, Kwargs, OfTrace
from argand.capture.objects.parts import GraphState
from argand.capture.objects.tracer import Tracer
from argand.capture.outside import real
from argand.capture.outside.kinds import PLAIN_TENSORS
from argand.capture.record.apart import apart_at
from argand.capture.rules.branches import (
    Branch,
    BranchRecorder,
    close_branch,
    refused,
    trace_branch,
)
from argand.ops.hooks import add_hook
from argand.runtime.levels import depth
from argand.sizes.refusals import Stop
from argand.support.errors import Break, CaptureBreak

_NAME: Final = "Tensor.register_hook"


@final
class Handle(OfTrace):
    """What `register_hook` gives: as long as it is the trace's own, removing is taking the node away."""

    __class__ = property(lambda self: torch.utils.hooks.RemovableHandle)

    def __init__(self, state: GraphState, tensor: torch.Tensor, node: torch.fx.Node | None) -> None:
        self.state, self.tensor, self.node = state, tensor, node
        self.made_at = state.torch.hooked_at[id(tensor)]

    def remove(self) -> None:
        """The hook is not called any more; a backward inside of the trace may have called it."""
        if self.state.torch.differentiated:
            raise CaptureBreak(Break.B013, None, what="the end of a hook after a backward")
        if self.node is not None:
            self.state.recorder.keep.discard(self.node)


def register(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """`Tensor.register_hook`."""

    def bound(self: Any, hook: Callable[..., Any]) -> tuple[Any, Callable[..., Any]]:
        return self, hook

    tensor, hook = bound(*args, **kwargs)
    recorder = tracer.recorder
    inside = recorder.checkpoint is not None or isinstance(recorder, BranchRecorder) or depth()
    inside = inside or type(tensor) not in PLAIN_TENSORS
    if id(tensor) in tracer.world.inputs or tensor.is_leaf or inside:
        if not tensor.requires_grad:
            real.call(torch.Tensor.register_hook, (tensor, hook), {})  # raises
        raise CaptureBreak(Break.B004, None, method=_NAME)
    at = apart_at(tracer.recorder, tensor, tracer.count)
    try:
        with torch.no_grad():  # as torch's engine calls it
            gradient = torch.empty_like(tensor)
            branch = trace_branch(tracer, _NAME, hook, (gradient,), (gradient,))
        node = _emit(tracer, tensor, gradient, branch)
    except CaptureBreak as cause:
        raise Stop(BreakAt(at, cause)) from None
    tracer.torch.hooked.append(tensor)
    tracer.torch.hooked_at[id(tensor)] = at
    return Handle(tracer, tensor, node)


def _emit(
    state: GraphState, tensor: torch.Tensor, gradient: torch.Tensor, branch: Branch
) -> torch.fx.Node | None:
    """The node; None for a hook that leaves the gradient as it is."""
    if branch.results == [None] or not branch.results:
        return None
    found = branch.results[0] if branch.structure.is_leaf() else None
    if (
        not isinstance(found, torch.Tensor)
        or found.shape != gradient.shape
        or found.dtype is not gradient.dtype
    ):
        raise refused(_NAME, "a hook must give a gradient like the one that it is given")
    recorder = state.recorder
    lifted = {key: outer for key, (_, outer) in branch.lifted.items()}
    graph = recorder.submodule("hook", close_branch(branch, list(lifted.items()), "hook"))
    args = (recorder.node_of(tensor), graph, *lifted.values())
    node = recorder.add("call_function", add_hook, args, {}, None)
    recorder.keep.add(node)
    return node
