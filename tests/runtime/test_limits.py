"""Recursion: what Python can do, compiled code can do, and what ends in RecursionError ends in it at once."""

import gc
import sys
import threading
import time
import warnings

import pytest
import torch

import argand
from argand.runtime import _native
from argand.runtime.cache import ArgandWarning
from argand.support import events

OPTIONS = {"cache": False}


def depth(n):
    return 0 if n == 0 else 1 + depth(n - 1)


def deep(x, n):
    return x + depth(n)


@pytest.fixture
def high_limit():
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(60_000)
    yield
    sys.setrecursionlimit(before)


def in_thread(function):
    """The result of a function in a thread of its own."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    return results[0]


@pytest.mark.usefixtures("high_limit")
@pytest.mark.parametrize("run", [lambda function: function(), in_thread])
def test_recursion_without_c_stack_stays_so(run):
    compiled = argand.compile(deep, backend="eager")
    for _ in range(4):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ArgandWarning)
            assert torch.equal(
                run(lambda: compiled(torch.ones(2), 20_000)), torch.full((2,), 20_001.0)
            )
    assert not _native.hook_is_installed()


@pytest.mark.usefixtures("high_limit")
def test_recursion_beside_a_compiled_call_of_another_thread():
    """The hook is there for another thread, and every call takes C stack: it steps aside."""
    inside, done = threading.Event(), threading.Event()

    def other(x):
        inside.set()
        while not done.is_set():
            plain()
        return x

    def plain():
        time.sleep(0.001)

    region = _native.Region(lambda view: None)
    thread = threading.Thread(target=_native.Switch(other, region), args=(1,))
    thread.start()
    inside.wait()
    assert _native.hook_is_installed()
    try:
        assert depth(20_000) == 20_000
        assert in_thread(lambda: depth(20_000)) == 20_000
    finally:
        done.set()
        thread.join()
    assert not _native.hook_is_installed()


def runaway(x):
    return runaway(x + 1)


def test_runaway_recursion_is_an_error_at_once():
    limit, begin = sys.getrecursionlimit(), time.perf_counter()
    with events.collect() as heard, pytest.raises(RecursionError):
        argand.compile(runaway, backend="eager")(torch.ones(3))
    assert heard.total("capture.too_deep") == 1  # not at each depth
    assert time.perf_counter() - begin < 30
    assert sys.getrecursionlimit() == limit


def test_the_programs_handlers_do_not_see_our_limit():
    def caught(x, n):
        try:
            return x + depth(n)
        except RecursionError:
            return x - 1

    compiled = argand.compile(caught, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ArgandWarning)
        assert torch.equal(compiled(torch.ones(2), 100_000), torch.zeros(2))
        assert torch.equal(compiled(torch.ones(2), 3), torch.full((2,), 4.0))


@pytest.fixture
def no_garbage():
    """What other tests left behind is not taken away near the limit, where its finalizers would raise."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_a_first_call_near_the_limit_is_no_error(no_garbage):
    """The compiler needs more calls than the function: it gets what the stack has, and gives nothing up."""

    def helper(x):
        return x.sin() + 1

    compiled = argand.compile(helper, backend="eager", options={"strict": True})

    def go_down(n):
        return go_down(n - 1) if n else compiled(torch.ones(2))

    with events.collect() as heard:
        # Python's own compiler may refuse to work near the limit
        for left in (25, 25, 25, 25, 400):
            assert torch.equal(go_down(_native.recursion_left() - left), torch.ones(2).sin() + 1)
    assert heard.total("compiles") == 1


def test_recursion_too_deep_to_trace_is_left_to_python_after_a_while(no_garbage):
    def down(n, x):
        return x if n == 0 else down(n - 1, x + 1)

    compiled = argand.compile(down, backend="eager")
    with events.collect() as heard, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(5):
            assert torch.equal(
                compiled(_native.recursion_left() - 60, torch.zeros(1)) > 100, torch.tensor([True])
            )
    assert heard.total("capture.too_deep") <= 3
    assert any("too deep" in str(w.message) for w in caught) == (
        heard.total("capture.too_deep") > 0
    )


def test_a_small_stack():
    before = threading.stack_size(512 * 1024)
    try:
        compiled = argand.compile(
            lambda x: torch.relu(x) * 2 + x.sum(), options={**OPTIONS, "strict": True}
        )
        assert torch.equal(in_thread(lambda: compiled(torch.ones(4))), torch.full((4,), 6.0))
        limited = argand.compile(runaway, backend="eager")

        def run():
            with pytest.raises(RecursionError):
                limited(torch.ones(1))
            return True

        assert in_thread(run)
    finally:
        threading.stack_size(before)
