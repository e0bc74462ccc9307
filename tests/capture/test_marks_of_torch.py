"""Marks and decorators made for torch.compile mean the same here."""

import zlib

import pytest
import torch
import torch._dynamo

import argand
from argand.support import events


def graphs_of(run, *inputs, **keywords):
    compiled = argand.compile(run, backend="eager", **keywords)
    with events.collect() as seen:
        results = [compiled(*given) for given in inputs]
    return seen.total("capture.graphs"), results


@torch.compiler.assume_constant_result
def constant():
    return 5


@torch.compiler.nested_compile_region
def region(x):
    return x.sin() + 1


def test_constants_and_regions():
    run = lambda x: region(x) * constant()
    number, results = graphs_of(run, (torch.ones(3),), fullgraph=True)
    assert number == 1
    torch.testing.assert_close(results[0], (torch.ones(3).sin() + 1) * 5)


def marked(mark, size):
    x = torch.ones(size, 3)
    mark(x, 0)
    return (x,)


@pytest.mark.parametrize(
    "name, graphs", [("mark_dynamic", 1), ("maybe_mark_dynamic", 1), ("mark_static", 3)]
)
def test_marks_of_sizes(name, graphs):
    mark = getattr(torch._dynamo, name)
    compiled = argand.compile(
        lambda x: x.sum(0) * x.shape[0], fullgraph=True, options={"cache": False}
    )
    with events.collect() as seen:
        for size in (4, 5, 6):
            torch.testing.assert_close(
                compiled(*marked(mark, size)), torch.full((3,), float(size * size))
            )
    assert seen.total("capture.graphs") == graphs


def test_functions_and_modules_of_torch_compile_are_part_of_ours():
    inner = torch.compile(lambda x: x.sin() * 2, backend="eager")
    layer = torch.compile(torch.nn.Linear(3, 3), backend="eager")
    run = lambda x: layer(inner(x)).relu()
    number, results = graphs_of(run, (torch.ones(2, 3),), fullgraph=True)
    assert number == 1
    torch.testing.assert_close(results[0], run(torch.ones(2, 3)))


def test_ours_inside_of_torch_compile():
    inner = argand.compile(lambda x: x.sin() * 2)
    outer = torch.compile(lambda x: inner(x + 1).cos(), backend="eager")
    torch.testing.assert_close(outer(torch.ones(3)), ((torch.ones(3) + 1).sin() * 2).cos())


def test_a_break_that_is_asked_for():
    def run(x):
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos()

    number, _ = graphs_of(run, (torch.ones(3),))
    assert number == 2
    with pytest.raises(argand.CaptureError, match="B005"):
        argand.compile(run, fullgraph=True, backend="eager")(torch.ones(3))


@torch.compiler.substitute_in_graph(zlib.crc32, skip_signature_check=True)
def checksum(data, value=0, /):
    return 7


def test_substitutes_are_traced():
    _, results = graphs_of(lambda x: x * zlib.crc32(b"abc"), (torch.ones(2),), fullgraph=True)
    torch.testing.assert_close(results[0], torch.full((2,), 7.0))
