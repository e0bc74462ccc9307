"""autograd.opaque: custom ops whose backward reads data (offsets, lengths) and so cannot be traced.

Such an op stays one node in the forward, and its gradient becomes one node in the backward: a call
that runs the op again under torch's autograd, at run time, on real tensors. ``OpaqueOps`` is the
function mode that puts them in; the trace turns it on for a program that failed without.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import torch
from torch._ops import OpOverload, OpOverloadPacket
from torch.overrides import TorchFunctionMode
from typing_extensions import override

from argand.autograd.nodes import hold
from argand.autograd.recorder import AtenRecorder
from argand.ops.fakes import DataDependent


@final
class Gradient:
    """(arguments of the op, gradients of its outputs) -> gradients of its tensors in ``wanted``."""

    def __init__(self, op: Any, wanted: Sequence[int], count: int) -> None:
        self.op, self.wanted, self.count = op, tuple(wanted), count
        self.__name__ = f"gradient_of_{str(op).replace('.', '_')}"
        self.__qualname__ = self.__name__
        self.__module__ = __name__

    def __call__(self, *values: Any) -> tuple[torch.Tensor, ...]:
        """Run the op and its backward."""
        arguments, tangents = list(values[: self.count]), values[self.count :]
        for place in self.wanted:
            arguments[place] = arguments[place].detach().requires_grad_()
        with torch.enable_grad():
            result = self.op(*arguments)
        outputs = result if isinstance(result, tuple) else (result,)
        tracked = [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad]
        inputs = [arguments[place] for place in self.wanted]
        found = torch.autograd.grad(tracked, inputs, tangents, allow_unused=True)
        return tuple(
            torch.zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=True)
        )


class _Sealed(torch.autograd.Function):
    """An op whose backward is recorded as one call."""

    @staticmethod
    def forward(ctx: Any, recorder: AtenRecorder, op: Any, *args: Any) -> Any:
        """Record the op."""
        ctx.recorder, ctx.op, ctx.args = recorder, op, args
        return op(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Record a call of its gradient."""
        if torch.is_grad_enabled():
            raise DataDependent(f"the second derivative of {ctx.op}")
        recorder: AtenRecorder = ctx.recorder
        wanted = [k for k, needed in enumerate(ctx.needs_input_grad[2:]) if needed]
        tangents = [grad for grad in grads if grad is not None]
        target = Gradient(ctx.op, wanted, len(ctx.args))
        fakes = tuple(torch.empty_like(ctx.args[k].detach()) for k in wanted)
        nodes = tuple([recorder.node_of(value) for value in (*ctx.args, *tangents)])
        with torch._C._DisableTorchDispatch():
            held = tuple(map(hold, fakes))
        recorder.own(recorder.emit(target, nodes, val=held, share=False), held)
        answer: list[Any] = [None] * len(ctx.args)
        for place, fake in zip(wanted, fakes, strict=True):
            answer[place] = fake
        return None, None, *answer


def is_custom(func: Any) -> bool:
    """Whether this is an op of the user's, outside torch's own namespaces."""
    if not isinstance(func, OpOverload | OpOverloadPacket):
        return False
    name = func._qualified_op_name if isinstance(func, OpOverloadPacket) else func.name()
    return name.split("::")[0] not in ("aten", "prim", "prims")


@final
class OpaqueOps(TorchFunctionMode):
    """Seals every custom op called with flat arguments."""

    def __init__(self, recorder: AtenRecorder) -> None:
        super().__init__()
        self.recorder = recorder

    @override
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not is_custom(func):
            return func(*args, **kwargs)
        op = func.default if isinstance(func, OpOverloadPacket) else func
        arguments = op._schema.arguments
        given = [*args, *(kwargs.get(a.name, a.default_value) for a in arguments[len(args) :])]
        nested = any(isinstance(value, list | tuple) for value in given)
        if nested or op._schema.is_mutable or any(a.kwarg_only for a in arguments):
            return func(*args, **kwargs)
        return _Sealed.apply(self.recorder, op, *given)
