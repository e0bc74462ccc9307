"""runtime.bindings: by which function of torch's an operator of a plan is called.

In: an operator of torch. Out: a C function that takes the operator's arguments and gives its results.

An operator's own function (`_op`) packs its arguments into boxes that know their types. The function
that Python programs call (`torch.sort`) does not, and costs 1 to 3 us less a call (topk 5.8 -> 3.6 us,
cumsum 3.9 -> 2.5 us); but it chooses among the overloads of its name by its arguments. So it serves
where the schemas leave it no choice, and `_op` elsewhere.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import torch
from torch._ops import OpOverload

# Where torch keeps the functions under `torch`, `torch.nn.functional`, `torch.linalg` ...
_HOMES: Final = (
    torch._C._VariableFunctions,
    torch._C._nn,
    torch._C._linalg,
    torch._C._fft,
    torch._C._special,
)
_SIZES: Final = frozenset({"int", "Optional[int]", "List[int]", "Optional[List[int]]"})
_NAMES: Final = frozenset({"str", "Optional[str]", "List[str]", "Optional[List[str]]"})


@functools.cache
def quickest(op: OpOverload) -> Callable[..., Any]:
    """The C function that runs `op` with the least work around it."""
    taken = op._schema.arguments
    if op.namespace != "aten" or any(map(_is_written, taken)) or any(map(_differs, taken)):
        return op._op
    name = op._schema.name.removeprefix("aten::")
    for other in torch._C._jit_get_schemas_for_operator(op._schema.name):
        if other.overload_name != op._schema.overload_name and not _is_apart(op._schema, other):
            return op._op
    found = (getattr(home, name, None) for home in _HOMES)
    return next((function for function in found if function is not None), op._op)


def _differs(argument: Any) -> bool:
    """Whether Python's functions take another default: the device that a program has set, no reduction."""
    return argument.name in ("device", "reduction")


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _is_apart(schema: Any, other: Any) -> bool:
    """Whether no call that fits the one schema fits the other: outputs to write to, no tensor, names."""
    ours, theirs = schema.arguments, other.arguments
    if any(each.kwarg_only and _is_written(each) for each in theirs):
        return True
    if ours and str(ours[0].type) == "Tensor" and not (theirs and "Tensor" in str(theirs[0].type)):
        return True
    return any(
        str(our.type) in _SIZES and str(their.type) in _NAMES and not their.has_default_value()
        for our, their in zip(ours, theirs, strict=False)
    )
