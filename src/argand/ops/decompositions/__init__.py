"""ops.decompositions: composite ops in terms of pointwise ops, reductions and views.

In: an OpOverload.  Out: a Python function with the op's signature, numerically equal to eager's
kernel. The native compiler fuses what comes out; ops that have a good kernel (matrix products,
convolution, sorting) are not decomposed. Shapes and dtypes are eager's; strides of the result may
differ where eager keeps an unusual memory order. A function may answer ``NotImplemented`` for
arguments it does not cover (complex variance, ...): then the op stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Final, final

import torch
from typing_extensions import override

from argand.ops.decompositions import foreach, losses, norms, pointwise, reductions, shapes

_BY_NAME: Final[Mapping[str, Callable[..., Any]]] = {
    f"aten::{name}": function
    for family in (pointwise, reductions, norms, losses, shapes, foreach)
    for name, function in family.TABLE.items()
}


@final
class _Decompositions(Mapping[Any, Callable[..., Any]]):
    """A mapping by OpOverload that looks no op up in torch before it is asked for it."""

    @override
    def __getitem__(self, func: Any) -> Callable[..., Any]:
        return _BY_NAME[func.name()]

    @override
    def __iter__(self) -> Iterator[Any]:
        for name in _BY_NAME:
            packet, _, overload = name.removeprefix("aten::").partition(".")
            yield getattr(getattr(torch.ops.aten, packet), overload or "default")

    @override
    def __len__(self) -> int:
        return len(_BY_NAME)

    @override
    def __contains__(self, func: object) -> bool:
        return isinstance(func, torch._ops.OpOverload) and func.name() in _BY_NAME


@cache
def decompositions() -> Mapping[Any, Callable[..., Any]]:
    """All our decompositions, by OpOverload."""
    return _Decompositions()
