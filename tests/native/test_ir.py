"""Text of both IRs, verifiers, and passes as text in, text out."""

import pathlib
import re

import pytest
import torch

from argand.native.ir.loops_text import parse_kernel, print_kernel
from argand.native.ir.tensor_text import parse_graph, print_graph
from argand.native.ir.verify import verify_graph, verify_kernel
from argand.native.passes.table import PASSES
from argand.support import events
from argand.support.errors import InternalError
from argand.support.options import Options
from tests.native.tracing import run

CASES = pathlib.Path(__file__).parent / "cases" / "passes.txt"


def cases():
    for block in re.split(r"^\[case ", CASES.read_text(), flags=re.M)[1:]:
        name, _, rest = block.partition("]\n")
        before, _, after = rest.partition("\n---\n")
        head, _, before = before.partition("\n")
        yield pytest.param(head.removeprefix("pass: "), before.strip(), after.strip(), id=name)


@pytest.mark.parametrize("name, before, after", cases())
def test_pass(name, before, after):
    graph = verify_graph(parse_graph(before), "parse")
    result = verify_graph({p.name: p.run for p in PASSES}[name](graph), name)
    assert print_graph(result) == (print_graph(graph) if after == "(unchanged)" else after)


def test_passes_follow_their_reasons():
    seen = set()
    for row in PASSES:
        for other, reason in row.after:
            assert other in seen, f"{row.name} must follow {other}: {reason}"
        seen.add(row.name)


def program(x, w, i):
    y = torch.softmax(x.t().reshape(4, 10), -1)
    return y.sum(0), y[:, i].argmax(1), torch.cat([x, x + 1]), torch.mm(x, w), x > 0


def test_text_round_trip():
    with events.collect() as heard:
        run(program, torch.randn(8, 5), torch.randn(5, 3), torch.tensor([1, 3, 9]), options=Options(verify=True))
    for text in heard.texts("ir"):
        body = text.replace("[aten.mm.default]", "[aten.mm.default]")
        assert print_graph(parse_graph(body)) == text
    kernels = heard.texts("schedule")
    assert kernels
    for text in kernels:
        assert print_kernel(verify_kernel(parse_kernel(text))) == text


GOOD = "graph(f32[8])\n%0 = input[0]() : f32[8]\n"


@pytest.mark.parametrize(
    "line, rule",
    [
        ("%1 = bogus(%0) : f32[8]", "T1"),
        ("%1 = add(%0) : f32[8]", "T3"),
        ("%1 = cast(%0) : i64[8]\n%2 = add(%0, %1) : f32[8]", "T4"),
        ("%1 = lt(%0, %0) : f32[8]", "T4"),
        ("%1 = exp(%0) : f32[9]", "T5"),
        ("%1 = sum[0](%0) : f32[8]", "T5"),
        ("%1 = view[d0 + 1](%0) : f32[8]", "T6"),
        ("%1 = view[d0, d1](%0) : f32[8]", "T6"),
    ],
)
def test_verifier_names_the_rule(line, rule):
    last = line.split(" =")[-2].split("\n")[-1]
    with pytest.raises(InternalError, match=rule):
        verify_graph(parse_graph(f"{GOOD}{line}\nreturn {last}"), "test")


@pytest.mark.parametrize(
    "body, rule",
    [
        ("  store f32 b0[0] = v0", "L1"),
        ("  v0 = load f32 b0[d7]", "L2"),
        ("  v0 = load f32 b4[d0]\n  store f32 b0[d0] = v0", "L3"),
        ("  v0 = load f32 b0[d0]", "L4"),
    ],
)
def test_loop_verifier_names_the_rule(body, rule):
    with pytest.raises(InternalError, match=rule):
        verify_kernel(parse_kernel(f"kernel(f32) outer d0:8\n{body}"))


def test_unreadable_text_is_named():
    with pytest.raises(InternalError, match="cannot read"):
        parse_graph("graph()\nnonsense")
    with pytest.raises(InternalError, match="cannot read"):
        parse_kernel("kernel(f32) outer\n  nonsense")
