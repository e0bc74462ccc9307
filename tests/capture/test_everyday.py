"""What strangers' programs call of Python and torch, in one graph: copies, getters, shapes, stacks of contexts."""

from __future__ import annotations

import collections
import contextlib
import copy
import operator
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

import argand


class State(NamedTuple):
    """A record."""

    hidden: Any
    step: int = 0


def texts(x: Tensor) -> Any:
    """Static methods of C classes."""
    return x + 1, "abc".translate(str.maketrans({"a": "b"})), bytes.maketrans(b"a", b"c")


def copies(x: Tensor) -> Any:
    """Copies of records and containers."""
    deep = copy.deepcopy({"set": {1, 2}, "state": State(3, 4)})
    shallow = copy.copy(State(x * 2, 1))
    window = copy.copy(collections.deque([1, 2], maxlen=3))
    groups = copy.deepcopy(collections.defaultdict(list, a=[1]))
    groups["b"].append(2)
    return shallow, deep, window, dict(groups), copy.deepcopy(collections.Counter("aab"))


def getters(x: Tensor) -> Any:
    """What the operator module makes."""
    shape = operator.attrgetter("shape", "T.dtype")(x)
    first, last = operator.itemgetter(0, -1)(x)
    total = operator.methodcaller("sum", 0, keepdim=True)(x)
    return first + last + total, shape, operator.itemgetter("a")({"a": 1})


def attention(x: Tensor) -> Any:
    """A choice of kernels, and what was chosen before."""
    q = x[None, None]
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]):
        chosen = torch.nn.attention._cur_sdpa_kernel_backends()
        return F.scaled_dot_product_attention(q, q, q), SDPBackend.MATH in chosen


def stacks(x: Tensor) -> Any:
    """An ExitStack asks what is being handled."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        return x + 1


def is_same(a: Any, b: Any) -> bool:
    """Whether two results are equal, and of the same types."""
    if isinstance(b, Tensor):
        return isinstance(a, Tensor) and bool(torch.allclose(a, b))
    if isinstance(b, tuple | list | collections.deque):
        return type(a) is type(b) and len(a) == len(b) and all(map(is_same, a, b))
    return type(a) is type(b) and bool(a == b)


@pytest.mark.parametrize("program", [texts, copies, getters, attention, stacks])
def test_one_graph(program: Callable[[Tensor], Any]) -> None:
    x = torch.randn(4, 4)
    compiled = argand.compile(program, fullgraph=True)
    for _ in range(2):
        assert is_same(compiled(x), program(x))


def shapes(x: Tensor) -> Any:
    """Arithmetic of shapes."""
    shape = x.shape[:-1] + (2, x.shape[-1] // 2)
    others = (1, *x.size()) + x.size()[1:] * 2
    kinds = [isinstance(shape, torch.Size), isinstance((1,) + x.shape, torch.Size)]
    return x.view(shape), shape.numel(), others, kinds, 2 * x.shape


def test_shapes_with_open_sizes_stay_shapes() -> None:
    compiled = argand.compile(shapes, fullgraph=True, dynamic=True)
    for n in (3, 5):
        x = torch.randn(n, 4)
        assert is_same(compiled(x), shapes(x))


def test_what_a_caller_handles_is_seen() -> None:
    """`sys.exc_info()` that found nothing is asked again at each call."""

    def program(x: Tensor) -> Tensor:
        return x + (1 if sys.exc_info()[1] is None else 2)

    compiled = argand.compile(program)
    x = torch.zeros(2)
    for _ in range(2):
        assert compiled(x).tolist() == [1, 1]
        try:
            raise ValueError
        except ValueError:
            assert compiled(x).tolist() == [2, 2]
