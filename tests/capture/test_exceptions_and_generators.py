"""What CPython's own tests found: exceptions and generators made in a trace are as Python makes them."""

import collections.abc
import itertools
import sys
import unittest

import pytest
import torch

import argand


def both(function, *args):
    """The answers of a function as it is and compiled, between operations on tensors: called twice."""

    def program(x, *args):
        y = x * 2
        result = function(*args)
        return y + x, result

    compiled = argand.compile(program, backend="eager", options={"strict": True})
    answers = []
    for _ in range(2):
        tensor, answer = compiled(torch.ones(2), *args)
        assert tensor.tolist() == [3.0, 3.0]
        answers.append(answer)
    return function(*args), answers


def delegate():
    try:
        yield 1
    except ValueError as error:
        yield ("caught", str(error))
    return 7


def delegating():
    value = yield from delegate()
    yield ("returned", value)


def throws_into_a_delegate():
    generator = delegating()
    next(generator)
    return [generator.throw(ValueError, "text"), next(generator)]


def context_of_a_native_error():
    def fails():
        try:
            raise KeyError
        except KeyError:
            int("x")

    try:
        fails()
    except ValueError as error:
        return repr(error.__context__)


def context_is_no_cycle():
    try:
        try:
            raise ValueError(1)
        except ValueError as first:
            kept = first
            try:
                raise KeyError(2)
            except KeyError:
                raise first
    except ValueError as error:
        return error is kept, repr(error.__context__), repr(error.__context__.__context__)


def handled_in_a_suspended_generator():
    def suspended():
        try:
            raise KeyError(1)
        except KeyError:
            yield 1

    generator = suspended()
    next(generator)
    try:
        raise ValueError(2)
    except ValueError as error:
        return repr(error.__context__), repr(sys.exc_info()[1])


def exits_caught():
    found = []
    for kind in (SystemExit, KeyboardInterrupt, type("Own", (BaseException,), {})):
        try:
            raise kind(3)
        except BaseException as error:
            found.append((kind.__name__, error.args))
    return found


def just_started():
    generator = delegate()
    try:
        generator.send(1)
    except TypeError as error:
        return str(error)


def runs_already():
    def again():
        yield next(generators[0])

    generators = [again()]
    try:
        next(generators[0])
    except ValueError as error:
        return str(error)


def stops_inside():
    def raises():
        yield 1
        raise StopIteration(2)

    generator = raises()
    next(generator)
    try:
        next(generator)
    except RuntimeError as error:
        return str(error), repr(error.__cause__), repr(error.__context__)


def ignores_its_end():
    def stays():
        try:
            yield 1
        except GeneratorExit:
            yield 2

    generator = stays()
    next(generator)
    try:
        generator.close()
    except RuntimeError as error:
        return str(error)


def looks_at_a_generator():
    generator = delegate()
    next(generator)
    missing = hasattr(generator, "function"), hasattr(generator, "frame")
    return generator.__name__, generator.gi_running, generator.gi_yieldfrom, missing


def raises_what_is_none():
    class Odd(Exception):
        def __new__(cls):
            return 3

    found = []
    for attempt in (lambda: _raise(Odd), lambda: _raise(3), lambda: _raise(ValueError(), 3)):
        try:
            attempt()
        except TypeError as error:
            found.append(str(error).replace(str(Odd), "Odd"))
    return found


def _raise(error, *cause):
    if cause:
        raise error from cause[0]
    raise error


PROGRAMS = [
    throws_into_a_delegate, context_of_a_native_error, context_is_no_cycle, handled_in_a_suspended_generator,
    exits_caught, just_started, runs_already, stops_inside, ignores_its_end, looks_at_a_generator, raises_what_is_none,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_as_python(program):
    wanted, found = both(program)
    assert found == [wanted, wanted]


class Fields(unittest.TestCase):
    """The call that checks the exception breaks the graph: the exception is made again after it."""

    def stops(self):
        def generator():
            return (yield 1)

        made = generator()
        next(made)
        with self.assertRaises(StopIteration) as caught:
            made.send((2,))
        return caught.exception.value

    def others(self):
        found = []
        for error in (ImportError("a", name="b", path="c"), SystemExit(4), OSError(2, "x", "file")):
            with self.assertRaises(type(error)) as caught:
                raise error
            names = ("name", "path", "code", "errno", "strerror", "filename", "args")
            found.append([repr(getattr(caught.exception, name, None)) for name in names])
        return found


@pytest.mark.parametrize("name", ["stops", "others"])
def test_fields_of_exceptions_survive_a_break(name):
    wanted, found = both(getattr(Fields(name), name))
    assert found == [wanted, wanted]


def test_a_dropped_generator_is_closed():
    log = []

    def closes():
        try:
            yield 1
        finally:
            log.append("closed")

    def drops():
        for value in closes():
            return value

    both(drops)
    assert log == ["closed"] * 3


class Steps(collections.abc.Sequence):
    """Its iterator is a generator that waits in a `try`."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        if index > 3:
            raise IndexError
        return index


def test_a_generator_that_is_dropped_in_a_try_breaks_only_where_closing_it_runs_something():
    def tests_only(x):
        for _, step in zip(range(2), Steps(), strict=False):
            x = x + step
        return x

    def notes(x):
        seen = []

        def numbers():
            try:
                yield 1
                yield 2
            except GeneratorExit:
                seen.append("closed")
            finally:
                seen.append("left")

        for _, number in zip(range(1), numbers(), strict=False):
            x = x + number
        del number
        return x, seen

    x = torch.ones(3)
    assert torch.equal(argand.compile(tests_only, fullgraph=True)(x), tests_only(x))
    found, expected = argand.compile(notes)(x), notes(x)
    assert torch.equal(found[0], expected[0]) and found[1] == expected[1]


class _Closing:
    """An iterator with a `close` of its own."""

    def __init__(self, log):
        self.log = log

    def __iter__(self):
        return self

    def __next__(self):
        return 2

    def close(self):
        self.log.append("closed")


def test_a_generator_left_in_a_delegation():
    """`islice` leaves one in `yield from` a container: nobody sees it closed, so it is one graph. Others are Python's."""

    def of_rows(x):
        def source():
            yield from x

        return list(itertools.islice((row * 2 for row in source()), 3))

    x = torch.randn(4, 2)
    torch.testing.assert_close(argand.compile(of_rows, fullgraph=True)(x), of_rows(x))

    def of_own(x, log):
        def source():
            yield from _Closing(log)

        return x * next(source())

    ours, theirs = [], []
    torch.testing.assert_close(argand.compile(of_own)(x, ours), of_own(x, theirs))
    assert ours == theirs == ["closed"]
