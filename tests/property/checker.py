"""Run a program eagerly and compiled, and compare everything a caller can see.

Three calls each: the first two with equal inputs, the third with other numbers, another flag and other tensors. Each run
has a module of its own, whose globals live through its three calls. What is compared: results, exceptions with their
lines, the arguments after the call, and the globals; with the identity and
the aliasing of objects; numbers bit for bit if the backend runs the graph as it is.
"""

from __future__ import annotations

import re
import traceback
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

import argand

from .program_generator import Program

GLOBALS = ("COUNTER", "SCALE", "LOG", "SETTINGS", "BUFFER", "LAYER")
FILE = "<program>"


class Picture:
    """A comparable picture of a group of objects: values, types, and which of them are the same object."""

    def __init__(self, *, exact: bool) -> None:
        self.exact = exact
        self.seen: dict[int, int] = {}
        self.storages: dict[int, int] = {}
        self.kept: list[object] = []

    def of(self, value: object) -> object:
        if value is None or isinstance(value, bool | int | str | type):
            return (type(value).__name__, repr(value))
        if isinstance(value, float):
            return ("float", repr(value) if self.exact else round(value, 3))
        if id(value) in self.seen:
            return ("same as", self.seen[id(value)])
        self.seen[id(value)] = len(self.seen)
        self.kept.append(value)
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, dict):
            return ("dict", [(self.of(k), self.of(v)) for k, v in value.items()])
        if isinstance(value, list | tuple):
            return (type(value).__name__, [self.of(v) for v in value])
        if isinstance(value, set | frozenset):
            return ("set", sorted(map(repr, value)))
        if hasattr(value, "getvalue"):
            # a printed tensor names its history, which is the backend's own
            text = value.getvalue()
            return ("buffer", text if self.exact else re.sub(r"grad_fn=<\w+>", "grad_fn", text))
        if hasattr(value, "__dict__"):
            return (type(value).__name__, self.of(vars(value)))
        return (type(value).__name__, "opaque")

    def _tensor(self, value: torch.Tensor) -> object:
        grad = self.of(value.grad) if value.is_leaf else None
        facts = (str(value.dtype), tuple(value.shape), value.requires_grad, grad)
        storage = value.untyped_storage().data_ptr() if value.numel() else 0
        place = self.storages.setdefault(storage, len(self.storages))
        layout = (value.stride(), value.storage_offset(), place, value.is_leaf)
        plain = value.detach()
        if not self.exact:
            return ("tensor", facts, layout, Close(plain.clone()))
        return ("tensor", facts, layout, [repr(v) for v in plain.reshape(-1).tolist()])


class Close:
    """Tensors of equal shape, equal up to rounding."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Close) and torch.allclose(
            self.tensor, other.tensor, rtol=1e-3, atol=1e-4, equal_nan=True
        )

    __hash__ = None

    def __repr__(self) -> str:
        return repr(self.tensor.tolist())


def run_graph(module: torch.fx.GraphModule, inputs: list[object], **options: object) -> Callable:
    """The backend `eager`, as a function: it takes options without a warning."""
    return module.forward


def compile_with(backend: str) -> Callable:
    """Compile with internal errors coming out, instead of falling back to eager with a warning."""

    def wrap(function: Callable) -> Callable:
        argand.reset()
        chosen = run_graph if backend == "eager" else backend
        return argand.compile(function, backend=chosen, options={"strict": True})

    return wrap


def load(program: Program) -> types.ModuleType:
    module = types.ModuleType("generated_program")
    exec(compile(program.source, FILE, "exec"), module.__dict__)
    return module


def inputs(module: types.ModuleType, seed: int, variant: int) -> tuple[object, ...]:
    """Fresh arguments. Variant 1 differs in every argument from variant 0, and half the time in shape."""
    generator = torch.Generator().manual_seed(seed * 2 + variant)
    width = 3 + (variant if seed % 2 else 0)
    make = lambda *shape: torch.randint(-4, 5, shape, generator=generator) * 0.5
    x, y = make(2, width), make(width)
    if seed % 5 == 0:
        y.requires_grad_()
    box = module.Box(5 + variant, make(width))
    box.items = [1, 2, 3][variant:]
    table = {"a": 1, "b": variant}
    return (x, y, 3 - 2 * variant, 0.5 + variant, variant == 0, [4, 1, 3 - variant], table, box)


@dataclass(frozen=True)
class Call:
    outcome: object
    world: object
    lines: tuple[int, ...]


def error_lines(error: BaseException) -> tuple[int, ...]:
    frames = traceback.extract_tb(error.__traceback__)
    return tuple(frame.lineno or 0 for frame in frames if frame.filename == FILE)


def tensors_in(value: object) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)


def backpropagate(result: object) -> str | None:
    """Fill the gradients of what the result was made of. Refusals are compared by their type."""
    roots = [tensor.sum() for tensor in tensors_in(result) if tensor.grad_fn is not None]
    if not roots:
        return None
    try:
        torch.stack(roots).sum().backward()
    except RuntimeError as error:
        return type(error).__name__
    return "backward"


def run(program: Program, wrap: Callable, *, exact: bool) -> list[Call]:
    module = load(program)
    function = wrap(module.program)
    calls = []
    for variant in (0, 0, 1):
        arguments = inputs(module, program.seed, variant)
        picture = Picture(exact=exact)
        lines: tuple[int, ...] = ()
        try:
            result = function(*arguments)
            backward = backpropagate(result) if program.seed % 2 else None
            outcome = ("returned", picture.of(result), backward)
        except Exception as error:
            outcome = ("raised", type(error).__name__, str(error))
            lines = error_lines(error)
        world = {name: getattr(module, name) for name in GLOBALS}
        calls.append(Call(outcome, (picture.of(arguments), picture.of(world)), lines))
    return calls


def differences(program: Program, wrap: Callable, *, exact: bool = True) -> str | None:
    """What the compiled program does differently, or None. Errors of the compiler itself are differences."""
    expected = run(program, lambda function: function, exact=exact)
    found = run(program, wrap, exact=exact)
    for number, (want, got) in enumerate(zip(expected, found, strict=True), 1):
        for part in ("outcome", "world", "lines"):
            if getattr(want, part) != getattr(got, part):
                return f"call {number}, {part}:\n  eager    {getattr(want, part)}\n  compiled {getattr(got, part)}"
    return None


def uses_unknown_names(program: Program) -> bool:
    """Whether the program, run eagerly, stumbles over a variable that is not there."""
    calls = run(program, lambda function: function, exact=True)
    return any(call.outcome[1] in ("NameError", "UnboundLocalError") for call in calls)
