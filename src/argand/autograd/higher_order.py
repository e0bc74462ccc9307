"""autograd.higher_order: the backward of a program as a program that can be differentiated again.

``create_graph=True`` needs gradients with a history. They are what eager would compute: the forward
runs again on the saved inputs, torch's engine differentiates it with ``create_graph``, and that whole
is traced and compiled like any other program, so its own backward exists too, to any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch

from argand.autograd.outputs import Traced, read_effects, state_of
from argand.autograd.programs import Program
from argand.autograd.recording import run_engine
from argand.autograd.runtime import Asked
from argand.autograd.trace import ambient_autocast


def run_eagerly(program: Program, *values: Any) -> Sequence[Any]:
    """A program on real tensors: for what cannot be traced."""
    nobody = SimpleNamespace(stack_trace=None, line_book=None, cut=False, foreign=False)
    return program(nobody, list(values))  # type: ignore[arg-type]


def gradient_program(program: Program, traced: Traced, asked: Asked) -> Program:
    """(primals, tangents) -> gradients of the traced program's differentiable inputs; None for those not wanted.

    Only through the results whose tangents are there: a zero for another one, times an infinite derivative, is NaN.
    """
    count = len(traced.inputs)
    written_inputs = {mutation.index for mutation in traced.effects.mutations}

    def gradients(recorder: Any, inputs: list[Any]) -> Sequence[Any]:
        primals, tangents = inputs[:count], inputs[count:]
        # the writes of the forward were done once; here they go to copies
        given = [x.clone() if i in written_inputs else x for i, x in enumerate(primals)]
        before = [state_of(value) for value in given]

        def written(value: torch.Tensor) -> bool:
            return any(value is given[index] for index in written_inputs)

        with torch.enable_grad():
            with ambient_autocast(traced.autocast):
                outputs = program(recorder, given)
            effects = read_effects(given, before, list(outputs), written, lambda base, view: ())
            results = effects.results(given)
            targets = {
                bit: primals[i]
                for bit, i in enumerate(traced.differentiable)
                if asked.gradients >> bit & 1
            }
            chosen = [
                results[k] for bit, k in enumerate(traced.tangents) if asked.tangents >> bit & 1
            ]
            made = run_engine(chosen, tangents, list(targets.values()), create_graph=True)
            found = dict(zip(targets, made, strict=True))
            return [found.get(bit) for bit in range(len(traced.differentiable))]

    return gradients
