"""tools.cpython.child: one process that runs tests of one module, plainly or compiled.

In: a `Job` and a file for results.  Out: a line per test before and after it, so that whoever started the process
knows in which test it died. A test that works longer than its limit ends the process by a signal.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import inspect
import json
import os
import pathlib
import random
import signal
import tempfile
import types
import unittest
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TextIO

import torch

import argand
from argand.runtime import skips
from argand.runtime.cache import ArgandWarning

RUNS = 2  # the first compiles, the second is answered by what was compiled
SHOWN = 2000  # characters of an error
OPTIONS = {"strict": True, "recompile_limit": 64}

_STANDARD = skips.is_standard
_TESTS = os.path.dirname(importlib.import_module("test").__file__ or "") + os.sep


class Job(NamedTuple):
    """What a process is to do."""

    module: str
    mode: str
    done: frozenset[str]  # tests to leave out
    only: str  # a part of the names of the others
    limit: float  # seconds of work for each


def _is_standard(code: types.CodeType) -> bool:
    """Files of tests lie in the library, but are the user's programs here. What serves them is not."""
    name = code.co_filename
    return _STANDARD(code) and not (
        name.startswith(_TESTS) and not name.startswith(_TESTS + "support")
    )


def beside_tensors(method: Callable[[], object]) -> Callable[[], object]:
    """A program that calls the test between operations on tensors, compiled; the test is inlined into it."""

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        method()
        return y + x

    compiled = argand.compile(program, backend="eager", options=OPTIONS)

    def run() -> None:
        found = compiled(torch.ones(2))
        if found.tolist() != [3.0, 3.0]:
            raise SystemError(f"the tensors beside the test are {found}")

    return run


def alone(method: Callable[[], object]) -> Callable[[], object]:
    """The test itself, compiled."""
    return argand.compile(method, backend="eager", options=OPTIONS)  # type: ignore[no-any-return]


MODES: dict[str, Callable[[Callable[[], object]], Callable[[], object]] | None] = {
    "plain": None,
    "beside": beside_tensors,
    "alone": alone,
}


def flatten(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    """The tests of a suite."""
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flatten(test)
        else:
            yield test


def _outcome(case: unittest.TestCase, lines: list[str]) -> str:
    result = unittest.TestResult()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        case.run(result)
    for kind in ("errors", "failures"):
        for _, text in getattr(result, kind):
            lines.append(text[-SHOWN:])
            return kind[:-1] + " " + text.strip().splitlines()[-1][:200]
    for kind in ("skipped", "expectedFailures", "unexpectedSuccesses"):
        if getattr(result, kind):
            return kind
    return "ok"


def run_one(case: unittest.TestCase, mode: str) -> dict[str, Any]:
    """The outcomes of the runs of one test, and the texts of its errors."""
    compile_one = MODES[mode]
    name = case._testMethodName
    method = getattr(case, name)
    if compile_one is not None and not inspect.iscoroutinefunction(method):
        compiled = compile_one(method)
        for attribute in (
            "__unittest_skip__",
            "__unittest_skip_why__",
            "__unittest_expecting_failure__",
        ):
            if hasattr(method, attribute):
                with contextlib.suppress(AttributeError):
                    setattr(compiled, attribute, getattr(method, attribute))
        setattr(case, name, compiled)
    lines: list[str] = []
    outcomes = []
    for _ in range(RUNS):
        random.seed(0)
        outcomes.append(_outcome(case, lines))
    return {"outcomes": outcomes, "text": lines[:1]}


def load(module: str) -> list[unittest.TestCase]:
    """The tests of a module of CPython's test suite."""
    support: Any = importlib.import_module("test.support")
    support.use_resources = []
    skips.is_standard = _is_standard
    found = unittest.defaultTestLoader.loadTestsFromModule(
        importlib.import_module(f"test.{module}")
    )
    return list(flatten(found))


def main(job: Job, results: TextIO) -> None:
    """Run what is not done, in the order of the module."""

    def say(**what: object) -> None:
        results.write(json.dumps(what) + "\n")
        results.flush()

    warnings.simplefilter("error", ArgandWarning)
    cases = [case for case in load(job.module) if job.only in case.id()]
    say(tests=[case.id() for case in cases])
    for case in cases:
        if case.id() not in job.done:
            say(start=case.id())
            signal.setitimer(signal.ITIMER_PROF, job.limit)  # nobody handles it: the process ends
            say(id=case.id(), **run_one(case, job.mode))
    say(end=True)


def run(job: Job, path: pathlib.Path) -> None:
    """Everything of one process."""
    faulthandler.enable()
    gc.freeze()  # tests collect often; torch's million objects are not theirs
    os.chdir(tempfile.mkdtemp(prefix="argand-cpython-"))
    with open(path, "a") as out:
        main(job, out)
