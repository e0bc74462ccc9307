"""What belongs to the process: signals, environment, interpreter."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys

from tests.effects.world import case


@case
def signals():
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)

    def handler(*_):
        pass

    def run(x, cut):
        before = signal.signal(signal.SIGUSR1, handler)
        cut()
        signal.signal(signal.SIGUSR1, before)
        signal.signal(signal.SIGUSR2, handler)
        return x + 1

    return run, lambda: (
        signal.getsignal(signal.SIGUSR1),
        signal.getsignal(signal.SIGUSR2).__name__,
    )


@case
def environment():
    os.environ.pop("STRANGE", None)

    def run(x, cut):
        os.environ["STRANGE"] = os.environ.get("STRANGE", "") + "a"
        cut()
        return x + len(os.environ["STRANGE"])

    return run, lambda: os.environ.get("STRANGE")


@case
def interpreter_settings():
    sys.setrecursionlimit(3000)
    gc.enable()

    def run(x, cut):
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(limit + 1)
        gc.disable()
        cut()
        y = x + limit
        gc.enable()
        return y

    return run, lambda: (sys.getrecursionlimit(), gc.isenabled())


@case
def exit_functions():
    calls: list[int] = []

    def leave():
        calls.append(1)

    def run(x, cut):
        atexit.register(leave)
        cut()
        atexit.unregister(leave)
        return x + 1

    before = atexit._ncallbacks()
    return run, lambda: (atexit._ncallbacks() - before, list(calls))


@case
def modules_path():
    def run(x, cut):
        sys.path.append("/nowhere")
        cut()
        sys.path.pop()
        return x + 1

    return run, lambda: list(sys.path)
