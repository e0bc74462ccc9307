"""``background``: first calls run in eager while a thread compiles; ``compile_seconds``: what is done in time is kept."""

import subprocess
import sys
import textwrap
import threading
import time
import warnings
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import argand
from argand import background
from argand.background import GiveUp, Job, Worker
from argand.support import events

OPTIONS = {"background": True, "cache": False, "measure": False}


def _until(seen: events.Collector, counter: str, call: Any, times: int = 1) -> None:
    """Call until something was counted."""
    until = time.monotonic() + 60
    while seen.total(counter) < times and time.monotonic() < until:
        call()
        time.sleep(0.005)
    assert seen.total(counter) >= times, [e for e in seen.events if isinstance(e, events.Count)]


def _program(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).exp().sum(-1) + 1


def test_first_calls_are_eager_then_compiled_code_takes_over():
    call, x = argand.compile(_program, options=OPTIONS), torch.randn(4, 8)
    with events.collect() as seen:
        torch.testing.assert_close(call(x), _program(x))
        assert not seen.total("capture.graphs")  # the first result waits for nothing
        _until(seen, "background.ready", lambda: torch.testing.assert_close(call(x), _program(x)))
        torch.testing.assert_close(call(x), _program(x))
        again = torch.randn(4, 9)
        call(again)
        assert seen.total("capture.graphs") == 1  # neither does that of another size
        _until(
            seen,
            "background.ready",
            lambda: torch.testing.assert_close(call(again), _program(again)),
            2,
        )
    assert seen.total("capture.graphs") >= 2 and threading.active_count() < 5


def test_training_has_forward_and_backward_of_one_kind():
    torch.manual_seed(0)
    models = [
        torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
        for _ in range(2)
    ]
    models[1].load_state_dict(models[0].state_dict())
    call = argand.compile(models[1], options=OPTIONS)
    optimizers = [torch.optim.SGD(model.parameters(), 0.01) for model in models]

    def step() -> None:
        x = torch.randn(4, 8)
        for optimizer, model in zip(optimizers, (models[0], call), strict=True):
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.step()

    with events.collect() as seen:
        _until(seen, "background.ready", step)
        made = seen.total("compiles")
        step()
    assert seen.total("compiles") == made
    torch.testing.assert_close(dict(models[1].state_dict()), dict(models[0].state_dict()))


def test_a_checkpoint_meets_the_kind_it_began_with():
    call = argand.compile(lambda x: (x.sin() * 2).exp(), options=OPTIONS)
    x = torch.randn(5, requires_grad=True)
    call(x)
    kept = checkpoint(call, x, use_reentrant=False)
    with events.collect() as seen:
        _until(seen, "background.ready", lambda: call(x.detach()))
        _until(seen, "background.ready", lambda: call(x), 2)
    kept.sum().backward()
    torch.testing.assert_close(x.grad, (2 * x.cos() * (x.sin() * 2).exp()).detach())


def test_an_error_is_one_warning(monkeypatch: pytest.MonkeyPatch):
    def fail(*_: Any) -> Any:
        raise RuntimeError("planted")

    monkeypatch.setattr("argand.native.graph_cache.GraphCompiler.__call__", fail)
    call, x = argand.compile(_program, options=OPTIONS), torch.randn(4, 8)
    with events.collect() as seen, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _until(seen, "background.failed", lambda: torch.testing.assert_close(call(x), _program(x)))
        torch.testing.assert_close(call(x), _program(x))
    assert sum("planted" in str(w.message) for w in caught) == 1


def test_deterministic_mode_waits():
    torch.use_deterministic_algorithms(True)
    try:
        with events.collect() as seen:
            x = torch.randn(4, 8)
            torch.testing.assert_close(argand.compile(_program, options=OPTIONS)(x), _program(x))
    finally:
        torch.use_deterministic_algorithms(False)
    assert seen.total("compiles") == 1 and not seen.total("background.ready")


def test_metadata_that_change_meanwhile_change_nothing(monkeypatch: pytest.MonkeyPatch):
    from argand.backends import argand_backend

    real, started, go = argand_backend.run_stage, threading.Event(), threading.Event()

    def slowly(*args: Any) -> Any:
        started.set()
        assert go.wait(30)
        return real(*args)

    monkeypatch.setattr("argand.backends.argand_backend.run_stage", slowly)
    w = torch.nn.Parameter(torch.randn(8, 8))
    call, x = argand.compile(lambda x: x @ w, options=OPTIONS), torch.randn(2, 8)
    call(x)
    call(x)
    assert started.wait(30)
    w.requires_grad_(False)
    w.data = torch.randn(8, 16)
    go.set()
    with events.collect() as seen:
        time.sleep(0.3)
        torch.testing.assert_close(call(x), x @ w)
        w.data = torch.randn(8, 8)
        w.requires_grad_(True)
        _until(seen, "background.ready", lambda: call(x))
        found = call(x)
    torch.testing.assert_close(found, x @ w)
    assert found.requires_grad


def test_a_state_of_the_process_that_changes_meanwhile_drops_the_code(
    monkeypatch: pytest.MonkeyPatch,
):
    from argand.backends import argand_backend

    real, run = argand_backend.run_stage, Job.run
    returned, finished = threading.Event(), threading.Event()

    def disturbed(*args: Any) -> Any:
        # or the call itself meets the other state, and is captured under it
        assert returned.wait(60)
        torch.set_default_dtype(torch.float64)
        return real(*args)

    def noted(job: Job) -> None:
        run(job)
        finished.set()

    call, x = argand.compile(lambda x: x + torch.zeros(3), options=OPTIONS), torch.randn(3)
    call(x)
    monkeypatch.setattr("argand.backends.argand_backend.run_stage", disturbed)
    monkeypatch.setattr(Job, "run", noted)
    with events.collect() as seen:
        try:
            call(x)
            returned.set()
            assert finished.wait(60)
        finally:
            torch.set_default_dtype(torch.float32)
        monkeypatch.undo()
        _until(seen, "background.again", lambda: call(x))
        assert call(x).dtype is torch.float32


def test_a_budget_keeps_what_is_done_in_time():
    options = {"compile_seconds": 60, "cache": False, "measure": False}
    x = torch.randn(4, 8)
    with events.collect() as seen:
        torch.testing.assert_close(argand.compile(_program, options=options)(x), _program(x))
    assert seen.total("native.lowered") and not seen.total("background.by_torch")


def test_no_time_is_left_to_torch():
    options = {"compile_seconds": 1e-4, "cache": False, "measure": False}
    x = torch.randn(4, 8, requires_grad=True)
    call = argand.compile(_program, options=options)
    with events.collect() as seen:
        torch.testing.assert_close(call(x), _program(x))
        call(x).sum().backward()
    assert seen.total("background.by_torch") == 1
    torch.testing.assert_close(x.grad, (2 * (2 * x).exp()).detach())


def test_a_job_is_given_up_and_the_next_one_runs():
    worker, ended, started = Worker(), [], threading.Event()

    def forever() -> Any:
        try:
            started.set()
            while True:
                time.sleep(0.001)
        except GiveUp:
            ended.append(1)
            raise

    job, second = Job(forever), Job(lambda: None)  # type: ignore[arg-type,return-value]
    worker.submit(job)
    assert started.wait(60)
    worker.give_up(job)
    worker.submit(second)
    assert second.done.wait(10) and job.done.wait(10) and ended == [1]


def test_a_thread_that_is_told_to_end_says_nothing():
    text = """
        import time
        from argand.background import Job, Worker

        class Finalized:
            def __del__(self):
                for _ in range(300):
                    time.sleep(0.0001)

        def program():
            while True:
                Finalized()
                for _ in range(300):
                    time.sleep(0.0001)

        for seconds in (0.0, 0.001, 0.02):
            worker = Worker()
            worker.submit(Job(program))
            time.sleep(seconds)
            worker.end()
        for _ in range(300):
            idle = Worker()
            idle.submit(Job(lambda: None))
            idle.end()  # told when it is about to end by itself
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)], timeout=60, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_code_is_traced_as_before_when_a_thread_has_ended():
    """An interpreter that still looks for an exception would run the first instruction of a traced function for ever."""
    text = """
        import sys
        from argand.background import Job, Worker

        for _ in range(20):
            worker = Worker()
            job = Job(lambda: None)
            worker.submit(job)
            thread = worker._thread
            job.done.wait()
            if thread is not None:
                thread.join()

        seen = []
        sys.settrace(lambda frame, event, arg: seen.append(event))
        (lambda: None)()
        sys.settrace(None)
        assert seen[0] == "call", seen
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)], timeout=60, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_thread_begins_when_the_call_that_captures_has_its_result(
    monkeypatch: pytest.MonkeyPatch,
):
    job, started, seen = Job(lambda: None), [], []  # type: ignore[arg-type,return-value,var-annotated]
    graph = torch.fx.symbolic_trace(torch.nn.ReLU())
    monkeypatch.setattr(graph, "forward", lambda x: seen.append(list(started)) or x.relu())
    call = background.BackgroundGraph(graph, job, started.append, lambda _: None)
    assert not started
    call(torch.ones(2)), call(torch.ones(2))
    assert seen == [[], [job]] and started == [job]


@pytest.mark.parametrize("wait", [0.0, 0.05, 0.2])
def test_an_exit_in_the_middle_neither_hangs_nor_crashes(wait: float):
    text = f"""
        import time, torch, argand
        model = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU()) for _ in range(8)))
        call = argand.compile(model, options={{"background": True, "cache": False}})
        call(torch.ones(2, 16)), call(torch.ones(2, 16)), time.sleep({wait})
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)], timeout=60, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_calls_are_eagers_until_capture_has_nothing_to_import(monkeypatch):
    answers = iter([False, False, True, True, True])
    monkeypatch.setattr(background.Preparation, "is_done", lambda self, code: next(answers))
    call = argand.compile(lambda x: x.sin() + 1, options={"background": True, "cache": False})
    with events.collect() as seen:
        for compiles in (0, 0, 1, 1):
            call(torch.ones(3))
            assert seen.total("compiles") == compiles


def test_imports_wait_for_the_second_call_and_are_made_once(monkeypatch):
    left, begun = threading.Event(), []

    def imports(caller, code):
        begun.append(code)
        left.wait(60)

    monkeypatch.setattr(background, "_import_capture", imports)
    monkeypatch.setattr(background, "_CAPTURE", "argand.not_there_yet")
    preparation = background.Preparation()
    code = test_imports_wait_for_the_second_call_and_are_made_once.__code__
    # a first step may have its backward pass before it
    assert not preparation.is_done(code) and preparation._job is None
    assert not preparation.is_done(code) and not preparation.is_done(code)
    left.set()
    preparation._job.done.wait(60)
    assert preparation.is_done(code) and begun == [code]


def test_who_is_in_a_call_is_seen():
    def program():
        return background._runs(threading.get_ident(), program.__code__)

    assert program() and not background._runs(threading.get_ident(), program.__code__)


def test_everything_that_is_imported_aside_can_be():
    background._import_capture(0, test_who_is_in_a_call_is_seen.__code__)
    assert background._CAPTURE in sys.modules
