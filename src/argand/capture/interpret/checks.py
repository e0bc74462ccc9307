"""capture.interpret.checks: `assert` and `if ...: raise` on what only the graph computes.

In: a branch on a tensor or a pending number where one of the two ways raises. Out: the other one, with a note of what the
trace relied on (the journal's `checks`), of which `write.checks` makes statements.
"""

from __future__ import annotations

import torch

from argand.bytecode import Instruction
from argand.capture.interpret.frame import Frame
from argand.capture.objects import operate
from argand.capture.record import items
from argand.capture.record.pending import Pending
from argand.capture.sizes.values import Claim


def branch(frame: Frame, ins: Instruction, jumps: bool) -> bool:
    """The truth of the top of the stack, for an instruction that jumps when it is `jumps`."""
    tracer, value = frame.tracer, frame.stack[-1]
    if type(value) in (Claim, Pending, torch.Tensor) and not tracer.torch.entered:
        on, off = _raises(frame, ins.target or 0), _raises(frame, ins.index + 1)
        if on != off:
            number = items.item(tracer.recorder, value) if type(value) is torch.Tensor else value
            tracer.journal.checks.append((number, jumps == off, frame.count))
            return jumps == off
    return operate.truth(tracer, value)


def _raises(frame: Frame, index: int) -> bool:
    """Whether the program, once there, can only raise."""
    for _, ins in frame.program[index:]:
        if ins.op == "raise_varargs":
            return True
        if ins.target is not None or ins.op in ("return_value", "yield_value", "reraise"):
            return False
    return False
