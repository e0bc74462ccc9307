"""Programs with open sizes come back from disk: as right at other sizes as when they were compiled."""

import json
import os
import subprocess
import sys

import pytest
import torch

import argand
from argand.autograd import aot
from argand.runtime.disk.store import DiskStore
from argand.runtime.disk.values import Reader, Writer
from argand.sizes.expressions import Expr, SizeInt
from argand.sizes.facts import Fact
from argand.sizes.table import SizeTable
from argand.support import events


def counts(heard, counter):
    rows = [e for e in heard.events if isinstance(e, events.Count) and e.counter == counter]
    return [e.detail.split(":")[0] for e in rows]


def calls(program, make, sizes, directory, after=None, **keywords):
    """Compile anew and call at some sizes, against eager; the events."""
    argand.reset()
    compiled = argand.compile(program, options={"cache_dir": str(directory)}, **keywords)
    with events.collect() as heard:
        for size in sizes:
            answers = []
            for function in (program, compiled):
                torch.manual_seed(3)
                args = make(size)
                torch.manual_seed(4)
                result = function(*args)
                if after is not None:
                    after(result)
                answers.append((result, [a.grad for a in args if isinstance(a, torch.Tensor)]))
            torch.testing.assert_close(*answers)
    return heard


def all_hit(heard):
    return not counts(heard, "cache.miss") and "autograd.trace" not in heard.seconds()


def forget(kind, directory):
    """Remove the entries of a kind."""
    for entry in DiskStore(directory).entries():
        if json.loads(DiskStore(directory).peek(entry.key)["about"])["kind"] == kind:
            entry.path.unlink()


def leaf(*shape):
    return torch.randn(shape, requires_grad=True)


def marked(n):
    x = leaf(n, 4)
    argand.mark_dynamic(x, 0, max=200)
    return x, leaf(4, 4)


def mlp(x, w):
    y = torch.nn.functional.gelu(x @ w)
    return y[1:].softmax(-1), y.view(-1), y.shape[0] * 2, x.t()


def sliced(x, y):
    return torch.cat([x[:20], y]).sum(-1) / x.shape[0], torch.nn.functional.pad(
        x, (0, 0, 1, 2)
    ).cos()


def backward(result):
    sum(r.sin().sum() for r in result if isinstance(r, torch.Tensor)).backward()


@pytest.mark.parametrize(
    ("program", "make", "keywords"),
    [
        (mlp, lambda n: (leaf(n, 4), leaf(4, 4)), {"dynamic": True}),
        (mlp, lambda n: (leaf(n, 4), leaf(4, 4)), {}),
        (mlp, marked, {}),
        (sliced, lambda n: (leaf(n, 3), leaf(n + 1, 3)), {"dynamic": True}),
    ],
)
def test_a_later_process_hits_at_any_size(program, make, keywords, tmp_path):
    calls(program, make, (5, 6, 9), tmp_path, backward, **keywords)
    warm = calls(program, make, (7, 12, 19), tmp_path, backward, **keywords)
    assert all_hit(warm), counts(warm, "cache.miss")
    # one more compile where 30 is another case
    cold = calls(program, make, (7, 30), tmp_path, backward, **keywords)
    assert len([kind for kind in counts(cold, "cache.miss") if kind == "autograd"]) <= 1


def test_facts_of_the_trace_choose_the_program(tmp_path):
    """Entries of one key that rely on other facts never stand for each other."""
    program = sliced
    for _ in range(2):
        for sizes in ((5, 7), (30, 40), (20, 21, 3)):
            calls(
                program,
                lambda n: (leaf(n, 3), leaf(n + 1, 3)),
                sizes,
                tmp_path,
                backward,
                dynamic=True,
            )


def test_rare_roads_of_a_restored_program(tmp_path):
    """Some results only, gradients of gradients, halves that are gone: from the graphs in the entry."""
    make = lambda n: (leaf(n, 4), leaf(4, 4))  # noqa: E731

    def part(result):
        result[0].sum().backward()

    def twice(result):
        x = result[3]._base
        (gradient,) = torch.autograd.grad(result[0].sin().sum(), x, create_graph=True)
        gradient.pow(2).sum().backward()

    calls(mlp, make, (5,), tmp_path, backward, dynamic=True)
    for road in (part, twice, part):
        warm = calls(mlp, make, (7, 8), tmp_path, road, dynamic=True)
        assert "autograd" in counts(warm, "cache.hit")
    forget("object", tmp_path)
    calls(mlp, make, (9, 11), tmp_path, backward, dynamic=True)


def test_tables_and_expressions_come_back():
    table = SizeTable()
    a, b = table.symbol("s0", 6), table.symbol("s1", 9, 3, 500)
    table.learn(a + b - 1)
    table.learn(a // 4)
    table.constrain("<", a, b)
    table.constants.add(226)
    state = json.loads(json.dumps(Writer().write(table.state())))
    again = SizeTable.restored(*Reader().read(state))
    assert (
        again.samples == table.samples
        and again.reals == table.reals
        and again.relied == table.relied
    )
    for number in (101, 113, 226, 213, 202, 101 * 113, 5, 0, -101, 25):
        assert str(again.express(number)) == str(table.express(number))
    for expr in (
        a.expr * 3 - b.expr % 7,
        (a.expr // b.expr).larger(2),
        Expr.of(0),
        b.expr.smaller(a.expr),
    ):
        data = json.loads(json.dumps(Writer().write(SizeInt(0, expr))))
        if expr.constant is None:
            read = Reader(sizes=again).read(data)
            assert read.expr == expr and int(read) == expr.evaluate(table.samples)
    assert again.relied == [Fact("<", a.expr, b.expr)]
    assert again.twin().samples.keys() == table.samples.keys()


def test_what_only_the_trace_finds_out_is_kept(tmp_path, monkeypatch):
    """Facts found by autograd are checked for the sizes at hand, and become guards."""
    trace = aot._try_trace

    def comparing(program, inputs, compilers, *rest, **keywords):
        if compilers.sizes is not None:
            compilers.sizes.table.decide(
                "<", compilers.sizes.table.size(next(iter(compilers.sizes.places))), 20
            )
        return trace(program, inputs, compilers, *rest, **keywords)

    def run(*sizes):
        return calls(
            mlp, lambda n: (leaf(n, 4), torch.ones(4, 4)), sizes, tmp_path, backward, dynamic=True
        )

    monkeypatch.setattr(aot, "_try_trace", comparing)
    run(30, 25)
    assert any(
        "facts" in DiskStore(tmp_path).peek(entry.key) for entry in DiskStore(tmp_path).entries()
    )
    forget("capture", tmp_path)
    warm = run(40, 41)
    assert counts(warm, "cache.miss") == ["capture"] and "autograd.trace" not in warm.seconds()
    assert run(40, 12, 30).total("compiles") == 1  # the restored one is not for 12
    assert run(12, 11, 33).total("compiles") == 0


def test_marks_of_this_process_count(tmp_path):
    """A capture that fixed a size is not for a tensor whose size is marked, nor the other way round."""

    def run(mark, *sizes):
        def make(n):
            x = torch.randn(n, 3)
            mark(x, 0)
            return (x,)

        return calls(lambda x: x.sin().sum(0), make, sizes, tmp_path).total("compiles")

    def unmarked(x, dim):
        pass

    assert run(unmarked, 5) == 1 and run(unmarked, 5) == 0
    assert run(argand.mark_dynamic, 5, 6, 7) == 1 and run(argand.mark_dynamic, 5, 8) == 0
    assert run(argand.mark_static, 5, 6) == 1 and run(argand.mark_static, 6, 5) == 0
    assert run(unmarked, 9) == 0


def test_what_was_open_is_open_in_the_next_case(tmp_path):
    def branching(x, n):
        return x.sin() * n if x.shape[0] > 40 else x.cos() + n

    def run(*rows):
        return calls(branching, lambda row: (torch.randn(row[0], 3), row[1]), rows, tmp_path).total(
            "compiles"
        )

    assert run((5, 2), (6, 3)) == 2
    assert run((7, 9), (50, 11), (60, 12)) == 1
    assert run((51, 4), (8, 5), (70, 6)) == 0


PROCESS = """
import sys, torch, argand
from argand.support import events

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
    def forward(self, x):
        y = self.layer(x).relu()
        return y.reshape(2, -1) if x.shape[0] % 2 == 0 else y[1:]

torch.manual_seed(0)
model = Model()
total = 0
for dynamic in (True, None, "mark"):
    compiled = argand.compile(model, dynamic=dynamic if dynamic is True else None)
    with events.collect() as heard:
        for n in map(int, sys.argv[1:]):
            x = torch.randn(n, 4)
            if dynamic == "mark":
                argand.mark_dynamic(x, 0)
            torch.testing.assert_close(compiled(x), model(x))
            compiled(x).sum().backward()
    total += heard.total("compiles")
    argand.reset()
print(total)
"""


def test_fresh_processes_compile_nothing(tmp_path):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(tmp_path)}
    compiled = []
    for sizes in ("6 8 5 7", "10 3 4"):
        command = [sys.executable, "-c", PROCESS, *sizes.split()]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        compiled.append(int(done.stdout))
    assert compiled[0] >= 4 and compiled[1] == 0


@pytest.mark.parametrize(("place", "number"), [(2, 1), (2, 0), (2, 2.5), (3, "a"), (1, -1)])
def test_hostile_samples_are_refused(place, number):
    table = SizeTable()
    table.symbol("s0", 6)
    symbols, *rest = table.state()
    row = list(symbols[0])
    row[place] = number
    with pytest.raises(ValueError, match="no sizes"):
        SizeTable.restored([row], *rest)
