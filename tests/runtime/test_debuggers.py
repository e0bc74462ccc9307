"""Breakpoints in compiled functions stop in the user's frame, at every call; what only watches changes nothing."""

import bdb
import sys
import warnings

import pytest
import torch

import argand
from argand.runtime import debuggers
from argand.support import events


def helper(x):
    doubled = x * 2
    return doubled + 1


def program(x):
    y = x.sin()
    z = helper(y)
    return z.cos()


@pytest.fixture(autouse=True)
def _tools_go_on():
    """What follows the tests themselves (coverage) is taken away by a debugger, and put back."""
    before = sys.gettrace()
    yield
    sys.settrace(before)


LINE = helper.__code__.co_firstlineno + 2


class Stops(bdb.Bdb):
    def __init__(self) -> None:
        super().__init__()
        self.seen = []

    def user_line(self, frame):
        if (frame.f_code.co_name, frame.f_lineno) == ("helper", LINE):
            self.seen.append(sorted(frame.f_locals))
        self.set_continue()


def _under(debugger: bdb.Bdb, call, times: int) -> None:
    def run():
        for _ in range(times):
            call(torch.ones(3))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        debugger.runcall(run)


def test_a_breakpoint_in_an_inlined_function_stops_at_every_call():
    call = argand.compile(program)
    before = call(torch.ones(3))
    debugger = Stops()
    debugger.set_break(__file__, LINE)
    try:
        _under(debugger, call, 3)
    finally:
        debugger.clear_all_breaks()
    assert debugger.seen == [["doubled", "x"]] * 3
    with events.collect() as seen:
        torch.testing.assert_close(call(torch.ones(3)), before)  # compiled as before, and not again
    assert seen.total("compiles") == 0


def test_it_is_said_once():
    debuggers._tell.cache_clear()
    call, debugger = argand.compile(program), Stops()
    debugger.set_break(__file__, LINE)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        debugger.runcall(lambda: [call(torch.ones(3)) for _ in range(3)])
    debugger.clear_all_breaks()
    assert [str(w.message) for w in caught if "debugger" in str(w.message)] == [
        "argand: compiled functions run in Python while a debugger follows them"
    ]


def test_a_tool_that_only_watches_changes_nothing():
    call = argand.compile(program)
    call(torch.ones(3))
    lines, before = [], sys.gettrace()

    def watch(frame, event, argument):
        lines.append(frame.f_code.co_name)
        return watch

    sys.settrace(watch)
    try:
        call(torch.ones(3))
    finally:
        sys.settrace(before)
    assert "helper" not in lines


def test_breakpoint_calls_stop_in_the_users_frame(monkeypatch):
    stops = []

    def hook():
        frame = sys._getframe(1)
        stops.append((frame.f_code.co_name, sorted(frame.f_locals)))

    monkeypatch.setattr(sys, "breakpointhook", hook)

    def inner(w):
        v = w + 1
        breakpoint()
        return v * 2

    def outer(x):
        y = inner(x.sin())
        return y.cos()

    call = argand.compile(outer)
    for _ in range(2):
        call(torch.ones(2))
    assert stops == [("inner", ["v", "w"])] * 2


if hasattr(sys, "monitoring"):  # Python 3.12 and later

    def test_a_breakpoint_of_a_debugger_that_monitors_stops_at_every_call():
        call, monitoring, lines = argand.compile(program), sys.monitoring, []
        before = call(torch.ones(3))
        tool = monitoring.DEBUGGER_ID
        monitoring.use_tool_id(tool, "tests")
        try:
            monitoring.register_callback(
                tool, monitoring.events.LINE, lambda code, n: lines.append(n)
            )
            monitoring.set_local_events(tool, helper.__code__, monitoring.events.LINE)
            for _ in range(3):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    call(torch.ones(3))
        finally:
            monitoring.set_local_events(tool, helper.__code__, 0)
            monitoring.register_callback(tool, monitoring.events.LINE, None)
            monitoring.free_tool_id(tool)
        assert lines.count(LINE) == 3
        with events.collect() as seen:
            torch.testing.assert_close(call(torch.ones(3)), before)
        assert seen.total("compiles") == 0 and lines.count(LINE) == 3


def test_a_name_that_monitors_is_a_debuggers(monkeypatch):
    told = []
    monkeypatch.setattr(debuggers, "_tell", lambda: told.append(1))
    assert debuggers.is_debugger("debugpy") and told == [1]
