"""capture.objects.dynamic_layers: `quantized::linear_dynamic` in terms of plain operators.

Interpreted in place of the operator, whose packed weight no graph can take. The numbers are those of
FBGEMM: x as integers from 0 to `most` with one scale and one zero for all of it, found anew at each
call; products of integers, exact; one rounding for the scales and one for the bias.
"""

from __future__ import annotations

import torch
from torch import Tensor

_LEAST = 6.099999882280827e-05  # FBGEMM's smallest scale: 6.1e-5 as a float
_OF_NOTHING = 0.1  # the scale of zeros


def linear_dynamic(x: Tensor, weight: Tensor, scales: Tensor, bias: Tensor, most: int) -> Tensor:
    """`x @ weight.T * scales + bias`, x rounded to `most` steps, weight of int8."""
    low, high = x.amin().clamp(max=0), x.amax().clamp(min=0)
    step = (high.double() - low.double()) / most
    nothing = (step.float() == 0) | (1 / step.float()).isinf()
    step = torch.where(nothing, _OF_NOTHING, step)
    small = step < _LEAST
    raised = torch.where(high == 0, -_LEAST * most, low * (_LEAST / step.float()))
    low = torch.where(small & (low != 0), raised, low)
    step = torch.where(small, _LEAST, step)
    zero = (-low.double() / step).clamp(0, most).round().float()
    scale = step.float()
    rows = x.flatten(0, -2) if x.dim() > 1 else x[None]
    whole = ((rows * (1 / scale)).round() + zero).clamp(0, most) - zero
    sums = torch._int_mm(whole.nan_to_num(0.0).to(torch.int8), weight.t()).float()
    # a NaN in x makes the scale one, and so all results
    return (sums * (scale * scales) + bias).view(*x.shape[:-1], weight.shape[0])
