"""What can be left out of the compiler, by name."""

import pytest
import torch

import argand
from argand.native.passes.simplify import RULES
from argand.native.passes.table import PASSES
from argand.support import events
from argand.support.errors import OptionError
from argand.support.options import make_options
from argand.support.switches import SWITCHES, is_off


def test_a_part_is_off_by_its_name_or_that_of_its_whole():
    options = make_options(None, {"off": "rule.unit decomposition"})
    assert is_off(options, "rule", "unit") and not is_off(options, "rule", "twice")
    assert is_off(options, "decomposition", "aten.gelu.default") and not is_off(options, "native")


@pytest.mark.parametrize(
    ("off", "what"),
    [("fuse", "no part"), ("pass", "alone says nothing"), ("native.x", "no parts of its own")],
)
def test_what_is_no_part_is_refused(off: str, what: str):
    with pytest.raises(OptionError, match=what):
        make_options(None, {"off": off})


def _program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    image = torch.nn.functional.conv2d(x.reshape(1, 4, 8, 8), w)
    return torch.nn.functional.gelu(image / 4).softmax(-1).sum(1) * 1 + image.mean()


ITEMS = {
    "decomposition": ["aten.gelu.default"],
    "lowering": ["aten.exp.default"],
    "node": ["exp"],
    "pass": [row.name for row in PASSES if row.optional],
    "rule": [row.name for row in RULES],
}
OFF = [s.name for s in SWITCHES if s.whole] + [
    f"{name}.{item}" for name, items in ITEMS.items() for item in items
]


@pytest.mark.parametrize("off", OFF)
def test_without_a_part_results_are_the_same(off: str):
    x, w = torch.randn(4, 8, 8), torch.randn(3, 4, 3, 3, requires_grad=True)
    before, given = x.clone(), x.clone()
    expected = _program(before, w)
    found = argand.compile(
        _program, options={"off": off, "cache": False, "strict": True, "measure": False}
    )(given, w)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(given, before)
    torch.testing.assert_close(
        torch.autograd.grad(found.sum(), w), torch.autograd.grad(expected.sum(), w)
    )


def _told(off: str, counter: str) -> list[str]:
    options = {"off": off, "cache": False, "measure": False}
    with events.collect() as seen:
        call = argand.compile(lambda x: torch.exp(x) + 1, options=options)
        call(torch.ones(3))
        call(torch.ones(3))
    return [e.detail for e in seen.events if isinstance(e, events.Count) and e.counter == counter]


def test_parts_that_are_off_do_nothing():
    assert _told("", "native.extern") == [] and _told(
        "lowering.aten.exp.default", "native.extern"
    ) == ["aten.exp.default"]
    assert _told("node.exp", "native.extern") == ["aten.exp.default"]
    assert len(_told("", "compiles")) == 1 and len(_told("entries", "compiles")) == 2
    assert _told("capture", "compiles") == [] and _told("native", "native.lowered") == []
