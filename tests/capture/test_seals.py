"""A break inside of an inner frame never replaces an instruction's result by the inner frame's."""

import collections
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import argand

PARTS = [torch.full((4,), float(i)) for i in range(1, 4)]


class Parts:
    """Iterates by a generator, as torch.nn.ParameterList does."""

    def __iter__(self) -> Any:
        return iter(part for part in PARTS)


def enumerated(x: torch.Tensor) -> torch.Tensor:
    for number, part in enumerate(Parts()):
        x = x * part + number
        argand.graph_break()
    return x


def zipped(x: torch.Tensor) -> torch.Tensor:
    for (one, two), part in zip([(1, 2), (3, 4), (5, 6)], Parts(), strict=True):
        x = x * part + one * two
        argand.graph_break()
    return x


def chained(x: torch.Tensor) -> torch.Tensor:
    for part in itertools.chain(Parts(), (part * 2 for part in Parts())):
        x = x * part + 1
        argand.graph_break()
    return x


def listed(x: torch.Tensor) -> Any:
    def broken() -> Any:
        argand.graph_break()
        return iter(PARTS)

    held = type("Held", (), {"__iter__": lambda self: broken()})()
    return x + len(list(held)), sorted(held, key=lambda part: -part[0].item())[0]


def unpacked(x: torch.Tensor) -> Any:
    def broken() -> Any:
        argand.graph_break()
        return iter(PARTS)

    held = type("Held", (), {"__iter__": lambda self: broken()})()
    one, *_ = held
    one, two, three = held
    return x + one * two, [*held, three], (*held, 1), {**dict(enumerate(held))}


def missed(x: torch.Tensor) -> Any:
    def made() -> list[torch.Tensor]:
        argand.graph_break()
        return []

    table: Any = collections.defaultdict(made)
    table["a"].append(x + 1)
    table["a"].append(x + 2)
    return table["a"]


@pytest.mark.parametrize("backend", ["eager", "argand"])
@pytest.mark.parametrize("program", [enumerated, zipped, chained, listed, unpacked, missed])
def test_a_break_in_an_inner_frame(program: Callable[..., Any], backend: str):
    x = torch.randn(4)
    torch.testing.assert_close(argand.compile(program, backend=backend)(x), program(x))


def test_an_instruction_that_works_on_an_answer_without_a_seal_is_found(
    monkeypatch: pytest.MonkeyPatch,
):
    from argand.capture.objects import parts

    monkeypatch.setattr(parts.Seal, "__exit__", lambda *_: None)
    with pytest.raises(argand.InternalError, match="needs a Seal"):
        argand.compile(enumerated, backend="eager", options={"strict": True})(torch.randn(4))


def _sliced(pairs: Any) -> Any:
    held: Any = [1, 2]
    held[1:] = pairs
    return held


Row = collections.namedtuple("Row", "one two three")


@pytest.mark.parametrize(
    "taken", [dict, _sliced, Row._make, list, tuple], ids=["dict", "slice", "row", "list", "tuple"]
)
@pytest.mark.parametrize(
    "make", [enumerate, lambda parts: iter([*enumerate(parts)])], ids=["enumerate", "iter"]
)
def test_an_iterator_from_outside_is_not_used_up_while_it_is_traced(make: Any, taken: Any):
    x, ours = torch.randn(4), make(PARTS)
    got = argand.compile(lambda x, pairs: (x + 1, taken(pairs)), backend="eager")(x, ours)
    torch.testing.assert_close(got, (x + 1, taken(make(PARTS))))
    assert list(ours) == []
