"""ops.decompositions.foreach: ops over lists of tensors, one tensor at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from argand.ops.foreach import OVERLOADS, UNARY

# The single-tensor op where it takes tensors and numbers alike under another name.
_SINGLE: Final[Mapping[str, str]] = {"maximum": "clamp_min", "minimum": "clamp_max"}


def _items(args: Sequence[Any], place: int) -> list[Any]:
    return [value[place] if isinstance(value, list | tuple) else value for value in args]


def _each(name: str) -> Callable[..., list[Tensor]]:
    method = getattr(Tensor, _SINGLE.get(name, name))
    return lambda self, *args, **kwargs: [
        method(t, *_items(args, i), **kwargs) for i, t in enumerate(self)
    ]


def _each_scaled(name: str) -> Callable[..., list[Tensor]]:
    method = getattr(Tensor, name)

    def run(
        self: Sequence[Tensor], one: Sequence[Tensor], two: Sequence[Tensor], value: Any = 1
    ) -> list[Tensor]:
        values = value if isinstance(value, list | tuple) else [value] * len(self)
        return [method(t, one[i], two[i], value=values[i]) for i, t in enumerate(self)]

    return run


def _in_place(run: Callable[..., list[Tensor]]) -> Callable[..., None]:
    def run_and_forget(*args: Any, **kwargs: Any) -> None:
        run(*args, **kwargs)

    return run_and_forget


def _named(name: str) -> Callable[..., list[Tensor]]:
    return _each_scaled(name) if name.startswith("addc") else _each(name)


def _norms(self: Sequence[Tensor], ord: Any = 2, dtype: Any = None) -> list[Tensor]:
    return [torch.linalg.vector_norm(tensor, ord, dtype=dtype) for tensor in self]


def _in_place_single(name: str) -> str:
    return _SINGLE.get(name, name) + "_"


_NAMES: Final = [
    *((name, f"_foreach_{name}{{}}") for name in UNARY.split()),
    *(
        (name, f"_foreach_{name}{{}}.{kind}")
        for name, kinds in OVERLOADS.items()
        for kind in kinds.split()
    ),
]

TABLE: Final[Mapping[str, Callable[..., Any]]] = {
    **{full.format(""): _named(name) for name, full in _NAMES},
    **{full.format("_"): _in_place(_named(_in_place_single(name))) for name, full in _NAMES},
    "_foreach_pow.ScalarAndTensor": lambda self, exponent: [
        torch.pow(self, power) for power in exponent
    ],
    "_foreach_norm.Scalar": _norms,
    "_foreach_zero_": _in_place(_each("zero_")),
    "_foreach_copy_": _in_place(_each("copy_")),
}
