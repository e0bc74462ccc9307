"""backends.other_sizes: code of a foreign compiler for open sizes, tried at the first call with others.

A function written for one size may read it from its example inputs and build it in, unnoticed: its code would be wrong at
the next. In: a graph and the compiled code. Out: code that at its first call with sizes other than those of the example
also runs the graph as it is, on copies, and compares results and written inputs. Where they differ, and do not for the
sizes of the example (a backend may compute something else on purpose), a warning says so and the graph runs in eager
from then on.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, final

import torch

from argand.protocol import CompiledGraph
from argand.support.dataclass import replace

_ROUNDED = {torch.float16: 2e-2, torch.bfloat16: 5e-2, torch.float32: 1e-3, torch.complex64: 1e-3}
_TEXT = (
    "backend {name!r} gave other results than its graph for sizes that differ from its example inputs, so the graph runs "
    'in eager. Register it with register_backend(..., open_sizes="never"), or compile with dynamic=False'
)


def tried(
    name: str, graph: Callable[..., Any], compiled: CompiledGraph, example_inputs: Sequence[Any]
) -> CompiledGraph:
    """The same code, which proves itself once."""
    return replace(
        compiled, call=_Tried(name, graph, compiled.takes_inputs, example_inputs), boxed=False
    )


@final
class _Tried:
    """Compiled code, and what is known of it."""

    def __init__(
        self,
        name: str,
        graph: Callable[..., Any],
        call: Callable[..., Any],
        example_inputs: Sequence[Any],
    ) -> None:
        self._name, self._graph, self._call = name, graph, call
        self._sizes, self._examples = _sizes(example_inputs), tuple(map(_described, example_inputs))
        self._chosen: Callable[..., Any] | None = None

    def __call__(self, *inputs: Any) -> Any:
        """Run it."""
        if self._chosen is not None:
            return self._chosen(*inputs)
        if _sizes(inputs) == self._sizes:
            return self._call(*inputs)
        return self._first(inputs)

    def _first(self, inputs: tuple[Any, ...]) -> Any:
        """The first call with other sizes."""
        before, copies, seed = _copied(inputs), _copied(inputs), torch.get_rng_state()
        with torch.no_grad():
            expected = _or_error(self._graph, copies)
        torch.set_rng_state(seed)
        found = _or_error(self._call, inputs)
        if isinstance(expected, Exception):  # nothing to compare with
            return _raised(found)
        same = not isinstance(found, Exception) and _alike((*expected, *copies), (*found, *inputs))
        if same or (not isinstance(found, Exception) and self._differs_anyway(seed)):
            self._chosen = self._call
            return found
        warnings.warn(_TEXT.format(name=self._name), stacklevel=3)
        with torch.no_grad():
            for given, old in zip(inputs, before, strict=True):
                if isinstance(given, torch.Tensor) and not torch.equal(given, old):
                    given.data.copy_(old)
        torch.set_rng_state(seed)
        self._chosen = self._graph
        return self._graph(*inputs)

    def _differs_anyway(self, seed: torch.Tensor) -> bool:
        """Whether the code gives other results than the graph for the sizes of the example too."""
        now = torch.get_rng_state()
        sides: list[Any] = []
        with torch.no_grad():
            for call in (self._graph, self._call):
                torch.set_rng_state(seed)
                given = tuple(map(_made, self._examples))
                results = _or_error(call, given)
                sides.append(results if isinstance(results, Exception) else (*results, *given))
        torch.set_rng_state(now)
        return not any(isinstance(side, Exception) for side in sides) and not _alike(*sides)


def _raised(found: Any) -> Any:
    if isinstance(found, Exception):
        raise found
    return found


def _or_error(call: Callable[..., Any], inputs: tuple[Any, ...]) -> Any:
    try:
        return tuple(call(*inputs))
    except Exception as error:
        return error


def _sizes(inputs: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(tuple(x.shape) if isinstance(x, torch.Tensor) else x for x in inputs)


def _copied(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(_copy(x) if isinstance(x, torch.Tensor) else x for x in inputs)


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the strides of a tensor."""
    made = torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
    )
    return made.copy_(tensor.detach()).requires_grad_(tensor.requires_grad)


def _described(value: Any) -> Any:
    """What an input looked like, without its memory."""
    return (
        (value.shape, value.stride(), value.dtype, value.device)
        if isinstance(value, torch.Tensor)
        else value
    )


def _made(described: Any) -> Any:
    """An input that looks like that: ones, which are indices too."""
    if not isinstance(described, tuple):
        return described
    shape, strides, dtype, device = described
    return torch.empty_strided(shape, strides, dtype=dtype, device=device).fill_(
        1 if dtype.is_floating_point else 0
    )


def _alike(expected: Sequence[Any], found: Sequence[Any]) -> bool:
    return len(expected) == len(found) and all(map(_equal, expected, found))


def _equal(expected: Any, found: Any) -> bool:
    if not isinstance(expected, torch.Tensor) or not isinstance(found, torch.Tensor):
        return bool(expected == found) if type(expected) is type(found) else False
    if expected.shape != found.shape or expected.dtype is not found.dtype:
        return False
    tolerance = _ROUNDED.get(expected.dtype, 1e-8)
    scale = (
        1.0
        if not expected.numel() or not expected.is_floating_point()
        else float(expected.detach().abs().max())
    )
    offset = tolerance * scale if scale < float("inf") else tolerance  # nan is no scale
    return torch.allclose(
        expected.detach(), found.detach(), rtol=tolerance, atol=offset, equal_nan=True
    )
