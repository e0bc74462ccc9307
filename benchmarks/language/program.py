"""benchmarks.language.program: the registry. In: decorated functions. Out: ``PROGRAMS``, by "area/name"."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

# argand.compile, torch.compile, or the function that gives back its argument
Compile: TypeAlias = Callable[..., Any]
Run: TypeAlias = Callable[[Compile], Any]
Inputs: TypeAlias = Callable[[], Sequence[Any]]

NOT_AREAS = frozenset({"__init__", "__main__", "program", "judge", "table"})


@dataclass(frozen=True)
class Program:
    """A small program."""

    area: str
    name: str
    run: Run  # what it returns under a compiler must equal what it returns in eager
    reason: str  # why it is not one graph although torch.compile's is; empty: it must be
    rival: bool  # False: torch.compile has nothing like it (the row is ours alone)


PROGRAMS: dict[str, Program] = {}


def _register(function: Callable[..., Any], run: Run, reason: str, rival: bool) -> None:
    area = function.__module__.rpartition(".")[2]
    key = f"{area}/{function.__name__}"
    if key in PROGRAMS:
        raise KeyError(f"two programs are called {key}")
    PROGRAMS[key] = Program(area, function.__name__, run, reason, rival)


def scenario(function: Run | None = None, *, reason: str = "", rival: bool = True) -> Any:
    """Register a function of the compiler, which returns what is to be compared."""

    def decorate(function: Run) -> Run:
        _register(function, function, reason, rival)
        return function

    return decorate if function is None else decorate(function)


def program(
    *inputs: Inputs,
    train: bool = False,
    dynamic: bool | None = None,
    calls: int = 2,
    reason: str = "",
    rival: bool = True,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a plain function, called ``calls`` times with what each of ``inputs`` makes.

    With ``train`` the floating tensors among the inputs get gradients. Inputs are compared after the calls too.
    """
    makers = inputs or (square,)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(compile_: Compile) -> list[Any]:
            compiled = compile_(function, dynamic=dynamic)
            return [_call(compiled, make, train) for make in makers for _ in range(calls)]

        _register(function, run, reason, rival)
        return function

    return decorate


def eager(function: Any = None, **keywords: Any) -> Any:
    """A compiler that compiles nothing."""
    return (lambda given: given) if function is None else function


def square() -> tuple[Tensor]:
    """The usual input: a 4 by 4 tensor."""
    return (torch.randn(4, 4),)


def two() -> tuple[Tensor, Tensor]:
    """Two tensors of the same shape."""
    return torch.randn(4, 4), torch.randn(4, 4)


def rows(*lengths: int) -> tuple[Inputs, ...]:
    """Inputs of several lengths: what a program with open sizes is called with."""
    return tuple((lambda n=n: (torch.randn(n, 4),)) for n in lengths)


def _call(function: Callable[..., Any], make: Inputs, train: bool) -> Any:
    torch.manual_seed(0)
    inputs = list(make())
    floats = [
        x for x in inputs if isinstance(x, Tensor) and (x.is_floating_point() or x.is_complex())
    ]
    if train:
        for x in floats:
            x.requires_grad_()
    try:
        result = function(*inputs)
    except Exception as error:
        if type(error).__module__.startswith(("argand", "torch._dynamo")):
            raise  # the compiler's own
        return type(error).__name__, [x.detach() for x in floats]
    if train:
        loss = _loss(result)
        if loss.requires_grad:
            loss.backward()
    return result, inputs, [x.grad for x in floats]


def _loss(result: Any) -> Tensor:
    """A number that depends on every result that has a gradient."""
    if isinstance(result, Tensor):
        return (result.abs() ** 2).sum() if result.requires_grad else torch.zeros(())
    if isinstance(result, dict):
        result = list(result.values())
    return (
        sum((_loss(item) for item in result), torch.zeros(()))
        if isinstance(result, list | tuple)
        else torch.zeros(())
    )


def load(area: str = "") -> dict[str, Program]:
    """Import the areas; the programs of one, or all."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if module.name not in NOT_AREAS and area in ("", module.name):
            importlib.import_module(f"benchmarks.language.{module.name}")
    return {key: program for key, program in PROGRAMS.items() if area in ("", program.area)}
