"""Locks, semaphores, queues, thread-locals, pools."""

from __future__ import annotations

import concurrent.futures
import contextvars
import queue
import threading
from typing import Any

from tests.effects.world import case, inside


@case
def lock():
    held = threading.Lock()
    return inside(lambda: held, held.locked)


@case
def reentrant_lock():
    held = threading.RLock()

    def free():
        found = []

        def take():
            found.append(held.acquire(timeout=1))
            held.release()

        other = threading.Thread(target=take)
        other.start()
        other.join()
        return found

    return inside(lambda: held, free)


@case
def lock_by_hand():
    held = threading.Lock()

    def run(x, cut):
        held.acquire()
        try:
            y = x + 1
            cut()
        finally:
            held.release()
        return y

    return run, held.locked


@case
def lock_that_is_kept():
    held = threading.Lock()

    def run(x, cut):
        free = held.acquire(blocking=False)
        cut()
        return x + 1 if free else x - 1

    return run, held.locked


@case
def semaphore():
    tickets = threading.Semaphore(10)

    def run(x, cut):
        tickets.acquire()
        cut()
        return x + 1

    return run, lambda: tickets._value


@case
def condition_and_event():
    done, condition = threading.Event(), threading.Condition()
    values: list[int] = []

    def run(x, cut):
        with condition:
            values.append(1)
            cut()
            condition.notify_all()
        done.set()
        return x + len(values)

    return run, lambda: (done.is_set(), list(values))


@case
def thread_local():
    local = threading.local()
    local.n = 0

    def run(x, cut):
        local.n += 1
        cut()
        return x + local.n

    return run, lambda: local.n


@case
def context_variable():
    variable = contextvars.ContextVar("variable", default=0)

    def run(x, cut):
        token = variable.set(variable.get() + 1)
        y = x + variable.get()
        cut()
        if variable.get() % 2:
            variable.reset(token)
        return y

    return run, variable.get


@case
def queues():
    many: Any = queue.Queue()
    simple: Any = queue.SimpleQueue()

    def run(x, cut):
        many.put(1)
        cut()
        simple.put(2)
        return x + many.qsize() + simple.qsize()

    return run, lambda: (many.qsize(), simple.qsize())


@case
def thread_pool():
    pool = concurrent.futures.ThreadPoolExecutor(1)
    calls: list[int] = []

    def work(n):
        calls.append(n)
        return n

    def run(x, cut):
        future = pool.submit(work, 3)
        cut()
        return x * future.result()

    return run, lambda: list(calls)


@case
def a_thread_of_its_own():
    calls: list[int] = []

    def run(x, cut):
        thread = threading.Thread(target=calls.append, args=(1,))
        thread.start()
        cut()
        thread.join()
        return x + 1

    return run, lambda: list(calls)
