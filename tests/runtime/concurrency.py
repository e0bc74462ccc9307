"""Threads, forks and signals while the compiler works: nobody waits for good, nothing is seen half done."""

import ctypes
import gc
import importlib
import os
import signal
import sys
import threading
import time

import pytest
import torch

import argand
from argand.runtime import _native, quiet
from argand.support import events
from argand.support.locks import Turns, make_lock

OPTIONS = {"cache": False, "strict": True}


def join(threads, seconds=60):
    """Whether all threads ended in time."""
    end = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(end - time.monotonic(), 0))
    return not any(thread.is_alive() for thread in threads)


def start(*functions):
    threads = [threading.Thread(target=function, daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    return threads


class Slow:
    """A backend that compiles until it is told to go on."""

    def __init__(self):
        self.began, self.go_on, self.compiled = threading.Event(), threading.Event(), 0

    def __call__(self, graph, inputs):
        self.began.set()
        self.go_on.wait(30)
        self.compiled += 1
        return graph.forward


# ---- threads ----


def test_an_import_that_compiles_beside_a_compile_that_imports(tmp_path, monkeypatch):
    name = "argand_test_imported_while_compiling"
    text = "import time, torch, argand\ntime.sleep(0.3)\nargand.compile(lambda x: x + 1, backend='eager')(torch.ones(2))\n"
    (tmp_path / f"{name}.py").write_text(text + "V = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    results = []

    def f(x):
        import argand_test_imported_while_compiling as module

        return x * module.V

    def compile_it():
        time.sleep(0.1)
        results.append(argand.compile(f, backend="eager")(torch.ones(2)))

    assert join(start(lambda: importlib.import_module(name), compile_it)), "deadlock"
    assert torch.equal(results[0], torch.full((2,), 3.0))
    sys.modules.pop(name)


def test_no_lock_is_held_while_a_frame_is_compiled():
    """A lock of the user's, held by a thread that compiles, and wanted by a compile of another one."""
    lock, inside, slow = threading.Lock(), threading.Event(), Slow()
    results = []

    def holder():
        with lock:
            inside.set()
            results.append(argand.compile(lambda x: x - 1, backend="eager")(torch.ones(2)))

    def wanter(graph, inputs):
        slow.began.set()
        inside.wait(30)
        with lock:
            return graph.forward

    def compile_it():
        results.append(argand.compile(lambda x: x + 1, backend=wanter)(torch.ones(2)))

    threads = start(compile_it)
    slow.began.wait(30)
    assert join(threads + start(holder)), "deadlock"
    assert len(results) == 2


def test_threads_at_one_frame_compile_it_once():
    slow, results = Slow(), []
    compiled = argand.compile(lambda x: x.sin() + 1, backend=slow)
    threads = start(*[lambda: results.append(compiled(torch.ones(3)))] * 8)
    slow.began.wait(30)
    time.sleep(0.05)
    slow.go_on.set()
    assert join(threads)
    assert slow.compiled == 1 and len(results) == 8
    assert all(torch.equal(result, torch.ones(3).sin() + 1) for result in results)


def test_a_thread_that_waited_long_compiles_itself_and_one_entry_stays(monkeypatch):
    slow, results = Slow(), []
    compiled = argand.compile(lambda x: x.cos() + 1, backend=slow)
    monkeypatch.setattr(compiled.region.callback.__self__, "_turns", Turns(patience=0.05))
    first = start(lambda: results.append(compiled(torch.ones(3))))
    slow.began.wait(30)
    more = start(lambda: results.append(compiled(torch.ones(3))))
    time.sleep(0.3)
    slow.go_on.set()
    assert join(first + more)
    assert slow.compiled == 2 and len(results) == 2
    assert len(compiled.region.entries(compiled.__wrapped__.__code__)) == 1


def test_what_another_thread_changed_meanwhile_is_no_failure_of_ours():
    """The guards of a new entry do not hold any more: the frame runs, and is compiled at another call."""
    state = {"scale": 2}

    def f(x):
        return x * state["scale"]

    def changes(graph, inputs):
        state["scale"] += 1
        return graph.forward

    compiled, stop = (
        argand.compile(f, backend=changes, options={"recompile_limit": 50}),
        threading.Event(),
    )
    other = start(stop.wait)
    with events.collect() as heard:
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0))
    assert heard.total("compile.moved") == 1
    stop.set()
    join(other)


def test_turns_can_be_taken_again_by_their_thread():
    turns, lock = Turns(), make_lock()
    with turns.take("it"), turns.take("it"), lock, lock:
        pass
    with turns.take("it"):
        assert join(start(lambda: turns.take("another").__enter__()), 5)


def test_collections_and_anomalies_come_back_with_several_threads():
    slow = Slow()
    with torch.autograd.detect_anomaly():
        threads = start(
            *[
                lambda n=n: argand.compile(lambda x: x + n, backend=slow)(torch.ones(2))
                for n in range(3)
            ]
        )
        slow.began.wait(30)
        slow.go_on.set()
        assert join(threads)
        assert torch.is_anomaly_enabled()
    assert gc.isenabled()


# ---- forks ----


def in_child(check):
    """Whether a check succeeds in a child process, in time."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(60)
            code = 0 if check() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.fixture
def forks_are_quiet(recwarn):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a pool of threads does not live in a child
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("forks_are_quiet")
def test_a_fork_while_another_thread_compiles():
    slow, x = Slow(), torch.ones(3)
    compiled = argand.compile(lambda x: x.sin() + 1, backend=slow)
    threads = start(lambda: compiled(x))
    slow.began.wait(30)

    def check():
        right = torch.allclose(
            argand.compile(lambda x: x.cos() * 2, options=OPTIONS)(x), x.cos() * 2
        )
        slow.go_on.set()
        argand.reset()
        # the very frame that the other thread was at
        right &= torch.equal(compiled(x), x.sin() + 1)
        return right and gc.isenabled() and not _native.hook_is_installed()

    assert in_child(check)
    slow.go_on.set()
    assert join(threads)


@pytest.mark.usefixtures("forks_are_quiet")
def test_a_fork_while_another_thread_runs_compiled_code():
    inside, go_on = threading.Event(), threading.Event()

    def f():
        inside.set()
        go_on.wait(30)

    region = _native.Region(lambda view: None)
    threads = start(_native.Switch(f, region))
    inside.wait(30)
    assert _native.hook_is_installed()
    assert in_child(lambda: not _native.hook_is_installed() and _native.current_region() is None)
    go_on.set()
    assert join(threads)


@pytest.mark.usefixtures("forks_are_quiet")
def test_a_fork_by_the_thread_that_compiles():
    answers = []

    def forks(graph, inputs):
        answers.append(
            in_child(
                lambda: torch.equal(
                    argand.compile(torch.sin, backend="eager")(inputs[0]), inputs[0].sin()
                )
            )
        )
        return graph.forward

    argand.compile(lambda x: x + 1, backend=forks)(torch.ones(2))
    assert answers == [True]


@pytest.mark.usefixtures("forks_are_quiet")
def test_every_lock_is_free_in_a_child():
    locks, held, go_on = [make_lock() for _ in range(3)], threading.Event(), threading.Event()

    def hold():
        with locks[0], locks[1], locks[2]:
            held.set()
            go_on.wait(30)

    threads = start(hold)
    held.wait(30)
    assert in_child(lambda: all(lock.acquire(timeout=5) for lock in locks))
    go_on.set()
    assert join(threads)


# ---- signals ----


@pytest.fixture
def usr1():
    before = signal.getsignal(signal.SIGUSR1)
    yield signal.SIGUSR1
    signal.signal(signal.SIGUSR1, before)


def raising_backend(number):
    """A backend during whose work a signal comes."""

    def backend(graph, inputs):
        signal.raise_signal(number)
        return graph.forward

    return backend


def test_a_handler_waits_for_the_compiler_and_may_compile(usr1):
    inner, seen = argand.compile(lambda x: (x * 2).sum(), options=OPTIONS), []

    def handler(number, frame):
        seen.append((torch._C._len_torch_dispatch_stack(), inner(torch.ones(3)).item()))

    signal.signal(usr1, handler)

    def f(x):
        return (x + 1).sin()

    def traced(graph, inputs):
        assert not seen
        return raising_backend(usr1)(graph, inputs)

    assert torch.equal(argand.compile(f, backend=traced)(torch.ones(2)), f(torch.ones(2)))
    assert seen == [(0, 6.0)]
    assert signal.getsignal(usr1) is handler


def test_what_a_handler_raises_is_not_the_programs(usr1):
    """A handler of a timeout, during the trace of a function that catches everything."""

    def handler(number, frame):
        raise TimeoutError("of the handler")

    signal.signal(usr1, handler)

    def f(x):
        try:
            return x + 1
        except Exception:
            return x - 1

    compiled = argand.compile(f, backend=raising_backend(usr1))
    with pytest.raises(TimeoutError):
        compiled(torch.ones(2))
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))


def test_handlers_set_meanwhile_stay(usr1):
    signal.signal(usr1, lambda number, frame: None)

    def newer(number, frame):
        return None

    with quiet.compiling():
        signal.signal(usr1, newer)
    assert signal.getsignal(usr1) is newer


def test_ctrl_c_ends_a_compile():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            argand.compile(lambda x: x + 1, backend=raising_backend(signal.SIGINT))(torch.ones(2))
    finally:
        signal.signal(signal.SIGINT, before)
    assert gc.isenabled() and signal.getsignal(signal.SIGINT) is before


def test_system_calls_are_restarted_as_before(usr1):
    """signal.signal would make a handler interrupt C code that does not expect it."""
    signal.signal(usr1, lambda number, frame: None)
    signal.siginterrupt(usr1, False)
    with quiet.compiling():
        pass
    action = (ctypes.c_char * 256)()
    ctypes.CDLL(None).sigaction(int(usr1), None, ctypes.byref(action))
    # glibc's struct: handler, mask of 128 bytes, flags
    flags = int.from_bytes(bytes(action)[136:140], "little")
    assert flags & 0x10000000  # SA_RESTART


def test_a_signal_at_any_moment_of_many_compiles(usr1):
    inner = argand.compile(lambda x: (x * 2).sin().sum(), options=OPTIONS)
    x, bad, calls = torch.linspace(0, 1, 7), [], []
    wanted = (x * 2).sin().sum()

    def handler(number, frame):
        calls.append(1)
        if not torch.allclose(inner(x), wanted):
            bad.append(1)

    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.005, 0.003)
    try:
        for n in range(6):
            argand.reset()
            f = argand.compile(lambda x, n=n: torch.nn.functional.gelu(x @ x) + n, options=OPTIONS)
            for _ in range(3):
                f(torch.ones(4, 4))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    assert calls and not bad
