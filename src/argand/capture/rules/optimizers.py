"""capture.rules.optimizers: how steps of torch.optim are captured.

In: functions of torch.optim. Out: what is interpreted in their place. Two things torch does there stand against one
graph: a break of torch.compile's graphs around each step, and numbers of the state that Python reads. The state of a
parameter is made before its first step is captured, so that one graph serves the first step and all others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

import torch

from argand.capture.markers import Args, Kwargs
from argand.capture.objects import optimizer_steps, polyfills
from argand.capture.objects.parts import Caller
from argand.capture.objects.tracer import Tracer
from argand.capture.outside import real
from argand.capture.outside.journal import Writes
from argand.capture.outside.state import Outside
from argand.support.errors import Break, CaptureBreak


def _step(caller: Caller, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """The wrapper of a step, which breaks torch.compile's graphs: what is inside, under the same mode."""
    caller.world.inlined[id(function)] = function
    inner = function.__closure__[0].cell_contents
    return caller.call(polyfills.step_of_optimizer, (inner, args, kwargs), {})


def _readable(caller: Caller, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """Methods that torch keeps away from torch.compile: of these, `zero_grad` can be captured."""
    if function.__name__ == "zero_grad":
        return _zero_grad(caller, function.__wrapped__, args, kwargs)
    return caller.inline(function, args, kwargs)


def _zero_grad(caller: Caller, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """`zero_grad`: to set gradients to None nobody has to look whether there are any."""

    def bound(self: Any, set_to_none: Any = True) -> Args:
        return self, set_to_none

    owner, to_none = bound(*args, **kwargs)
    if to_none is not True or getattr(owner, "_is_replica", False):
        return caller.inline(function, args, kwargs)
    caller.world.inlined[id(function)] = function
    by_groups = isinstance(owner, torch.optim.Optimizer)
    return caller.call(
        polyfills.drop_gradients if by_groups else polyfills.drop_gradients_of_module, (owner,), {}
    )


def of_module(caller: Caller, args: Args, kwargs: Kwargs) -> Any:
    """`Module.zero_grad`."""
    return _zero_grad(caller, torch.nn.Module.zero_grad, args, kwargs)


def _init_group(caller: Caller, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """`_init_group` makes the state of parameters that have none: for real, before the trace looks at it."""
    optimizer = args[0] if args else None
    known = caller.world.known.get(id(optimizer))
    if (
        known is not None
        and isinstance(optimizer, torch.optim.Optimizer)
        and _is_as_outside(caller, optimizer)
    ):
        _make_state(caller, function, optimizer, len(args) + len(kwargs) - 2)
    return caller.inline(function, args, kwargs)


def _is_as_outside(outside: Outside, optimizer: torch.optim.Optimizer) -> bool:
    """Whether the trace has changed nothing that the state is made of, and not looked at the state yet."""
    world = outside.world
    if id(optimizer.state) in world.known or not all(
        _is_apart(row, optimizer) for row in outside.journal.attributes.values()
    ):
        return False
    changed = [
        shadow for shadow in world.shadows if shadow.before is not None and _is_changed(shadow)
    ]
    return not changed


def _is_apart(written: Writes, optimizer: torch.optim.Optimizer) -> bool:
    """Whether writes to attributes are to none that the state is made of: to gradients, to counters of steps."""
    if isinstance(written.owner, torch.Tensor):
        return set(written.values) <= {"grad"}
    return not (
        written.owner is optimizer and written.values.keys() & {"state", "param_groups", "defaults"}
    )


def _is_changed(shadow: Any) -> bool:
    now, before = shadow.known.value, shadow.before
    if isinstance(now, dict):
        now, before = [*now.keys(), *now.values()], [*before.keys(), *before.values()]
    return len(now) != len(before) or any(a is not b for a, b in zip(now, before, strict=True))


def _make_state(
    outside: Outside, function: Any, optimizer: torch.optim.Optimizer, lists: int
) -> None:
    with torch._C._DisableTorchDispatch(), torch.no_grad():  # real tensors, not fakes
        for group in optimizer.param_groups:
            missing = [
                p
                for p in group["params"]
                if not optimizer.state.get(p) and _has_gradient(outside, p)
            ]
            if missing:
                with _as_with_gradients(missing):
                    real.call(function, (optimizer, group, *([] for _ in range(lists))), {})


def _has_gradient(outside: Outside, parameter: torch.Tensor) -> bool:
    """Whether a parameter has a gradient where the trace stands."""
    known = outside.world.known.get(id(parameter))
    entry = None if known is None else outside.journal.attributes.get(id(known.value))
    return (
        parameter.grad if entry is None else entry.values.get("grad", parameter.grad)
    ) is not None


@contextlib.contextmanager
def _as_with_gradients(parameters: list[torch.Tensor]) -> Iterator[None]:
    """Parameters whose gradients the graph will have computed: for those who ask whether there is one."""
    without = [parameter for parameter in parameters if parameter.grad is None]
    for parameter in without:
        parameter.grad = torch.empty_like(parameter)
    try:
        yield
    finally:
        for parameter in without:
            parameter.grad = None


def _by_graph(polyfill: Any) -> Any:
    """An update without branches on numbers of the state; one that is capturable has none."""

    def rule(caller: Caller, function: Any, args: Args, kwargs: Kwargs) -> Any:
        plain = (
            not kwargs.get("capturable")
            and kwargs.get("grad_scale") is None
            and kwargs.get("found_inf") is None
        )
        return (
            caller.call(polyfill, args, kwargs) if plain else caller.inline(function, args, kwargs)
        )

    return rule


def _unfused(name: str) -> Any:
    """A fused update is torch's kernel for what the graph computes in fused kernels of its own."""

    def rule(caller: Caller, function: Any, args: Args, kwargs: Kwargs) -> Any:
        if kwargs.get("grad_scale") is not None or kwargs.get("found_inf") is not None:
            return caller.inline(function, args, kwargs)
        return caller.call(function.__globals__[name], args, kwargs)

    return rule


def leave_scheduler(tracer: Tracer, function: Any) -> None:
    """A step of a scheduler counts in Python: interpreted, each of its numbers would be a graph of its own."""
    if function.__name__ == "step" and not tracer.options.fullgraph:
        raise CaptureBreak(Break.B002, None, function=function.__qualname__)


def _update_average(caller: Caller, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """`AveragedModel.update_parameters` with one of torch's averages; a function of the user's is not called the first time."""
    averaged = args[0]
    mean = caller.load_or(averaged, "multi_avg_fn", None)
    of_torch = getattr(mean, "__module__", "") == "torch.optim.swa_utils"
    if (
        kwargs
        or caller.load_or(averaged, "avg_fn", None) is not None
        or not (mean is None or of_torch)
    ):
        return caller.inline(function, args, kwargs)
    caller.world.inlined[id(function)] = function
    return caller.call(optimizer_steps.update_average, args, kwargs)


RULES: Final[
    dict[str, Any]
] = {  # by the name of the code, for wrappers have the names of what they wrap
    "_use_grad_for_differentiable.<locals>._use_grad": _step,
    "_disable_dynamo.<locals>.inner": _readable,
    "AveragedModel.update_parameters": _update_average,
    "_fused_adam": _unfused("_single_tensor_adam"),
    "_fused_sgd": _unfused("_single_tensor_sgd"),
    "_fused_adagrad": _unfused("_single_tensor_adagrad"),
    **{
        f"_{form}_tensor_{name}": _by_graph(polyfill)
        for form in ("single", "multi")
        for name, polyfill in (
            ("radam", optimizer_steps.radam),
            ("asgd", optimizer_steps.asgd),
            ("adafactor", optimizer_steps.adafactor),
        )
    },
    **{
        f"{name}._init_group": _init_group
        for name, kind in vars(torch.optim).items()
        if isinstance(kind, type)
    },
}
