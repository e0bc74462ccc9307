"""differences.runs: a graph run on copies of its inputs, and everything that came of it.

In: a callable, inputs, the gradients to send back. Out: `Run`: results, inputs as they are afterwards, gradients; random
numbers are drawn from the same state. `in_double_precision` is the oracle: all of it in float64, with the numbers that
eager drew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from typing_extensions import override

from argand.differences.copies import Copies

Runnable = Callable[..., Any]


class Run(NamedTuple):
    """What a graph gave and changed."""

    results: list[Any]
    inputs: list[Any]
    gradients: list[torch.Tensor | None]  # of the inputs that require one
    aliases: list[str]  # per result: which input's memory it lies in, or which result's


def run(
    graph: Runnable,
    copies: Copies,
    random: torch.Tensor,
    tangents: Sequence[torch.Tensor | None] | None,
) -> Run:
    """Call a graph, then differentiate what it gave."""
    torch.set_rng_state(random)
    results = pytree.tree_leaves(graph(*copies.values))
    aliases = _aliases(copies.values, results)
    kept = [r.detach().clone() if isinstance(r, torch.Tensor) else r for r in copies.values]
    if tangents is None:
        tangents = make_tangents(results)
    return Run(results, kept, _gradients(results, copies.leaves, tangents), aliases)


def make_tangents(results: Sequence[Any]) -> list[torch.Tensor | None]:
    """What is sent back through each result: numbers of magnitude one, the same whenever they are made."""
    generator = torch.Generator().manual_seed(7)
    made: list[torch.Tensor | None] = []
    for result in results:
        tangent = None
        if isinstance(result, torch.Tensor) and result.requires_grad:
            tangent = torch.randn(result.shape, generator=generator, dtype=torch.float64).to(
                result.dtype
            )
        made.append(tangent)
    return made


def _gradients(
    results: Sequence[Any],
    leaves: Sequence[torch.Tensor | None],
    tangents: Sequence[torch.Tensor | None],
) -> list[torch.Tensor | None]:
    sent = [
        (r, t.to(r.dtype))
        for r, t in zip(results, tangents, strict=False)
        if t is not None and isinstance(r, torch.Tensor) and r.requires_grad
    ]
    wanted = [leaf for leaf in leaves if leaf is not None]
    if not sent or not wanted:
        return []
    outputs, gradients = zip(*sent, strict=True)
    return list(torch.autograd.grad(outputs, wanted, gradients, allow_unused=True))


def _aliases(inputs: Sequence[Any], results: Sequence[Any]) -> list[str]:
    seen: dict[int, str] = {}
    for number, value in enumerate(inputs):
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            seen.setdefault(value.untyped_storage()._cdata, f"input {number}")
    found: list[str] = []
    for number, value in enumerate(results):
        if (
            not isinstance(value, torch.Tensor)
            or value.layout is not torch.strided
            or not value.numel()
        ):
            found.append("")
            continue
        at = value.untyped_storage()._cdata
        found.append(seen.get(at, "memory of its own"))
        seen.setdefault(at, f"result {number}")
    return found


@final
class DrawnNumbers(TorchDispatchMode):
    """Keeps the random numbers that ops draw, or gives back those that were kept, in another precision."""

    def __init__(self, kept: list[torch.Tensor] | None = None, *, double: bool = False) -> None:
        super().__init__()
        self.kept: list[torch.Tensor] = [] if kept is None else list(kept)
        self.replays, self.double = kept is not None, double

    @classmethod
    @override
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first call imports TorchDynamo

    @override
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if self.double and _floats(kwargs.get("dtype")):
            kwargs["dtype"] = torch.float64
        result = func(*args, **kwargs)
        if torch.Tag.nondeterministic_seeded in func.tags and isinstance(result, torch.Tensor):
            if not self.replays:
                self.kept.append(result.detach().clone())
            elif self.kept:
                drawn = self.kept.pop(0)
                result = result.copy_(drawn) if result.shape == drawn.shape else result
        is_new = (
            self.double
            and isinstance(result, torch.Tensor)
            and not func._schema.is_mutable
            and not func.is_view
        )
        return result.double() if is_new and _floats(result.dtype) else result


def _floats(kind: Any) -> bool:
    return isinstance(kind, torch.dtype) and kind.is_floating_point and kind is not torch.float64
