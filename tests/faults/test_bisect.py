"""Finding the guilty part: the steps by themselves, and two planted faults from script to minimal script.

All faults: ``python -m tests.faults`` (``make faults``).
"""

import operator
from pathlib import Path

import pytest
import torch
from torch.fx import Graph, Node

from argand.bisect.case import (
    GraphCase,
    read_case,
    resized,
    restricted,
    results_of,
    sizes_of,
    write_case,
)
from argand.bisect.shrink import shrunk
from argand.bisect.smallest import first_smaller, smallest
from argand.bisect.source import refusal, shrunk_source
from argand.bisect.suspects import (
    AUTOGRAD,
    CAPTURE,
    FUSION,
    KERNEL,
    NATIVE,
    PASS,
    find_part,
    find_stage,
)
from argand.bisect.symptom import Symptom, symptom_of
from argand.bisect.text import function_text, literal, script_text, simpler_forms
from argand.report.trials import CRASHES, DIFFERS, RAISES, Trial
from tests.faults.__main__ import bisected, is_found


def test_delta_debugging_finds_what_is_needed_together():
    tests = []

    def fails(numbers):
        tests.append(tuple(numbers))
        return {3, 61} <= set(numbers)

    assert smallest(range(100), fails) == [3, 61]
    assert len(tests) < 100
    assert smallest(range(100), lambda numbers: 17 in numbers) == [17]
    assert first_smaller(64, lambda n: n >= 3) == 3 and first_smaller(64, lambda n: False) == 64


def test_failures_are_the_same_by_what_differs_not_by_numbers():
    text = "call 1: a compiled graph is wrong: result 0 (mul): values differ at [0]: eager 1.0, compiled 2.0"
    assert symptom_of(Trial(DIFFERS, text)) == Symptom(DIFFERS, "values")
    first, second = (symptom_of(Trial(RAISES, f"ValueError: size {n} is wrong")) for n in (3, 4))
    assert first == second != symptom_of(Trial(RAISES, "TypeError: size is wrong"))
    assert symptom_of(Trial()) is None
    assert symptom_of(Trial(CRASHES, "signal 11 (SIGSEGV)")) != symptom_of(
        Trial(CRASHES, "signal 6 (SIGABRT)")
    )


def _case() -> GraphCase:
    """x -> sin -> view -> mul by w -> add 1 -> sum"""
    graph = Graph()
    x, w = graph.placeholder("x"), graph.placeholder("w")
    sin = graph.call_method("sin", (x,))
    view = graph.call_method("view", (sin, 32, 3))
    mul = graph.call_function(operator.mul, (view, w))
    graph.output((graph.call_method("sum", (graph.call_function(operator.add, (mul, 1)),)), mul))
    return GraphCase(graph, ((torch.randn(4, 24), torch.randn(32, 3, requires_grad=True)),))


def _called(case: GraphCase) -> list[str]:
    return [str(getattr(node.target, "__name__", node.target)) for node in case.nodes]


def test_a_part_of_a_graph_has_the_values_of_eager_as_inputs():
    case = _case()
    part = restricted(case, [n for n in case.nodes if n.target is operator.mul])
    assert _called(part) == ["mul"] and [n.name for n in part.inputs] == ["w", "view"]
    torch.testing.assert_close(part.calls[0][1], case.calls[0][0].sin().view(32, 3))
    assert [n.target for n in results_of(part)] == [operator.mul]
    assert len(case.nodes) == 5  # the whole is as it was


def test_sizes_change_in_inputs_and_operations():
    smaller = resized(_case(), lambda n: {32: 8, 4: 1}.get(n, n))
    assert [tuple(value.shape) for value in smaller.calls[0]] == [(1, 24), (8, 3)]
    assert next(n for n in smaller.nodes if n.target == "view").args[1:] == (8, 3)
    assert sizes_of(smaller) == [24, 8, 3] and smaller.calls[0][1].requires_grad


def test_shrinking_keeps_what_fails():
    def fails(case: GraphCase) -> bool:
        used = [n for n in case.nodes if n.target is operator.mul]
        return bool(used) and all(x.numel() >= 4 for x in case.calls[0])

    small = shrunk(_case(), fails)
    assert (
        _called(small) == ["mul"] and max(x.numel() for x in small.calls[0]) <= 6 and not small.grad
    )


def test_a_case_is_kept_in_a_folder_with_its_constants_as_inputs(tmp_path: Path):
    class Constant(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.c = torch.tensor([1.0, 2.0])

        def forward(self, x):
            return (x * self.c,)

    module = torch.fx.symbolic_trace(Constant())
    assert read_case(tmp_path) is None
    assert write_case(tmp_path, module, [(torch.ones(2),)], grad=False, dynamic=False)
    found = read_case(tmp_path)
    assert found is not None and _called(found) == ["mul"] and not found.grad
    assert [value.tolist() for value in found.calls[0]] == [[1, 1], [1, 2]]


def test_the_text_of_a_case_is_a_program(tmp_path: Path):
    case = _case()
    texts = [[literal(value) for value in call] for call in case.calls]
    source = script_text(case, texts, DIFFERS, "said", {"verify": "results"})
    names: dict[str, object] = {}
    exec(compile(source, "minimal.py", "exec"), names)
    for made, value in zip(names["calls"]()[0], case.calls[0], strict=True):
        torch.testing.assert_close(made, value)
        assert made.requires_grad == value.requires_grad
    text, imports = function_text(case.graph)
    assert text.startswith("def program(x, w):") and "None" not in text and imports == []


@pytest.mark.parametrize(
    "value",
    [
        torch.arange(6).reshape(2, 3).t(),
        torch.tensor([float("nan"), float("inf"), -0.5]),
        torch.ones(1).expand(4),
        torch.empty(0, 3),
        torch.randn(2, 3, 4, 4).contiguous(memory_format=torch.channels_last),
        torch.tensor(True),
        (torch.ones(2, dtype=torch.float64), 3, float("-inf"), [None, "x"]),
    ],
    ids=["transposed", "not_finite", "expanded", "empty", "channels_last", "truth", "nested"],
)
def test_every_input_has_a_text(value, tmp_path: Path):
    made = eval(literal(value), {"torch": torch})
    torch.testing.assert_close(made, value, equal_nan=True) if isinstance(
        value, torch.Tensor
    ) else None
    assert getattr(made, "stride", tuple)() == getattr(value, "stride", tuple)()
    for form in simpler_forms(value):
        like = eval(form, {"torch": torch})
        assert (like.shape, like.dtype, like.stride()) == (value.shape, value.dtype, value.stride())


def test_a_large_input_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    value = torch.randn(80, 80).t()
    text = literal(value, tmp_path / "x.bin")
    monkeypatch.chdir(tmp_path)
    made = eval(text, {"torch": torch})
    assert len(text) < 200 and torch.equal(made, value) and made.stride() == value.stride()


SOURCE = """
import torch
def helper(n):
    return n + 1
def program(x, log):
    y = x.sin()
    with torch.no_grad():
        if y.shape[0] > 2:
            log.append(helper(500))
    return y
rows = []
unused = [program, helper]
program(torch.randn(500), rows)
print(unused)
"""


def test_a_script_loses_statements_blocks_and_numbers():
    def fails(text: str) -> bool:
        return "log.append(" in text and "program(torch.randn(" in text and "def program" in text

    short = shrunk_source(SOURCE, fails)
    assert (
        "unused" not in short and "with" not in short and "if" not in short and "500" not in short
    )
    assert short.count("\n") == 3


def test_a_script_that_could_do_harm_is_left_whole():
    assert refusal(SOURCE) == ""
    assert (
        refusal("import shutil") == "it imports shutil"
        and refusal("torch.save(x, 'f')") == "it uses save"
    )


def _cured_by(*names: str):
    """A test that fails unless one of these is off."""
    return lambda options: (
        not any(
            name in options.get("off", "").split() or (name in options and options[name] is False)
            for name in names
        )
    )


@pytest.mark.parametrize(
    ("cures", "stage"),
    [
        (("capture", "autograd", "native"), NATIVE),
        (("capture", "autograd"), AUTOGRAD),
        (("capture",), CAPTURE),
    ],
)
def test_the_stage_is_the_last_that_cures(cures, stage):
    assert find_stage(_cured_by(*cures)) == stage


def test_the_part_is_named():
    assert find_part(CAPTURE, _cured_by("entries")).part == "entries"
    assert find_part(AUTOGRAD, _cured_by("partition")).part == "partition"
    found = find_part(AUTOGRAD, _cured_by("decomposition", "decomposition.b"), ["a", "b", "c"])
    assert found.part == "decomposition.b"
    found = find_part(NATIVE, _cured_by("pass.simplify", "rule.twice"))
    assert (found.stage, found.part) == (PASS, "rule.twice")
    assert find_part(NATIVE, _cured_by("pass.take_products")).part == "pass.take_products"


def test_kernels_are_narrowed_to_nodes():
    lowered = ["exp aten.exp.default", "mul aten.mul.Tensor", "sub aten.sub.Tensor"]
    found = find_part(NATIVE, _cured_by("node.exp", "lowering.aten.exp.default"), (), lowered)
    assert (found.stage, found.part, found.nodes) == (
        KERNEL,
        "lowering.aten.exp.default",
        (lowered[0],),
    )
    both = find_part(NATIVE, _cured_by("node.exp", "node.sub", "fusion"), (), lowered)
    assert (both.stage, both.nodes) == (FUSION, (lowered[0], lowered[2]))


@pytest.mark.parametrize("name", ["wrong_rule", "crash_in_compiler"])
def test_a_planted_fault_is_found_and_fails_alone(name: str, tmp_path: Path):
    found = bisected(name, tmp_path)
    assert is_found(name, found) and found["fails_alone"] and found["nodes"] <= 2
    assert "import argand" in found["text_of_script"] and found["lines"] < 30


def test_nodes_are_never_changed():
    case = _case()
    before = [(n, n.args) for n in case.graph.nodes if isinstance(n, Node)]
    shrunk(case, lambda smaller: bool(smaller.nodes))
    assert before == [(n, n.args) for n in case.graph.nodes]
