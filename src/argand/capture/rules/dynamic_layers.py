"""capture.rules.dynamic_layers: operators of `torch.ao.quantization.quantize_dynamic`.

In: an operator of torch by its name, and its arguments. Out: a rule, which calls plain operators on
the unpacked weight, or makes a node as for other operators. What is unpacked belongs to the trace,
which holds for this very object alone.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from argand.capture.markers import Args, Kwargs
from argand.capture.objects import dynamic_layers
from argand.capture.objects.tracer import Tracer

_SEVEN_BITS: Final = 127  # with `reduce_range`, so that no sum of pairs leaves 16 bits
_SYMMETRIC: Final = (torch.per_tensor_affine, torch.per_channel_affine)


def _linear_dynamic(tracer: Tracer, operator: Any, args: Args, kwargs: Kwargs) -> Any:
    given = dict(zip(("X", "W_prepack", "reduce_range"), args, strict=False)) | kwargs
    x: Any = given.get("X")
    packed = given.get("W_prepack")
    plain = isinstance(x, torch.Tensor) and x.dtype is torch.float32 and not x.requires_grad
    # sums of 8 bits by 8 bits may be off in eager, where pairs are added in 16 bits
    if not plain or type(packed) is not torch.ScriptObject or not given.get("reduce_range"):
        return tracer.recorder.call_function(operator, args, kwargs)
    unpacked = _unpacked(packed)
    if unpacked is None or x.dim() == 0 or x.numel() == 0:
        return tracer.recorder.call_function(operator, args, kwargs)
    world = tracer.world
    world.identify(packed)
    world.keep_off_disk("a packed weight is unpacked while tracing")
    weight, scales, bias = (world.read(world.const(tensor), tensor) for tensor in unpacked)
    return tracer.call(dynamic_layers.linear_dynamic, (x, weight, scales, bias, _SEVEN_BITS), {})


def _unpacked(packed: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None:
    """The weight as int8, a scale for each row, and the bias; None where zeros are not 0."""
    with torch._C._DisableTorchDispatch(), torch.no_grad():  # real tensors, not fakes
        weight, bias = torch.ops.quantized.linear_unpack(packed)
        if weight.dtype is not torch.qint8 or weight.qscheme() not in _SYMMETRIC:
            return None
        if weight.qscheme() is torch.per_tensor_affine:
            zeros = torch.tensor(weight.q_zero_point())
            scales = torch.full((weight.shape[0],), weight.q_scale())
        else:
            zeros, scales = (
                weight.q_per_channel_zero_points(),
                weight.q_per_channel_scales().float(),
            )
        if zeros.any():
            return None
        bias = torch.zeros(weight.shape[0]) if bias is None else bias.detach()
        return weight.int_repr(), scales, bias


RULES: Final[dict[str, Any]] = {"quantized::linear_dynamic": _linear_dynamic}
