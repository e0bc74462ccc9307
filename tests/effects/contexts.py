"""Warnings, mocks, contexts and finalizers."""

from __future__ import annotations

import contextlib
import decimal
import gc
import os
import types
import warnings
from unittest import mock

import numpy as np

from tests.effects.world import case


@case
def warning():
    seen: list[str] = []

    def show(message, category, filename, lineno, *_):
        if str(message).startswith("argand"):
            return
        seen.append((str(message), category.__name__, os.path.basename(filename)))

    def run(x, cut):
        warnings.warn("one", stacklevel=1)
        cut()
        return x + 1

    def watched(x, cut):
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = show
            return run(x, cut)

    return watched, lambda: list(seen)


@case
def warning_filters():
    def run(x, cut):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cut()
            warnings.warn("never shown", stacklevel=1)
        return x + 1

    return run, lambda: list(warnings.filters)


@case
def warnings_are_errors():
    handled: list[str] = []

    def run(x, cut):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                warnings.warn("one", stacklevel=1)
                cut()
            except UserWarning as error:
                handled.append(str(error))
        return x + len(handled)

    return run, lambda: list(handled)


@case
def decimal_context():
    decimal.getcontext().clear_flags()
    third = decimal.Decimal(1)

    def run(x, cut):
        with decimal.localcontext() as context:
            context.prec = 5
            part = third / 3
            cut()
        return x + float(part) + float(third / 7)

    return run, lambda: (
        decimal.getcontext().prec,
        [str(k) for k, v in decimal.getcontext().flags.items() if v],
    )


@case
def numpy_errors():
    def run(x, cut):
        with np.errstate(divide="raise"):
            y = x + 1
            cut()
        np.seterr(over="ignore")
        return y

    return run, np.geterr


@case
def mocks():
    called, patched = mock.Mock(return_value=2), types.SimpleNamespace(n=1)
    table = {"a": 1}

    def run(x, cut):
        y = x + called(1)
        with mock.patch.object(patched, "n", 5), mock.patch.dict(table, {"b": 2}):
            y = y + patched.n + len(table)
            cut()
        return y

    return run, lambda: (called.call_count, called.mock_calls, patched.n, dict(table))


@case
def own_manager():
    log: list[str] = []

    class Manager:
        def __enter__(self):
            log.append("enter")
            return 3

        def __exit__(self, *error):
            log.append("exit")

    manager = Manager()

    def run(x, cut):
        with manager as n:
            y = x * n
            cut()
        return y

    return run, lambda: list(log)


@case
def manager_of_a_generator():
    stack: list[int] = []

    @contextlib.contextmanager
    def pushed(n):
        stack.append(n)
        try:
            yield n
        finally:
            stack.append(-n)

    def run(x, cut):
        with pushed(1) as a, contextlib.ExitStack() as later:
            later.callback(stack.append, 7)
            b = later.enter_context(pushed(2))
            cut()
            y = x + a + b
        return y

    return run, lambda: list(stack)


@case
def finalizers():
    gone: list[int] = []

    class Thing:
        def __del__(self):
            gone.append(1)

    def run(x, cut):
        thing = Thing()
        cut()
        y = x + 1
        del thing
        return y

    def look():
        gc.collect()  # the first call leaves a cycle
        return len(gone)

    return run, look
