"""The benchmark harness: does it tell the truth, and does it survive engines that fail?"""

import json
import math

import pytest
import torch
from rich.console import Console

from benchmarks import __main__ as command
from benchmarks import engines, figures, phases, selftest, summary, written
from benchmarks.child import InstantBackend, compare, interleave, steady
from benchmarks.compare import difference, distance, excused, gradient_distance
from benchmarks.models import CASES, GROUPS, select


def settings(**changes):
    values = {
        "cases": (CASES["tiny"],),
        "modes": ("infer",),
        "engines": ("eager", "slowed:2"),
        "phases": ("steady",),
        "rounds": 3,
        "round_seconds": 0.002,
        "threads": 1,
    }
    return phases.Settings(**(values | changes))


def test_a_slowed_engine_is_reported_slower_by_its_factor():
    # By the clock of the process: other tests run beside this one.
    found = selftest.measured_factors(rounds=7, seconds=0.05, clock="cpu")
    assert max(selftest.deviations(found).values()) <= selftest.TOLERANCE, found


def test_onnxruntime_is_an_engine_of_inference():
    answers = steady("tiny", "infer", ["eager", "onnxruntime"], 1, 0.001)
    assert answers["onnxruntime"]["status"] == "ok", answers
    assert (
        steady("tiny", "train", ["eager", "onnxruntime"], 1, 0.001)["onnxruntime"]["status"]
        == "missing"
    )
    with pytest.raises(engines.NotAvailable, match="backend"):
        engines.find("onnxruntime")(lambda x: x, backend="eager")


def test_a_wrong_engine_is_reported_wrong(monkeypatch):
    def crooked(target, **_):
        return lambda *args: target(*args) * 1.01

    monkeypatch.setitem(engines.ENGINES, "crooked", crooked)
    answers = steady("tiny", "infer", ["eager", "crooked"], rounds=1, seconds=0.001)
    assert answers["eager"]["status"] == "ok"
    assert answers["crooked"]["status"] == "wrong"


def test_wrong_gradients_are_reported(monkeypatch):
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    program = CASES["tiny"].program("train")
    assert compare("tiny", program, program.target) <= 1
    assert compare("tiny", program, lambda *a: Doubled.apply(program.target(*a))) > 1


def test_a_failing_and_a_missing_engine_do_not_stop_the_others(monkeypatch):
    def failing(target, **_):
        raise ValueError("cannot\ncompile this")

    def missing(target, **_):
        raise engines.NotAvailable("not here")

    monkeypatch.setitem(engines.ENGINES, "failing", failing)
    monkeypatch.setitem(engines.ENGINES, "missing", missing)
    answers = steady("tiny", "train", ["eager", "failing", "missing"], rounds=2, seconds=0.001)
    assert answers["failing"] == {"status": "error", "detail": "ValueError: cannot | compile this"}
    assert answers["missing"]["status"] == "missing"
    assert len(answers["eager"]["seconds"]) == 2


def test_contenders_take_turns_in_every_round():
    order = []
    calls = {"a": lambda: order.append("a"), "b": lambda: order.append("b")}
    samples = interleave(calls, rounds=4, seconds=0.0)
    assert {name: len(found) for name, found in samples.items()} == {"a": 4, "b": 4}
    assert order[-8:] == ["a", "b", "b", "a", "a", "b", "b", "a"]


def test_a_run_from_start_to_files(tmp_path):
    with (tmp_path / "screen").open("w") as screen:
        made = settings(engines=("eager",), phases=("cold", "warm", "steady"))
        path = command.run(made, tmp_path, Console(file=screen, width=140))
    data = json.loads(path.read_text())
    assert {row["phase"] for row in data["rows"]} == {"cold", "warm", "steady"}
    assert all(row["status"] == "ok" for row in data["rows"])
    assert all(row["run_mb"] >= 0 for row in data["rows"] if row["phase"] == "cold")
    assert data["machine"]["torch"] == torch.__version__
    text = (tmp_path / "screen").read_text()
    assert "geomean" in text and "worst" in text and "MB" in text


def test_the_plot(tmp_path):
    assert not summary.plot([], tmp_path / "none.png")
    answers = {"eager": {"seconds": [2.0, 2.1]}, "argand": {"seconds": [1.0, 1.3]}}
    rows = list(phases.finish("steady", "mlp", "infer", "eager", answers))
    assert summary.plot(rows, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 1000


def test_a_child_over_its_limit_is_a_row(tmp_path):
    answer = phases.ask({"action": "first"}, settings(limit=0.01), tmp_path)
    assert answer["status"] == "timeout"


def test_ratios_pair_the_rounds():
    base, other = [1.0, 10.0, 2.0], [2.0, 20.0, 4.0]
    assert figures.ratio(base, other) == figures.Spread(0.5, 0.5, 0.5)
    assert figures.ratio([1.0], [2.0, 4.0]).middle == pytest.approx(1 / 3)


def test_geomean_is_not_clipped_and_the_worst_is_shown():
    rows = [
        {"engine": "e", "case": name, "status": "ok", "ratio": ratio}
        for name, ratio in (("good", 4.0), ("bad", 0.01))
    ]
    rows.append({"engine": "e", "case": "broken", "status": "error"})
    found = summary.digest(rows, "e")
    assert found.geomean == pytest.approx(0.2)
    assert (found.worst_case, found.worst, found.cases, found.failures) == ("bad", 0.01, 2, 1)


@pytest.mark.parametrize(
    ("seconds", "text"), [(12.34, "12.3 s"), (0.0021, "2.1 ms"), (3.2e-6, "3.2 us")]
)
def test_times_have_units(seconds, text):
    assert summary.time_text(seconds) == text


def test_the_instant_backend_returns_what_the_graph_returned():
    graph = torch.fx.symbolic_trace(lambda x: (x + 1,))
    instant = InstantBackend()(graph, [torch.zeros(2)])
    assert torch.equal(instant(torch.full((2,), 9.0))[0], torch.ones(2))


def test_selection_and_its_errors():
    assert [case.name for case in select("mlp,bert")] == ["mlp", "bert"]
    assert len(select("all")) == len(CASES)
    assert set(GROUPS["main"]) <= set(GROUPS["models"])
    with pytest.raises(KeyError, match="no model 'brt'"):
        select("brt")
    with pytest.raises(KeyError, match="no engine 'tf'"):
        command.settings_of(command.parse(["--engines", "tf"]))
    with pytest.raises(KeyError, match="no phase 'hot'"):
        command.settings_of(command.parse(["--phases", "hot"]))


def test_distance_sees_what_differs():
    x = torch.tensor([1.0, -100.0])
    assert difference(x + 0.1, x) == pytest.approx(1e-3, rel=1e-3)
    assert difference(x.double(), x) == math.inf
    assert difference(x[:1], x) == math.inf
    nan = torch.tensor([1.0, math.nan])
    assert difference(nan, nan) == 0
    assert difference(x, nan) == math.inf
    assert distance({"a": [x]}, {"a": [x]}) == 0
    assert distance([x], [x, x]) == math.inf
    assert gradient_distance([None], [x]) == math.inf
    assert gradient_distance([x, None], [x, None]) == 0
    assert gradient_distance([nan], [x]) == math.inf


def test_gradients_are_excused_only_when_eager_is_as_far_from_the_exact_ones():
    exact, eager = [torch.ones(2).double()], [torch.tensor([1.0, 1.02])]
    assert excused([torch.tensor([0.98, 1.0])], eager, exact)
    assert not excused([torch.tensor([0.9, 1.0])], eager, exact)
    program = CASES["tiny"].program("train")
    assert all(g.dtype is torch.float64 for g in program.exact_gradients())


@pytest.mark.parametrize("off", [1.0, 1.05])
def test_a_wrong_gradient_is_no_rounding(off):
    class Off(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient * off

    program = CASES["tiny"].program("train")
    error = compare("tiny", program, lambda *args: Off.apply(program.target(*args)))
    assert (error > 1) == (off != 1)


def test_the_readme_table_is_filled_between_its_markers():
    rows = [
        {
            "phase": "steady",
            "mode": "infer",
            "case": "mlp",
            "engine": engine,
            "base": "eager",
            "status": "ok",
            "seconds": seconds,
            "ratio": 1e-3 / seconds,
        }
        for engine, seconds in (("eager", 1e-3), ("argand", 5e-4))
    ]
    data = {"machine": {"cpu": "Test", "cores": 2, "torch": "2", "commit": "abc"}, "rows": rows}
    text = f"before\n{written.BEGIN}\nold\n{written.END}\nafter\n"
    filled = written.fill(text, data)
    assert filled.startswith("before\n") and filled.endswith("after\n")
    assert "old" not in filled and "2.00x" in filled and "mlp" in filled
    assert written.fill(filled, data) == filled
    page = f"before\n{written.SUMMARY_BEGIN}\nold\n{written.SUMMARY_END}\nafter\n"
    short = written.summary(page, data)
    assert "| one call: times faster than eager | 2.00 [2.00] |" in short and "old" not in short
    assert written.summary(short, data) == short
