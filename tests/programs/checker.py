"""Runs a program in eager and compiled, twice each, with gradients of two orders; tells what differs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import argand
from tests.programs.generator import Program, namespace
from tools.answers import TOLERANCES, Answer, differences, observe

# relative: a few units in the last place, or rounding would take them back
_NOISE = {torch.float64: 1e-14, torch.float32: 1e-6, torch.float16: 5e-3, torch.bfloat16: 4e-2}
SHAKES = (7, 8)


def load(text: str) -> dict[str, Any]:
    """The functions of a program's text."""
    space = namespace()
    exec(compile(text, "<program>", "exec"), space)
    return space


def check(program: Program | str, options: dict[str, Any] | None = None) -> str | None:
    """What differs, or None."""
    text = program if isinstance(program, str) else program.text()
    space = load(text)
    function, make = space["program"], space["inputs"]
    backend = space["BACKEND"]
    compiled = argand.compile(
        function, backend=backend, dynamic=space["DYNAMIC"] or None, options=options
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call, seed in enumerate((0, 0, 1000)):
            found = _compare_call(function, compiled, lambda seed=seed: make(seed))
            if found is not None:
                return f"call {call}: {found}"
    return None


class Passed(TorchDispatchMode):
    """Notes the least precise type of what eager computes on the way: results are no better than that."""

    def __init__(self) -> None:
        super().__init__()
        self.least: torch.dtype | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an op, look at its results."""
        results = func(*args, **(kwargs or {}))
        for value in pytree.tree_leaves(results):
            if isinstance(value, torch.Tensor) and value.dtype in TOLERANCES:
                real = value.dtype.to_real()
                if self.least is None or TOLERANCES[real] > TOLERANCES[self.least]:
                    self.least = real
        return results


def _compare_call(
    function: Callable[..., Any], compiled: Callable[..., Any], make: Any
) -> str | None:
    eager, ours = _run(function, make()), _run(compiled, make())
    rows = told_of_both(eager, ours, (None, None), None)
    if rows:
        with Passed() as passed:
            _run(function, make())
        rows = told_of_both(eager, ours, (None, None), passed.least)
        for near in _nearly(function, make, passed.least) if rows else ():
            rows = [row for row in told_of_both(eager, ours, near, passed.least) if row in rows]
    return "; ".join(rows) or None


def told_of_both(
    eager: tuple[Answer, Answer],
    ours: tuple[Answer, Answer],
    near: tuple[Answer | None, Answer | None],
    least: torch.dtype | None,
) -> list[str]:
    """What differs in the answer and in the gradients, without what is chance."""
    first = told_of(eager[0], ours[0], near[0], least)
    second = told_of(eager[1], ours[1], near[1], least, strides=False)
    return [*first, *(f"gradients: {row}" for row in second)]


def _nearly(
    function: Callable[..., Any], make: Any, least: torch.dtype | None
) -> Iterator[tuple[Answer, Answer]]:
    """Eager's answers where chance decides otherwise: the last bits of inputs, the sign of a NaN."""
    for seed in SHAKES:
        yield _run(function, [shaken(x, least, seed) for x in make()])
    with OtherNans():
        yield _run(function, make())


class OtherNans(TorchFunctionMode):
    """Ops that see the sign of a NaN, which kernels choose freely, see the other one."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        bits = name == "view" and len(args) > 1 and isinstance(args[1], torch.dtype)
        if bits or name in ("signbit", "copysign", "copysign_"):
            args = [_turned(x) if isinstance(x, torch.Tensor) else x for x in args]
        return func(*args, **(kwargs or {}))


def _turned(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad(), torch._C.DisableTorchFunction():
        nan = x != x
        return torch.where(nan, -x, x) if bool(nan.any()) else x


def told_of(
    eager: Answer,
    ours: Answer,
    near: Answer | None,
    least: torch.dtype | None,
    *,
    strides: bool = True,
) -> list[str]:
    """What differs, without what is chance."""
    told = differences(eager, ours, strides=strides, exact=near, least=least)
    return (
        told
        if near is None
        else [text for text in told if not _is_chance(text, eager, near, least)]
    )


def _run(function: Callable[..., Any], inputs: list[torch.Tensor]) -> tuple[Answer, Answer]:
    torch.default_generator.manual_seed(0)  # the seed of all devices takes a millisecond
    leaves = [x for x in inputs if x.requires_grad]
    answer = observe(function, *inputs)
    if answer.error is not None:
        return answer, Answer(None, [], [])
    return answer, observe(lambda: gradients_of(answer.result, leaves))


def gradients_of(result: Any, leaves: list[torch.Tensor]) -> list[Any]:
    """First and second gradients of the tensors of a result."""
    results = [t for t in result if isinstance(t, torch.Tensor) and t.requires_grad]
    results = [t for t in results if t.grad_fn is not None]  # may raise, as a use of it does
    if not results or not leaves:
        return []
    first = _grads(results, leaves)
    again = [g for g in first if g is not None and g.requires_grad and not g.is_leaf]
    second = _grads(again, leaves) if again else []
    return [g.detach() if g is not None else None for g in (*first, *second)]


def _grads(results: list[torch.Tensor], leaves: list[torch.Tensor]) -> tuple[Any, ...]:
    total = sum(
        (t.abs() if t.is_complex() else t).double().mul(0.5 + k).sum()
        for k, t in enumerate(results)
    )
    return torch.autograd.grad(total, leaves, create_graph=True, allow_unused=True)


def shaken(x: torch.Tensor, least: torch.dtype | None, seed: int) -> torch.Tensor:
    """An input that is nearly the same: what changes much with it is no measure of us."""
    if x.dtype not in _NOISE:
        return x
    noise = max(_NOISE[x.dtype], _NOISE[least or x.dtype])
    with torch.no_grad():  # all of its memory: elements may share some
        memory = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage())
        random = torch.rand(
            memory.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
        )
        memory.copy_(memory.double() * (1 + noise * (random - 0.5)))
    return x


def _is_chance(text: str, eager: Answer, near: Answer, least: torch.dtype | None) -> bool:
    """Whether eager itself answers otherwise when its inputs change in the last bit."""
    if "values differ" not in text and "instead of" not in text:
        return False
    if near.error is not None or eager.error is not None:
        return False
    moved = differences(eager, near, strides=False, least=least)
    place = text.split(":")[0]
    return any(other.split(":")[0] == place and other.split(" ")[-1:] for other in moved)
