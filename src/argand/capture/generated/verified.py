"""capture.generated.verified: a compiled frame compared with the frame as Python runs it. For ``verify="results"``.

In: the compiled function of a whole frame, how to call the frame, and its graph. Out: a function that runs the frame in
Python, puts the world back, runs the compiled function with its graph computed by torch, and compares results and side
effects: both ran the same kernels, so they are equal to the bit, and what differs is capture's. Then the call itself runs, in
which the graph compares itself (`backends.verified`).
"""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Callable
from typing import Any, final

import torch

from argand.differences.telling import tell
from argand.differences.values import Difference
from argand.differences.worlds import Reachable, compare_changes, compare_exactly, compare_objects
from argand.runtime import _native
from argand.support import events
from argand.support.errors import Location
from argand.support.options import Options


def pack(function: Any, *args: Any, **kwargs: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """A call as a value."""
    return function, args, kwargs


@final
class VerifiedFrame:
    """Stands for the compiled function of a frame."""

    def __init__(
        self,
        target: Callable[..., Any],
        frame: Callable[..., Any],
        graph: Any,
        where: Location,
        options: Options,
    ) -> None:
        self.target, self.frame, self.graph, self.where, self.options = (
            target,
            frame,
            graph,
            where,
            options,
        )
        self.calls = 0

    def __call__(self, *values: Any) -> Any:
        """Compare, then run."""
        self.calls += 1
        if torch._C._autograd._top_saved_tensors_default_hooks(True) is None:
            difference = self._verify(values)
            if difference is not None:
                tell(self.options, "a captured frame", self.where, difference, self.calls)
        return self.target(*values)

    def _verify(self, values: tuple[Any, ...]) -> Difference | None:
        function, args, kwargs = self.frame(*values)
        before, state = Reachable(function, args, kwargs), _read_random()
        # a write would change a history for good
        grad = torch.is_grad_enabled() and not before.history
        expected, found = _Ending(), _Ending()
        with torch.set_grad_enabled(grad), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                expected.run(_native.disabled(function), args, kwargs, before)
                before.restore()
                _write_random(state)
                found.run(self._by_torch, values, {}, before)
            finally:
                before.restore()
                _write_random(state)
        if expected.error is not None:
            return None  # the user's: the call itself raises it
        events.count("verify.frames")
        if found.error is not None:
            return Difference("the call", "outcomes", "returns", f"raises {found.error!r}")
        difference = compare_objects("result", expected.result, found.result, compare_exactly)
        return difference or compare_changes(expected.changes, found.changes, compare_exactly)

    def _by_torch(self, *values: Any) -> Any:
        """The compiled function, with torch's kernels."""
        if self.graph is None:
            return self.target(*values)
        self.graph.by_torch = True
        try:
            return self.target(*values)
        finally:
            self.graph.by_torch = False


@final
class _Ending:
    """What a run gave and changed."""

    def __init__(self) -> None:
        self.result: Any = None
        self.error: Exception | None = None
        self.changes: dict[str, Any] = {}

    def run(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        before: Reachable,
    ) -> None:
        """Call a function; its results are kept as they are now, for the world is put back."""
        try:
            self.result = _kept(function(*args, **kwargs))
        except Exception as error:
            self.error = error
            return
        self.changes = Reachable(*before.roots).changes(before)


def _kept(result: Any) -> Any:
    """Results in memory of their own, where it is written to when the world is put back."""
    if isinstance(result, torch.Tensor) and type(result) in (torch.Tensor, torch.nn.Parameter):
        return _copy(result)
    if type(result) in (tuple, list):
        return type(result)(_kept(item) for item in result)
    return {key: _kept(item) for key, item in result.items()} if type(result) is dict else result


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    if (
        tensor.layout is not torch.strided
        or tensor.is_conj()
        or tensor.is_neg()
        or not tensor.numel()
    ):
        return tensor
    with torch.no_grad():
        copied = torch.empty_strided(
            tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
        )
        if 0 not in tensor.stride():
            copied.copy_(tensor)
        else:
            copied = tensor.detach().clone()
    return copied.requires_grad_(tensor.requires_grad) if copied.is_floating_point() else copied


def _read_random() -> tuple[Any, ...]:
    numpy = sys.modules.get("numpy")
    return (
        torch.get_rng_state(),
        random.getstate(),
        None if numpy is None else numpy.random.get_state(),
    )


def _write_random(state: tuple[Any, ...]) -> None:
    torch.set_rng_state(state[0])
    random.setstate(state[1])
    if state[2] is not None:
        sys.modules["numpy"].random.set_state(state[2])
