"""capture.rules.numbers: builtins that ask a number, or what stands for one, for a method of its class.

In: arguments of `abs`, `round`, `divmod` and the like. Out: what a Python method gives, interpreted; a node for a tensor;
otherwise C code runs for real.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Final

import torch

from argand.capture.markers import Args, Kwargs
from argand.capture.objects import callbacks, operate
from argand.capture.objects.methods import python_method
from argand.capture.objects.tracer import Tracer
from argand.capture.outside import real
from argand.capture.outside.arrays import KINDS
from argand.capture.rules.harmless import call_harmless

_DIVMOD: Final = (divmod, "__divmod__", "__rdivmod__", "")


def _one(function: Callable[..., Any], method: str) -> Callable[..., Any]:
    """The rule for a function of one number, which has a method for it."""

    def rule(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
        if args and isinstance(args[0], torch.Tensor):
            return tracer.recorder.call_function(function, args, kwargs)
        if args and type(args[0]) in KINDS:
            return tracer.arrays.unary(tracer, function, args[0])
        found = python_method(tracer, args[0], method) if args else None
        if found is not None:
            return tracer.call(found, args, kwargs)
        return call_harmless(tracer, function, args, kwargs)

    return rule


def _rounded(function: Callable[..., Any], method: str) -> Callable[..., Any]:
    """The same for `math.floor` and its kind: what they do with tensors and arrays is Python's."""
    ask = _one(function, method)

    def rule(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
        if len(args) == 1 and callbacks.is_object_with(tracer, args[0], method):
            return ask(tracer, args, kwargs)
        return call_harmless(tracer, function, args, kwargs)

    return rule


def _index(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
    kind: Any = type(args[0]) if args else None
    if kind is not None and issubclass(kind, int) and len(args) == 1:
        # its value, whatever `__index__` of its class says
        return real.call(operator.index, args, kwargs)
    return _one(operator.index, "__index__")(tracer, args, kwargs)


def _two(function: Callable[..., Any], row: operate.OperatorRow) -> Callable[..., Any]:
    """The rule for `divmod` and `pow`: operators, if an operand is of a class with methods for them."""

    def rule(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
        tensors = any(isinstance(value, torch.Tensor) for value in args)
        own = any(
            callbacks.is_object_with(tracer, value, name) for value in args for name in row[1:3]
        )
        if own and len(args) == 2 and not tensors and not kwargs:
            return operate.binary(tracer, row, *args)
        return call_harmless(tracer, function, args, kwargs)

    return rule


RULES: Final[dict[Any, Any]] = {
    abs: _one(abs, "__abs__"),
    round: _one(round, "__round__"),
    operator.neg: _one(operator.neg, "__neg__"),
    operator.pos: _one(operator.pos, "__pos__"),
    operator.index: _index,
    math.floor: _rounded(math.floor, "__floor__"),
    math.ceil: _rounded(math.ceil, "__ceil__"),
    math.trunc: _rounded(math.trunc, "__trunc__"),
    divmod: _two(divmod, _DIVMOD),
    pow: _two(pow, operate.BINARY["**"]),
}
