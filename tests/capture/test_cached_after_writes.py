"""Functions with a cache that are called after the trace has written: asked for early only where it cannot matter."""

import functools

import pytest
import torch

import argand
from argand.support import events

OWN = {"cache": False, "measure": False, "fallback_random": True}


class Plan:
    """What a cache holds: an object with lists, known by what it is."""

    def __init__(self, text):
        self.order = [int(part) for part in text.split()]
        self.names = {part: k for k, part in enumerate(text.split())}


@functools.lru_cache(8)
def plan_of(text):
    return Plan(text)


@functools.lru_cache(8)
def shape_of(plan, shape, scale=1):
    return [shape[k] * scale for k in plan.order], {}


def _drawn(x, log):
    return torch.dropout(x, 0.5, True)


def _written(x, log):
    log.append(x.shape[0])
    return x


def _in_place(x, log):
    return x.add_(1)


def _attribute(x, log):
    held.count += 1
    return x


class Held:
    count, size = 0, 1


held = Held()


@pytest.mark.parametrize("first", [_drawn, _written, _in_place, _attribute])
def test_what_a_cache_holds_is_no_break_after_the_trace_has_written(first):
    def program(x, log):
        x = first(x, log)
        plan = plan_of("1 0")
        shape, _ = shape_of(plan, tuple(x.shape))
        return x.reshape(shape) * plan.names["0"], plan, list(log)

    call = argand.compile(program, options=OWN)
    plan_of.cache_clear()
    shape_of.cache_clear()
    for _ in range(2):
        results = []
        for function in (program, call):
            torch.manual_seed(0)
            log, x = [], torch.arange(12.0).reshape(3, 4)
            with events.collect() as seen:
                results.append((*function(x, log), x))
            assert seen.total("capture.breaks") == 0
        for one, other in zip(*results, strict=True):
            if isinstance(one, torch.Tensor):
                torch.testing.assert_close(one, other)
            else:
                assert one is other or one == other


COUNT = 0
ROWS = [1, 2]
NESTED = [ROWS]
PARTS = Held()
PARTS.rows = ROWS


class Settings:
    size = 1


def _by_global(k):
    return Plan(f"{k + COUNT}")


def _by_list(k):
    return Plan(f"{k + len(ROWS)}")


def _by_nested(k):
    return Plan(f"{k + len(NESTED[0])}")


def _by_class(k):
    return Plan(f"{k + Settings.size}")


def _by_object(k):
    return Plan(f"{k + PARTS.size}")


def _by_list_of_object(k):
    return Plan(f"{k + PARTS.rows[-1]}")


def _by_function(k):
    return Plan(f"{k + _by_function.size}")


def _by_bound(k, count=ROWS.count):
    return Plan(f"{k + count(7)}")


def _by_grad_mode(k):
    return Plan(f"{k + torch.is_grad_enabled()}")


READERS = (
    _by_global,
    _by_list,
    _by_nested,
    _by_class,
    _by_object,
    _by_list_of_object,
    _by_function,
    _by_bound,
    _by_grad_mode,
)


def _reset():
    global COUNT
    COUNT, Settings.size, PARTS.size, _by_function.size = 0, 1, 1, 1
    ROWS[:] = [1, 2]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("met_before", [False, True])
def test_what_the_trace_has_written_is_what_a_cached_function_reads(reader, met_before):
    cached = functools.lru_cache(reader)

    def program(x):
        global COUNT
        if met_before:
            x = x + len(NESTED[0]) + PARTS.rows[0] + PARTS.size
        COUNT += 1
        ROWS.append(7)
        Settings.size += 1
        PARTS.size += 1
        _by_function.size += 1
        return x + cached(1).order[0]

    answers = []
    for compiled in (False, True):
        _reset()
        cached.cache_clear()
        call = argand.compile(program, options=OWN) if compiled else program
        with torch.no_grad():
            told = [call(torch.ones(2)).tolist() for _ in range(2)]
            cached.cache_clear()
            answers.append([*told, call(torch.ones(2)).tolist()])
    _reset()
    assert answers[0] == answers[1]
