"""capture.rules.torch_rules: Python functions of torch that are neither interpreted nor nodes.

In: the arguments of a function, found in the table by its qualified name. Out: its result.
"""

from __future__ import annotations

import contextlib
from typing import Any, Final

import torch

from argand.capture.markers import Args, Kwargs
from argand.capture.objects import attention, polyfills
from argand.capture.objects.parts import Caller
from argand.capture.objects.tracer import Tracer
from argand.capture.outside.state import Outside
from argand.capture.rules import backward, hooks, optimizers, overrides, processes, torch_functions
from argand.capture.rules.python_builtins import polyfilled
from argand.capture.sizes.values import Claim
from argand.sizes.refusals import Stop
from argand.support.errors import Break, CaptureBreak


def _checkpoint(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
    options = {"use_reentrant", "context_fn", "determinism_check", "debug", "preserve_rng_state"}
    kept = {key: value for key, value in kwargs.items() if key not in options | {"early_stop"}}
    recorder = tracer.recorder
    outer, recorder.checkpoint = recorder.checkpoint, recorder.checkpoints
    recorder.checkpoints += 1
    result = tracer.call(polyfills.checkpoint, (args[0], args[1:], kept), {})
    recorder.checkpoint = outer
    return result


def _check(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
    if not args or type(args[0]) is not Claim:
        return tracer.call(polyfills.check, args, kwargs)
    message = kwargs.get("message", args[1] if len(args) > 1 else None)
    try:
        text = polyfills.CHECK if message is None else str(tracer.sealed(message, (), {}))
    except (CaptureBreak, Stop):  # it tells the number
        text = polyfills.CHECK
    return tracer.recorder.check(args[0], text)


def _module_init(caller: Caller, args: Args, kwargs: Kwargs) -> Any:
    """torch.compile wraps `Module.__init__` to count modules for itself: the one below it."""
    init: Any = torch.nn.Module.__init__
    while init.__qualname__.endswith("patched_init") and init.__closure__:
        init = init.__closure__[0].cell_contents
    return caller.call(init, args, kwargs)


def _break_graph(outside: Outside, args: Args, kwargs: Kwargs) -> Any:
    raise CaptureBreak(Break.B005)


_TAGGING: Final = "torch._dynamo.mutation_guard.install_generation_tagging_init.<locals>"


RULES: Final[dict[str, Any]] = {
    **processes.RULES,
    f"{_TAGGING}.patched_init": _module_init,
    "torch._tensor.Tensor.register_hook": hooks.register,
    "torch.autograd.grad": backward.gradients,
    "torch.autograd.backward": backward.function,
    "torch.utils.checkpoint.checkpoint": _checkpoint,
    "torch.autograd.profiler.record_function.__enter__": torch_functions.enter_region,
    "torch.autograd.profiler.record_function.__exit__": torch_functions.leave_region,
    "torch._higher_order_ops.associative_scan.associative_scan": polyfilled(
        polyfills.associative_scan
    ),
    "torch._dynamo.decorators.graph_break": _break_graph,
    "torch._dynamo.decorators.error_on_graph_break": polyfilled(polyfills.no_context),
    "torch._dynamo.eval_frame.OptimizedModule.__call__": lambda tracer, args, kwargs: tracer.call(
        tracer.sealed(torch.nn.Module.__getattr__, (args[0], "_orig_mod"), {}), args[1:], kwargs
    ),
    "torch._higher_order_ops.invoke_subgraph.invoke_subgraph_placeholder": lambda tracer, args, kwargs: (
        tracer.call(args[0], args[1:], kwargs)
    ),
    "torch.jit.annotate": lambda tracer, args, kwargs: args[-1],
    "torch._tensor.Tensor.__torch_function__": overrides.default,
    "torch.overrides._push_mode": overrides.push_mode,
    "torch.overrides._pop_mode": overrides.pop_mode,
    "torch._check": _check,
    "torch.nn.modules.module.Module.zero_grad": optimizers.of_module,
    "torch.optim.optimizer._get_value": polyfilled(polyfills.value_of_state),
    "torch._check_is_size": polyfilled(polyfills.check_is_size),
    "torch.fx.traceback.annotate": lambda tracer, args, kwargs: contextlib.nullcontext(),
    "torch.nn.attention.flex_attention.flex_attention": polyfilled(attention.flex_attention),
    "torch.nn.attention.flex_attention._ordered_to_dense": polyfilled(attention.ordered_to_dense),
    "torch.nn.attention.flex_attention.create_mask": polyfilled(attention.create_mask),
}
