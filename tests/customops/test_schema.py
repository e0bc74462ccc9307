"""Schema inference: every row of features.md 2b, compared with torch.library.infer_schema."""

from collections.abc import Sequence
from typing import List, Optional, Tuple

import pytest
import torch
from torch import Tensor
from torch.types import Number

from argand.customops.errors import SchemaError
from argand.customops.schema import infer_schema


def everything(
    a: Tensor,
    b: Optional[Tensor],
    c: int,
    d: Optional[int],
    e: float,
    f: bool,
    g: str,
    h: Number,
    i: torch.dtype,
    j: torch.device,
    k: Sequence[Tensor],
    l: List[int],
    m: list[float],
    n: Sequence[bool],
    o: Sequence[Optional[Tensor]],
    p: Optional[List[int]],
    q: "Optional[Sequence[float]]",
) -> Tuple[Tensor, List[Tensor], int, float, bool, Number]: ...


def defaults(
    x: Tensor,
    a: int = 2,
    b: float = 0.5,
    c: bool = True,
    d: str = "word",
    e: Optional[int] = None,
    f: torch.dtype = torch.float64,
    g: torch.device = torch.device("cpu"),
    *,
    h: int = 3,
) -> Tensor: ...


def nothing(x: Tensor) -> None: ...


def single(x: Tensor) -> Tuple[Tensor]: ...


@pytest.mark.parametrize("function", [everything, defaults, nothing])
@pytest.mark.parametrize("mutates", [(), ("x",), "unknown"])
def test_same_as_torch(function, mutates):
    if mutates == ("x",) and function is everything:
        mutates = ("a", "b", "k")
    expected = torch.library.infer_schema(function, mutates_args=mutates)
    assert infer_schema(function, mutates_args=mutates) == expected


def no_annotation(x): ...
def no_return(x: Tensor): ...
def positional_only(x: Tensor, /) -> Tensor: ...
def variadic(*x: Tensor) -> Tensor: ...
def keywords(**x: Tensor) -> Tensor: ...
def tuple_input(x: Tuple[int, int]) -> Tensor: ...
def unsupported(x: dict) -> Tensor: ...
def bad_return(x: Tensor) -> dict: ...
def bad_default(x: Tensor, n: list[int] = [1]) -> Tensor: ...
def unknown_name(x: "Missing") -> Tensor: ...


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (no_annotation, "'x' has no annotation"),
        (no_return, "no return annotation"),
        (positional_only, "positional-only"),
        (variadic, "variadic"),
        (keywords, "variadic"),
        (tuple_input, "use list"),
        (unsupported, "unsupported annotation.*\n.*\n.*supported: Tensor"),
        (bad_return, "return annotation"),
        (bad_default, "default"),
        (unknown_name, "from __future__ import annotations"),
    ],
)
def test_errors_say_what_and_where(function, words):
    with pytest.raises(SchemaError, match=words) as caught:
        infer_schema(function)
    assert "test_schema.py" in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("mutates", "words"),
    [("x", "is the string"), (("y",), "not a parameter"), (("a",), "not a tensor")],
)
def test_mutates_args_errors(mutates, words):
    with pytest.raises(SchemaError, match=words):
        infer_schema(defaults, mutates_args=mutates)


def test_one_tuple():
    assert infer_schema(single).endswith("-> (Tensor)")
