"""All that a tensor answers about itself without computing is answered for the user's tensor, not for its fake."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import argand

PRIVATE = {"_version", "_base", "_is_view", "_backward_hooks", "__dict__", "__len__", "_grad"}
ADDRESSES = {"data_ptr", "const_data_ptr", "storage", "untyped_storage", "tolist", "numpy"}
CHANGES = {"share_memory_", "requires_grad_", "retain_grad", "detach_", "set_", "resize_"}
ANSWERS = (bool, int, float, str, torch.dtype, torch.layout, torch.device, type(None))


def tensors() -> dict[str, torch.Tensor]:
    """Tensors that differ in what fakes do not tell."""
    base, leaf = torch.arange(12.0).view(3, 4), torch.ones(3, 4, requires_grad=True)
    with torch.inference_mode():
        inference = torch.ones(3, 4)
    retained, hooked, noted = leaf * 2, leaf.detach().requires_grad_(), torch.ones(3, 4)
    retained.retain_grad()
    hooked.grad = torch.ones(3, 4)
    noted.note = 5
    return {
        "plain": base.clone(),
        "view": base[1:],
        "steps": base[:, ::2],
        "leaf": leaf,
        "history": leaf * 2,
        "retained": retained,
        "gradient": hooked,
        "inference": inference,
        "shared": torch.ones(3, 4).share_memory_(),
        "expanded": torch.ones(1, 4).expand(3, 4),
        "parameter": torch.nn.Parameter(base.clone()),
        "buffer": torch.nn.Buffer(base.clone()),
        "conjugate": torch.ones(3, 4, dtype=torch.complex64).conj(),
        "negative": torch.ones(3, 4, dtype=torch.complex64).conj().imag,
        "written": base.clone().add_(1),
        "noted": noted,
        "empty": torch.empty(0, 4, dtype=torch.int8),
    }


def _told(answer: Any) -> Any:
    if isinstance(answer, dict):
        return {name: _told(value) for name, value in answer.items()}
    return repr(answer) if isinstance(answer, (*ANSWERS, tuple, list)) else type(answer).__name__


def _asked(function: Callable[..., Any], *args: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return _told(function(*args)[0])
        except Exception as error:
            return type(error).__name__


def _program(name: str) -> Callable[..., Any]:
    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[Any, torch.Tensor]:
        found = getattr(x, name)
        return (found() if callable(found) else found), y * 2

    return program


def _names() -> Iterator[str]:
    """Those whose answers are no tensors."""
    x = torch.ones(3, 4)
    for name in dir(torch.Tensor):
        if name in ADDRESSES | CHANGES or (name.startswith("_") and name not in PRIVATE):
            continue
        if name.endswith("_") and not name.startswith("_"):
            continue
        found = inspect.getattr_static(torch.Tensor, name)
        is_data = isinstance(found, property) or not callable(found)
        answer = _asked(_program(name), x.clone(), torch.ones(1))
        if is_data or answer in ("True", "False") or answer.lstrip("-").isdigit():
            yield name


@pytest.mark.parametrize("name", list(_names()))
def test_the_answer_is_the_users(name: str) -> None:
    program = _program(name)
    compiled = argand.compile(program, backend="eager")
    for kind, given in tensors().items():
        wanted = _asked(program, given, torch.ones(1))
        assert _asked(compiled, given, torch.ones(1)) == wanted, kind


def test_whether_two_tensors_lie_in_one_place() -> None:
    compiled = argand.compile(lambda a, b, x: x * (1 if a.is_set_to(b) else 2), backend="eager")
    a = torch.ones(2)
    for b in (torch.ones(2), a.detach(), a, a[:1]):
        assert compiled(a, b, torch.ones(())).item() == (1 if a.is_set_to(b) else 2)


def test_functions_that_ask() -> None:
    compiled = argand.compile(lambda a, x: x * (1 if torch.is_inference(a) else 2), backend="eager")
    for given in (tensors()["plain"], tensors()["inference"], tensors()["leaf"]):
        assert compiled(given, torch.ones(())).item() == (1 if given.is_inference() else 2)
