"""Text of both IRs, verifiers, and passes as text in, text out."""

import pytest
import torch

from argand.native.codegen.target import host_target
from argand.native.ir.loops_text import parse_kernel, print_kernel
from argand.native.ir.tensor_text import parse_graph, print_graph
from argand.native.ir.verify_loops import verify_kernel
from argand.native.ir.verify_tensor import verify_graph
from argand.native.passes.table import PASSES, Pass, Setting, check_order, run_pass
from argand.support import events
from argand.support.errors import InternalError
from argand.support.options import Options
from tests.native.tracing import run

VERIFIED = Setting(Options(verify="forms"), host_target())


def test_passes_follow_their_reasons():
    assert check_order(PASSES) == ""
    assert check_order((PASSES[1], PASSES[0])).startswith(
        "pass 'simplify' must follow 'fold_constants': "
    )
    assert (
        check_order(PASSES[:5] + PASSES[6:])
        == "pass 'fuse' takes demand, pass 'round_halves' gives tensor"
    )
    assert check_order((PASSES[0], PASSES[0])) == "two passes are called 'fold_constants'"
    assert [row.name for row in PASSES if not row.after] == ["fold_constants"]


def test_the_verifier_names_the_guilty_pass_and_marks_the_line():
    graph = parse_graph("graph(f32[8])\n%0 = input[0]() : f32[8]\n%1 = exp(%0) : f32[8]\nreturn %1")
    wrong = parse_graph("graph(f32[8])\n%0 = input[0]() : f32[8]\n%1 = exp(%0) : f32[9]\nreturn %1")
    bad = Pass("widen", PASSES[0].takes, PASSES[0].gives, lambda value, setting: wrong)
    with pytest.raises(InternalError, match="after pass 'widen': T5 %1 exp: ") as caught:
        run_pass(bad, graph, VERIFIED)
    assert "\n> %1 = exp(%0) : f32[9]\n" in caught.value.dump
    assert run_pass(bad, graph, Setting(Options(verify=""), host_target())) is wrong


def test_a_pass_that_fails_shows_what_it_was_given():
    graph = parse_graph("graph(f32[8])\n%0 = input[0]() : f32[8]\n%1 = exp(%0) : f32[8]\nreturn %1")
    bad = Pass("fail", PASSES[0].takes, PASSES[0].gives, lambda value, setting: {}["lost"])
    with pytest.raises(InternalError, match="stage 'native.fail': KeyError: 'lost'") as caught:
        run_pass(bad, graph, Setting(Options(verify=""), host_target()))
    assert "%1 = exp(%0)" in caught.value.dump


def program(x, w, i):
    y = torch.softmax(x.t().reshape(4, 10), -1)
    return y.sum(0), y[:, i].argmax(1), torch.cat([x, x + 1]), torch.mm(x, w), x > 0


def test_text_round_trip():
    with events.collect() as heard:
        run(
            program,
            torch.randn(8, 5),
            torch.randn(5, 3),
            torch.tensor([1, 3, 9]),
            options=Options(verify="forms"),
        )
    graphs = heard.texts("ir")
    assert len(graphs) == 6
    for text in graphs:
        assert print_graph(parse_graph(text)) == text
    kernels = heard.texts("schedule")
    assert kernels
    for text in kernels:
        kernel = parse_kernel(text)
        assert verify_kernel(kernel) is None and print_kernel(kernel) == text


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
    fault = verify_graph(parse_graph(f"{GOOD}{line}\nreturn {last}"))
    assert fault is not None and fault.rule == rule


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
    fault = verify_kernel(parse_kernel(f"kernel(f32) outer d0:8\n{body}"))
    assert fault is not None and fault.rule == rule


def test_unreadable_text_is_named():
    with pytest.raises(InternalError, match="cannot read"):
        parse_graph("graph()\nnonsense")
    with pytest.raises(InternalError, match="cannot read"):
        parse_kernel("kernel(f32) outer\n  nonsense")
