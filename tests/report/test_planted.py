"""Eleven programs with a problem each: the page names its line, its cause and its fix."""

import html
import re

import pytest
import torch

import argand
from argand.report.page import render

OWN = {"measure": False}


def _run(function, arguments, **keywords):
    compiled = argand.compile(function, options=OWN | keywords.pop("options", {}), **keywords)
    for given in arguments:
        compiled(*given)


def _same(calls=4, size=16):
    return [(torch.randn(size, size),)] * calls


def prints():
    def program(x):
        y = torch.relu(x)
        print("mean is near", 0)
        return y + 1

    _run(program, _same())


def branches():
    def program(x):
        y = x.sin()
        if y.sum() > 0:
            return y + 1
        return y - 1

    _run(program, _same())


def reads():
    def program(x):
        scale = x.abs().max().item()
        return x / scale

    _run(program, _same())


def counts():
    def program(x, step):
        return x * (step * 0.5)

    _run(program, [(torch.randn(8), k + 0.5) for k in range(4)], dynamic=False)


def shapes():
    def program(x):
        return torch.softmax(x, -1)

    _run(program, [(torch.randn(4, 8 + k),) for k in range(4)], dynamic=False)


def limits():
    def program(x, name):
        return x + len(name)

    _run(program, [(torch.randn(4), "n" * k) for k in range(6)], options={"recompile_limit": 3})


def disables():
    @argand.disable
    def helper(x):
        return x + 1

    def program(x):
        return helper(x * 2) * 3

    _run(program, _same())


def varies():
    def program(x):
        kept = x[x > 0]
        return kept * 2

    _run(program, _same())


def keeps_gradients():
    weight = torch.randn(16, 16, requires_grad=True)

    def program(x):
        return torch.tanh(x @ weight)

    _run(program, _same())


def sorts():
    def program(x):
        return torch.sort(x, -1)[0] + 1

    _run(program, _same(4, 256))


def raises():
    def program(x):
        return torch.quantize_per_tensor(x.sin(), 0.1, 0, torch.qint8).dequantize()

    _run(program, _same())


# program; what the page says: kind, cause, fix, and the text of the line
PLANTED = (
    (prints, "graph break", "prints or logs", "print outside", 'print("mean is near", 0)'),
    (branches, "graph break", "branch on the value of a tensor", "torch.where", "if y.sum() > 0:"),
    (
        reads,
        "graph break",
        "reads the value of a tensor",
        "keep the value as a tensor",
        "return x / scale",
    ),  # where the number is first needed
    (counts, "recompile", "`step` was", "pass the number as a tensor", "return x * (step * 0.5)"),
    (shapes, "recompile", "`x.shape[1]` was", "mark_dynamic", "return torch.softmax(x, -1)"),
    (limits, "recompile limit", "compiled 3 times", "recompile_limit", "return x + len(name)"),
    (disables, "graph break", "marked with argand.disable", "remove the mark", "return helper(x * 2) * 3"),
    (varies, "graph break", "depends on data", "torch.where", "kept = x[x > 0]"),
    (keeps_gradients, "wasted gradients", "no backward pass ever came", "torch.no_grad()", "def program(x):"),
    (sorts, "torch's operator", "aten.sort", "torch's kernel is called", "return torch.sort(x, -1)[0] + 1"),
    (raises, "runs in Python", "raised while it was captured", "argand.disable", "def program(x):"),
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("program", "kind", "cause", "fix", "line"), PLANTED, ids=lambda value: getattr(value, "__name__", "")
)
def test_the_page_names_cause_and_fix(program, kind, cause, fix, line):
    with argand.report(None, compare=False) as made:
        program()
    cards = re.findall(r'<div class="problem">(.*?)\n</div>\n', render(made.data), re.DOTALL)
    texts = [html.unescape(card) for card in cards]
    (card,) = [text for text in texts if f'<span class="tag">{kind}</span>' in text and cause in text]
    assert fix in card.partition('class="fix"')[2] and line in card
    assert re.search(r"test_planted\.py:\d+", card)
