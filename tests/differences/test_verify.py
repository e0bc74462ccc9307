"""``verify="results"``: every call compared with eager. Faults are put into the compiler and have to be found."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import argand
from argand.capture.write import effects
from argand.native.lower.table import TABLE
from argand.runtime import guard_programs
from argand.runtime.guards import GuardKind
from argand.support import events
from argand.support.errors import OptionError, ResultsDiffer
from argand.support.options import make_options

OPTIONS = {"verify": "results", "strict": True}


def _verified(model: Any, *args: Any, **more: object) -> tuple[Any, events.Collector]:
    with events.collect() as seen:
        return argand.compile(model, options=OPTIONS | more)(*args), seen


class Everything(torch.nn.Module):
    """State, statistics, written inputs, lists, random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = torch.nn.BatchNorm1d(8), torch.nn.Linear(16, 8)
        self.calls, self.seen = 0, []

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, dict[str, Any]]:
        self.calls += 1
        self.seen.append(self.calls)
        x.mul_(2)
        y = torch.nn.functional.dropout(self.norm(self.linear(x)), 0.5)
        return y, {"calls": self.calls, "rows": y.argmax(0)}


def test_right_programs_are_right_and_happen_once():
    torch.manual_seed(3)
    plain, compiled = Everything(), Everything()
    compiled.load_state_dict(plain.state_dict())
    call = argand.compile(compiled, options=OPTIONS)
    with events.collect() as seen:
        for step in range(3):
            x = torch.randn(4, 16)
            y = x.clone()
            torch.manual_seed(step)
            expected, _ = plain(x)
            torch.manual_seed(step)
            found, _ = call(y)
            torch.testing.assert_close(found, expected)
            torch.testing.assert_close(y, x)
            expected.sum().backward()
            found.sum().backward()
    assert compiled.seen == plain.seen == [1, 2, 3]
    torch.testing.assert_close(dict(compiled.state_dict()), dict(plain.state_dict()))
    torch.testing.assert_close(compiled.linear.weight.grad, plain.linear.weight.grad)
    assert seen.total("verify.calls") == seen.total("verify.frames") == 3 and not seen.total(
        "verify.skipped"
    )


def test_a_tensor_with_a_history_may_be_written():
    w = torch.randn(3, requires_grad=True)

    def program(x: torch.Tensor) -> torch.Tensor:
        x.mul_(3)
        return x.exp()

    _verified(program, w * 2)[0].sum().backward()
    torch.testing.assert_close(w.grad, 6 * (6 * w).exp().detach())


def _wrong(name: str, row: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TABLE, name, row)


def test_a_wrong_result_is_found_with_its_line_and_element(monkeypatch: pytest.MonkeyPatch):
    def wrong(context: Any, x: Any) -> Any:
        return context.op("exp", context.op("add", x, 1e-3))

    _wrong("aten.exp.default", wrong, monkeypatch)
    with pytest.raises(
        ResultsDiffer, match=r"result 0.*values differ at \[0\].*3 of 3 elements, exactly"
    ) as caught:
        _verified(lambda x: torch.exp(x) + 1, torch.zeros(3))
    assert caught.value.where is not None and caught.value.where.file == __file__


def test_rounding_is_no_error():
    x = torch.randn(512, 1000)
    _, seen = _verified(
        lambda x: (x.softmax(-1) @ x.t()).logsumexp(0).std() + x.half().float().cumsum(0).sum(), x
    )
    assert seen.total("verify.calls") == 1


def test_a_wrong_gradient_is_found(monkeypatch: pytest.MonkeyPatch):
    def wrong(context: Any, x: Any) -> Any:
        return context.op("sin", x)

    _wrong("aten.cos.default", wrong, monkeypatch)
    with pytest.raises(ResultsDiffer, match="gradient 0"):
        _verified(lambda x: torch.sin(x), torch.randn(4, requires_grad=True))


def test_a_dropped_write_is_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(effects, "_write_shadow", lambda rebuilder, shadow: None)
    with pytest.raises(
        ResultsDiffer, match="a captured frame is wrong: argument 1.*: side effects"
    ):
        _verified(lambda x, log: log.append(1) or x + 1, torch.ones(2), [])


def test_a_stale_entry_is_found(monkeypatch: pytest.MonkeyPatch):
    make = guard_programs.compile_guards

    def fewer(rows: Any, *rest: Any) -> Any:
        return make([row for row in rows if row.kind is not GuardKind.EQUALS], *rest)

    monkeypatch.setattr("argand.runtime.cache.compile_guards", fewer)
    call = argand.compile(lambda x, n: x + n, options=OPTIONS | {"dynamic": False})
    call(torch.ones(2), 1)
    with pytest.raises(ResultsDiffer, match="call 2: a captured frame is wrong: result: values"):
        call(torch.ones(2), 5)


def test_a_report_tells_once_per_call_and_goes_on(monkeypatch: pytest.MonkeyPatch):
    _wrong("aten.exp.default", lambda context, x: context.op("neg", x), monkeypatch)
    with events.collect() as seen, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = argand.compile(lambda x: torch.exp(x), options={"verify": "report"})(torch.ones(2))
    assert found.tolist() == [-1, -1] and seen.total("verify.differs") == 1
    assert (
        "values differ" in str(caught[-1].message)
        and "values differ" in seen.texts("differences")[0]
    )


def test_the_words_of_the_option():
    assert (
        make_options(None, {"verify": True}).verify == "forms"
        and make_options(None, {"verify": False}).verify == ""
    )
    options = make_options(None, {"verify": "results"})
    assert (options.cache, options.measure, options.fallback_random) == (False, False, True)
    with pytest.raises(OptionError, match="cannot be 'result'"):
        make_options(None, {"verify": "result"})
