"""Programs that raise, or not: who raises, by what the exception is met, and where the graph breaks.

`RAISERS` do an operation on `x` that goes wrong when `bad`; `SHAPES` put one into a `try`, a `with` or a generator. Both call
`cut`, which breaks the graph or does nothing, and note in `log` what was run.
"""

from __future__ import annotations

import contextlib

import torch


def by_user(x, bad):
    if bad:
        raise ValueError("the user's")
    return x + 1


def by_callee(x, bad):
    return _callee(x * 2, bad)


def _callee(x, bad):
    y = x + 1
    if bad:
        raise KeyError("a callee's")
    return y


def by_python(x, bad):
    return x + int("x" if bad else "1")


def by_shape(x, bad):
    return x @ torch.ones(7 if bad else 3)


def by_kernel(x, bad):
    return torch.index_select(x * 2, 0, torch.full((1,), 9 if bad else 1)) + 1


def by_kernel_on_data(x, bad):
    index = (x.sum() * 0).long() + (9 if bad else 1)
    return (x + 1)[index]


RAISERS = {
    f.__name__: f for f in (by_user, by_callee, by_python, by_shape, by_kernel, by_kernel_on_data)
}


class Manager:
    def __init__(self, log, hides):
        self.log, self.hides = log, hides

    def __enter__(self):
        self.log.append("enter")
        return 2

    def __exit__(self, kind, error, trace):
        self.log.append(("exit", None if kind is None else kind.__name__))
        return self.hides


def caught(x, bad, cut, log, run):
    try:
        y = x * 2
        cut()
        y = y + run(x, bad)
        log.append("body")
    except Exception as error:
        log.append(type(error).__name__)
        return x * 7
    return y


def not_matched(x, bad, cut, log, run):
    try:
        cut()
        y = run(x, bad)
    except (OSError, AttributeError):
        log.append("never")
        y = x
    log.append("after")
    return y * 2


def finally_(x, bad, cut, log, run):
    y = x
    try:
        y = run(x + 1, bad)
        cut()
    finally:
        log.append("finally")
    return y


def all_parts(x, bad, cut, log, run):
    try:
        y = run(x, bad)
    except Exception:
        log.append("except")
        cut()
        y = x - 1
    else:
        log.append("else")
        y = y + 1
    finally:
        log.append("finally")
    return y


def raised_again(x, bad, cut, log, run):
    try:
        cut()
        return run(x, bad)
    except Exception as error:
        log.append(str(error)[:20])
        raise


def raised_from(x, bad, cut, log, run):
    try:
        y = run(x, bad)
    except Exception as error:
        cut()
        raise RuntimeError("wrapped") from error
    return y * 2


def managed(x, bad, cut, log, run):
    with Manager(log, False) as n:
        cut()
        y = run(x * n, bad)
        log.append("body")
    return y


def hidden(x, bad, cut, log, run):
    y = x
    with Manager(log, True):
        y = run(x, bad)
        cut()
    return y + 1


def nested(x, bad, cut, log, run):
    try:
        with Manager(log, False):
            try:
                cut()
                y = run(x, bad)
            finally:
                log.append("inner")
    except (ValueError, IndexError, KeyError, RuntimeError):
        log.append("outer")
        y = x * 3
    return y


@contextlib.contextmanager
def _noted(log):
    log.append("begin")
    try:
        yield 3
    finally:
        log.append("end")


def generator_manager(x, bad, cut, log, run):
    with _noted(log) as n:
        y = x * n
        cut()
        return run(y, bad)


def _parts(x, bad, log, run):
    try:
        for i in range(3):
            yield run(x, bad and i == 1) * i
    finally:
        log.append("closed")


def generator(x, bad, cut, log, run):
    y = x
    for part in _parts(x, bad, log, run):
        y = y + part.sum()
        cut()
    return y


def in_a_loop(x, bad, cut, log, run):
    y = x
    for i in range(3):
        try:
            y = y + run(x, bad and i == 1).sum()
        except Exception:
            log.append(i)
            continue
        cut()
    return y


def written(x, bad, cut, log, run):
    x.add_(1)
    try:
        x.mul_(2)
        y = run(x, bad)
        cut()
    except Exception:
        log.append("caught")
        y = x * 5
    return y


def not_met(x, bad, cut, log, run):
    y = x * 2
    cut()
    log.append("before")
    y = run(y, bad)
    log.append("after")
    return y


SHAPES = {
    f.__name__: f
    for f in (
        caught,
        not_matched,
        finally_,
        all_parts,
        raised_again,
        raised_from,
        managed,
        hidden,
        nested,
    )
    + (generator_manager, generator, in_a_loop, written, not_met)
}
