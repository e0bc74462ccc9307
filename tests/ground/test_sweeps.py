"""The sweeps: children that fail, hang or die become rows; a stopped sweep goes on."""

import importlib.util
import os
import signal
import time
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from benchmarks import ops, partition, zoo
from benchmarks.language import speed
from benchmarks.models import CASES
from benchmarks.sweep import Sweep, read_rows


@pytest.fixture(autouse=True)
def _threads_are_given_back():
    """What a child of a sweep does to its process, tests do to theirs."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def work(task):
    if task == "raise":
        raise ValueError("first line\nsecond line")
    if task == "hang":
        time.sleep(60)
    if task == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return {"status": "ok", "value": task.upper()}


def test_rows_of_all_kinds(tmp_path, capfd):
    rows = Sweep(tmp_path / "rows.jsonl", limit=2, jobs=2).run(["a", "raise", "hang", "die"], work)
    assert [row["status"] for row in rows] == ["ok", "error", "timeout", "crash"]
    assert rows[0]["value"] == "A"
    assert rows[1]["cause"] == "ValueError: first line | second line"
    assert "test_sweeps.py" in rows[1]["where"]
    assert rows[3]["cause"] == "SIGKILL"
    assert "[4/4]" in capfd.readouterr().out


def test_a_sweep_goes_on_where_it_stopped(tmp_path):
    path = tmp_path / "rows.jsonl"
    Sweep(path).run(["a"], work)
    with path.open("a") as file:
        file.write('{"task": "b", "stat')  # the machine went down here
    assert len(read_rows(path)) == 1
    ran = []
    rows = Sweep(path).run(["a", "b"], lambda task: ran.append(task) or {"status": "ok"})
    assert [row["task"] for row in rows] == ["a", "b"]
    assert not ran  # in this process: children ran
    assert Sweep(path, fresh=True).run(["a"], lambda task: {"status": "new"})[0]["status"] == "new"


def make_zoo(model):
    return SimpleNamespace(build=lambda name: (model, (torch.randn(2, 4),), {}))


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_the_zoo_judges_a_model(mode):
    settings = zoo.Settings("none", mode, False, False, 1)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    row = zoo.examine(make_zoo(model), "x", settings)
    assert row["status"] == "ok", row


def test_the_zoo_sees_a_wrong_second_call_and_an_error():
    model, args = nn.Linear(4, 4), (torch.randn(2, 4),)
    expected = [zoo.call(model, model, args, {}, "infer")] * 2
    calls = []

    def drifting(x):
        calls.append(1)
        return model(x) + (len(calls) - 1)

    row = zoo.attempt(lambda m: drifting, model, args, {}, expected, "infer")
    assert row["status"] == "wrong" and row["cause"].startswith("second call differs")
    row = zoo.attempt(lambda m: 1 / 0, model, args, {}, expected, "infer")
    assert row["status"] == "error" and row["cause"].startswith("ZeroDivisionError")


def test_the_zoo_tells_noise_of_gradients_from_errors():
    model = nn.Sequential(nn.Linear(4, 64), nn.BatchNorm1d(64), nn.Linear(64, 4))
    args = (torch.randn(2, 4),)
    gradients = zoo.call(model, model, args, {}, "train")[1]
    assert zoo.is_noise(model, args, {}, gradients)
    assert not zoo.is_noise(model, args, {}, [g * 0.98 for g in gradients])


def test_the_zoo_summary_counts():
    rows = [
        {"status": "ok", "fullgraph": True, "graphs": 1, "first_seconds": 1.0}
        | {"rival_status": "ok", "rival_first_seconds": 4.0},
        {"status": "error", "cause": "B001: x", "fullgraph": False, "fullgraph_cause": "B001"},
    ]
    text = zoo.summarize(rows, zoo.Settings("argand", "infer", True, False, 1))
    assert "captured  1 (50.0%)" in text and "fullgraph 1" in text and "4.0 x" in text
    assert "B001: x" in text


def test_the_zoo_says_when_it_is_missing(monkeypatch, tmp_path):
    monkeypatch.setattr(zoo, "ZOO", tmp_path)
    with pytest.raises(SystemExit, match="the zoo is not here"):
        zoo.load_zoo()


class Input:
    """The part of a SampleInput the sweep uses; importing the real one takes seconds."""

    args, kwargs = (), {}

    def __init__(self, value):
        self.input = value

    def noncontiguous(self):
        return Input(self.input.repeat_interleave(2, dim=-1)[..., ::2])


class AddOne:
    """The part of an OpInfo the sweep uses."""

    name, supports_autograd, supports_gradgrad = "add_one", True, True
    op = staticmethod(lambda x: x + 1)

    def supported_dtypes(self, device):
        return {torch.float32, torch.int64}

    def supported_backward_dtypes(self, device):
        return {torch.float32}

    def sample_inputs(self, device, dtype, requires_grad):
        return [Input(torch.ones(2, 3, dtype=dtype)) for _ in range(5)]


def test_ops_tries_samples_variants_and_gradients():
    settings = ops.Settings("none", ("float32", "int64", "bool"), 3, True, False)
    row = ops.examine(AddOne(), settings)
    assert (row["status"], row["counts"], row["failures"]) == ("ok", {"equal": 14}, [])


def test_ops_counts_the_same_call_after_call():
    """Also where the disk cache has the program: of an earlier sample, or of an earlier run."""
    settings = ops.Settings("argand", ("float32",), 3, False, False)
    first, second = (ops.examine(AddOne(), settings) for _ in range(2))
    assert first == second and first["counts"] == {"equal": 7}, first
    assert first["dtypes"]["float32"]["lowered"]


def test_ops_compares_no_digits_of_gradients_that_vanish():
    noise, other = torch.full((3,), 1e-6), torch.full((3,), -2e-6)
    assert not ops.mismatch([[], [noise]], [[], [other]], False)
    assert ops.mismatch([[], [noise]], [[], [other + 1]], False)
    assert ops.mismatch([[noise]], [[other]], False)


def test_ops_sees_wrong_results_gradients_and_errors(monkeypatch):
    def wrong(call):
        return lambda x: call(x) * 1.01

    settings = ops.Settings("none", ("float32",), 1, False, False)
    monkeypatch.setattr(ops, "_compiler", lambda _: wrong)
    row = ops.examine(AddOne(), settings)
    assert row["status"] == "wrong" and row["counts"]["differs"] > 1
    assert row["failures"][0]["cause"].startswith("result: differs by")
    monkeypatch.setattr(
        ops, "_compiler", lambda _: lambda call: lambda x: call(x.detach()) + 2 * x - 2
    )
    row = ops.examine(AddOne(), settings)
    assert row["failures"][0]["cause"].startswith("gradient: differs by"), row
    assert "1 of" in ops.summarize([row, {"status": "ok"}], "none")


def test_ops_compares_only_the_shapes_of_random_operators():
    sample = ops.Sample("", [torch.ones(3)], ops._pytree.tree_flatten(((1,), {}))[1])
    op = SimpleNamespace(name="dice", op=torch.rand_like)
    assert ops.check(op, sample, 0, lambda call: lambda x: torch.zeros(3), Counter()) == (
        "equal",
        "",
    )
    state, cause = ops.check(op, sample, 0, lambda call: lambda x: torch.zeros(4), Counter())
    assert state == "differs" and "[3] expected" in cause


def test_partitions_are_compared():
    lines = partition.compare(lambda: CASES["mlp"].program("train"), 1)
    assert "default" in lines[0] and "min-cut" in lines[1] and "times as fast" in lines[2]


def test_the_speed_of_the_language_is_one_command():
    lines = speed.commands("", rival=True, rounds=3)
    assert [line[2] for line in lines] == list(speed.PARTS)
    assert all(importlib.util.find_spec(line[2]) is not None for line in lines)
    assert [line[3:] for line in speed.commands("per_sample", rival=True, rounds=3)] == [
        ["--rounds", "3"]
    ]
