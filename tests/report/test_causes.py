"""What the page says of causes: what recurs first, effects under them, calls that ran nothing compiled."""

import pytest
import torch

import argand
from argand.native.passes import fold
from argand.report.page import render
from argand.report.recompiles import changes
from tests.report.planted import visible

OWN = {"measure": False}


def reported(function, calls, **keywords):
    with argand.report(None) as made:
        compiled = argand.compile(function, options=OWN | keywords, dynamic=False)
        for arguments in calls:
            compiled(*arguments)
    made.data["program"] = "program.py"
    return made.data


def scaled(x, amount):
    return x * (amount * 0.5)


def quantized(x):
    return torch.quantize_per_tensor(x.sin(), 0.1, 0, torch.qint8).dequantize()


def broken(x, amount):
    y = x.sin()
    print(end="")
    return y * amount


X = torch.arange(6.0)


def test_calls_past_the_limit_are_a_kind_of_their_own_and_not_in_the_headline():
    calls = [(X, float(k)) for k in range(5) for _ in range(4)]
    data = reported(scaled, calls, recompile_limit=2)
    (function,) = data["functions"]
    kinds = function["kinds"]
    assert kinds["compile"] == 2 and kinds["in Python"] >= 9
    assert data["verdict"]["in_python"] == kinds["in Python"]
    assert f"{kinds['in Python']} of the program's 20 calls ran in Python" in visible(render(data))
    (limit,) = data["problems"]
    assert limit["kind"] == "recompile limit" and limit["count"] == kinds["in Python"]
    (again,) = limit["effects"]
    assert "`amount` was 0.0, then 1.0, 2.0" in again["title"] and again["cost_ms"] > 0


def test_a_program_that_cannot_be_captured_is_not_called_fast():
    data = reported(quantized, [(X,)] * 12)
    kinds = data["functions"][0]["kinds"]
    assert kinds.get("compiled", 0) == 0 and kinds["in Python"] + kinds["compile"] >= 9
    assert "Nothing compiled ran" in visible(render(data))
    (left,) = data["problems"]
    assert left["where"]["source"].startswith("return torch.quantize_per_tensor")
    assert left["count"] < 6  # it is not captured anew at every call


def test_what_recurs_at_every_call_comes_before_what_happens_once():
    data = reported(broken, [(X, float(k)) for k in range(3) for _ in range(5)])
    kinds = [problem["kind"] for problem in data["problems"]]
    assert kinds == ["graph break", "recompile"]
    assert [problem["recurs"] for problem in data["problems"]] == [True, False]


def test_values_are_told_once_each_in_their_order():
    def said(*texts):
        return changes([{"change": text} for text in texts])

    assert said("`n` was 1, is 2", "`n` was 2, is 3") == "`n` was 1, then 2, 3"
    assert said("`n` was 1, is 2") == "`n` was 1, is 2"
    many = [f"`n` was {k}, is {k + 1}" for k in range(20)]
    assert said(*many).endswith("10, 11 and 9 more values")
    assert said("`n` is not set any more", "`n` was 1, is 2").endswith("(and 1 more changes of it)")


def test_a_report_compares_with_eager_when_it_is_asked(tmp_path):
    with argand.report(tmp_path / "page.html", verify=True) as made:
        compiled = argand.compile(scaled, options=OWN)
        for _ in range(3):
            compiled(X, 2.0)
    assert made.data["differences"] == {"calls": 3, "frames": 3, "skipped": 0, "found": []}
    assert "Gives what eager gives" in visible((tmp_path / "page.html").read_text())
    assert argand.compile(scaled, options=OWN)(X, 2.0).equal(X)  # and nothing compares afterwards
    with argand.report(None) as plain:
        argand.compile(scaled, options=OWN)(X, 2.0)
    assert plain.data["differences"] is None


def folded(x):
    scale = torch.full((), 3.0) * torch.full((), 4.0)
    return (x.cos() * scale).relu()


@pytest.mark.filterwarnings("ignore:argand")
def test_what_differs_from_eager_is_the_first_problem(monkeypatch):
    monkeypatch.setitem(fold._OPS, "mul", lambda a, b: a + b)
    with argand.report(None, verify=True) as made:
        argand.compile(folded, options=OWN | {"cache": False})(X)
    (found,) = made.data["differences"]["found"]
    wrong = made.data["problems"][0]
    assert wrong["kind"] == "wrong result" and wrong["title"] == found["text"]
    assert "argand bisect" in wrong["fix"] and "relu" in wrong["where"]["source"]
