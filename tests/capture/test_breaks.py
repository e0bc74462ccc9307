"""Graph breaks: how many graphs, that the rest is captured wherever the break is, and that nothing is lost."""

import contextlib
import io
import itertools
import traceback

import pytest
import torch

import argand
from argand.support import events

OUT = io.StringIO()


def run_graph(module, inputs):
    return module.forward


class Recorded:
    """A compiled function with what was captured of it."""

    def __init__(self, function, **keywords):
        self.graphs = []
        options = {"strict": True}
        self.function = argand.compile(function, backend=self.keep, options=options, **keywords)

    def keep(self, module, inputs):
        self.graphs.append([n for n in module.graph.nodes if n.op.startswith("call")])
        return module.forward

    def __call__(self, *args):
        with events.collect() as seen:
            result = self.function(*args)
        self.breaks = seen.total("capture.breaks")
        return result


def test_that_two_arguments_are_one_is_no_matter_before_they_are_used():
    def function(x, a, b, c):
        x = x + 1
        if a:
            x = x * 2
        x = x - 3
        if b:
            x = x * 3
        x = x - 4
        if c:
            x = x * 4
        return x - 5

    compiled, flags = Recorded(function), (torch.tensor([1.0]), torch.tensor([0.0]))
    for chosen in itertools.product(flags, repeat=3):
        same(compiled(torch.ones(3), *chosen), function(torch.ones(3), *chosen))
    assert len(compiled.graphs) == 7  # one before the first test, two after each


def test_an_argument_that_is_first_read_after_a_change_through_another():
    def function(x, one, other):
        one.append(x + 1)
        x = x * 2
        print("here", file=OUT)
        other.append(x)
        return one, other, one is other

    def run(function):
        held, apart = [torch.ones(2)], [torch.zeros(2)]
        return [
            (*function(torch.ones(2), held, given), len(held))
            for given in (held, held, apart, apart, held)
        ]

    for found, expected in zip(run(Recorded(function)), run(function), strict=True):
        same(tuple(found[0]), tuple(expected[0]))
        same(tuple(found[1]), tuple(expected[1]))
        assert found[2:] == expected[2:]


def same(found, expected):
    if isinstance(expected, tuple):
        assert type(found) is tuple and len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            same(one, other)
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
    else:
        assert type(found) is type(expected) and found == expected


def check(function, *inputs, graphs=None, operations=None):
    """Compare with eager on two calls; tensors in `inputs` are cloned for each."""
    compiled = Recorded(function)
    fresh = lambda: [i.clone() if isinstance(i, torch.Tensor) else i for i in inputs]
    expected = function(*fresh())
    same(compiled(*fresh()), expected)
    count = len(compiled.graphs)
    same(compiled(*fresh()), expected)
    assert len(compiled.graphs) == count, "the second call compiled again"
    if graphs is not None:
        assert count == graphs
    if operations is not None:
        assert sum(map(len, compiled.graphs)) == operations
    return compiled


X = torch.tensor([1.0, -2.0, 3.0])


def test_the_documented_branch_gives_three_graphs():
    def toy(a, b):
        x = a / (torch.abs(a) + 1)
        if b.sum() < 0:
            b = b * -1
        return x * b

    compiled = Recorded(toy)
    for b in (X.clone(), -X, X.clone(), -X):
        torch.testing.assert_close(compiled(X, b), toy(X, b))
    assert len(compiled.graphs) == 3


def test_a_break_under_four_calls_costs_one_graph():
    def innermost(x):
        x = x + 1
        print("deep", file=OUT)
        return x * 2

    def third(x):
        return innermost(x - 1) - 1

    def second(x):
        return third(x * 3) / 2

    def first(x):
        return second(x + 5).relu()

    check(first, X, graphs=2)


@pytest.mark.parametrize("times", [1, 2, 5, 30])
def test_a_break_in_a_loop_compiles_the_body_once(times):
    def f(x):
        for _ in range(times):
            x = x + 1
            print("loop", file=OUT)
            x = x * 2
        return x

    compiled = check(f, X)
    assert len(compiled.graphs) <= 3


def test_break_in_try_finally():
    def f(x):
        try:
            x = x + 1
            print("try", file=OUT)
            x = x * 2
        finally:
            x = x - 3
        return x

    check(f, X, graphs=2, operations=3)


def test_break_in_an_except_handler():
    def f(x):
        try:
            x = x + 1
            raise ValueError("v")
        except ValueError as error:
            x = x * 2
            print(error, file=OUT)
            x = x - 1
        return x + 1

    check(f, X, graphs=2, operations=4)


def test_bare_raise_after_a_break_in_the_handler():
    def f(x):
        try:
            raise ValueError("v")
        except ValueError:
            x = x * 2
            print("handler", file=OUT)
            raise

    with pytest.raises(ValueError, match="v"):
        Recorded(f)(X)


class Manager:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("enter")
        return 2.0

    def __exit__(self, *error):
        self.log.append(error[0])
        return True


def test_break_in_a_user_context_manager():
    def f(x, log):
        with Manager(log) as factor:
            x = x * factor
            print("with", file=OUT)
            x = x + 1
        return x - 1

    compiled = Recorded(f)
    for _ in range(2):
        log = []
        torch.testing.assert_close(compiled(X, log), f(X, []))
        assert log == ["enter", None]
    assert len(compiled.graphs) == 2


def test_exception_of_the_broken_operation_reaches_the_handler_of_the_frame():
    def fails():
        raise KeyError("k")

    disabled = argand.disable(fails)

    def f(x, log):
        try:
            x = x + 1
            disabled()
            x = x * 100
        except KeyError as error:
            log.append(error.args)
            x = x * 2
        return x - 1

    compiled = Recorded(f)
    for _ in range(2):
        log = []
        torch.testing.assert_close(compiled(X, log), f(X, []))
        assert log == [("k",)]


def test_exception_through_an_inlined_callee_after_a_break():
    def callee(x):
        print("callee", file=OUT)
        raise ValueError(f"bad {x.dim()}")

    def f(x):
        try:
            callee(x + 1)
        except ValueError as error:
            return x * 2, str(error)

    check(f, X)


def test_break_in_nested_with_and_loop():
    @contextlib.contextmanager
    def noting(log, name):
        log.append(name)
        try:
            yield
        finally:
            log.append(f"end {name}")

    def f(x, log):
        for i in range(3):
            with noting(log, "a"), torch.no_grad():
                x = x + i
                if x.sum() > 3:
                    log.append("big")
                    continue
                x = x * 2
        return x

    compiled = Recorded(f)
    for _ in range(2):
        log, expected = [], []
        torch.testing.assert_close(compiled(X, log), f(X, expected))
        assert log == expected
        assert torch.is_grad_enabled()


def test_closures_share_their_cells_across_a_break():
    def f(x):
        total = 0

        def add(k):
            nonlocal total
            total += k
            return total

        add(1)
        print("break", file=OUT)
        x = x + add(10)
        return x, total, add(100)

    check(f, X)


@pytest.mark.parametrize(
    "read",
    [
        lambda t: t.sum().item(),
        lambda t: t.tolist(),
        lambda t: float(t[0]),
        lambda t: bool(t.sum() > 0),
        lambda t: f"{t}",
        lambda t: t.numpy().sum().item(),
        lambda t: t.nonzero().shape[0],
    ],
)
def test_reading_a_tensor(read):
    def f(x):
        y = x * 2
        value = read(y)
        return y + 1, value

    check(f, X)


def test_graph_break_and_disable():
    @argand.disable
    def left_alone(x):
        return x + 10

    def f(x):
        x = x + 1
        argand.graph_break()
        x = left_alone(x * 2)
        return x - 1

    check(f, X, graphs=3)


def test_full_graph_tells_reason_stack_and_hint():
    def inner(x):
        return float(x.sum())

    def outer(x):
        return inner(x + 1)

    with pytest.raises(argand.CaptureError) as caught:
        argand.compile(outer, backend=run_graph, fullgraph=True)(X)
    text = str(caught.value)
    assert "B004" in text and "hint" in text
    assert text.index("in outer") < text.index("in inner")
    assert "test_breaks.py" in text


def test_traceback_shows_the_lines_of_the_user():
    def f(x):
        x = x + 1
        print("before", file=OUT)
        x = x * 2
        return x.view(77)

    lines = []
    for function in (f, Recorded(f)):
        with pytest.raises(RuntimeError) as caught:
            function(X)
        found = traceback.extract_tb(caught.value.__traceback__)
        lines.append([frame.line for frame in found if frame.filename == __file__][-1])
    assert lines == ["return x.view(77)"] * 2


def test_traceback_of_a_broken_operation_is_that_of_eager():
    """The operation that breaks raises: all frames of the user show, none of ours."""

    def fails(x):
        raise KeyError("k")

    disabled = argand.disable(fails)

    def inner(x):
        y = x * 2
        disabled(y)
        return y

    def outer(x):
        z = inner(x + 1)
        return z

    with pytest.raises(KeyError) as caught:
        Recorded(outer)(X)
    entries = traceback.extract_tb(caught.value.__traceback__)
    lines = [entry.line for entry in entries]
    assert lines[-3:] == ["z = inner(x + 1)", "disabled(y)", 'raise KeyError("k")']
    assert not [entry.filename for entry in entries if entry.filename.startswith("<argand")]


def test_exception_raised_in_the_trace_keeps_its_lines():
    """It is made in the trace, goes through a `with` that breaks, and is raised for real only after it."""

    @contextlib.contextmanager
    def noting():
        try:
            yield
        finally:
            print("leaving", file=OUT)

    def f(x):
        with noting():
            if x.sum() > 100:
                x = x + 1
            x.view(77)

    for function in (f, Recorded(f)):
        with pytest.raises(RuntimeError) as caught:
            function(X)
        entries = traceback.extract_tb(caught.value.__traceback__)
        assert entries[-1].line == "x.view(77)"


class Reading:
    """A `with` that breaks, and looks at the traceback it is given."""

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        print(trace.tb_lineno, trace.tb_next, file=OUT)


@contextlib.contextmanager
def passing():
    try:
        yield
    finally:
        print("leaving", file=OUT)


def refused(x, y):
    value = x.sum().item()
    y.mul_(value)


def in_with(x, y):
    with passing():
        refused(x, y)


def in_with_that_reads(x, y):
    value = x.sum().item()
    with Reading():
        y.mul_(value)


def in_finally(x, y):
    value = x.sum().item()
    try:
        y.mul_(value)
    finally:
        print(x * 2, file=OUT)


def in_handler(x, y):
    value = x.sum().item()
    try:
        y.mul_(value)
    except RuntimeError as error:
        print(x * 2, file=OUT)
        raise error


@pytest.mark.parametrize("function", [in_with, in_with_that_reads, in_finally, in_handler])
def test_exception_of_a_broken_operation_keeps_its_lines(function):
    """It comes into the trace from outside, and is raised for real only after another break."""
    found = []
    compiled = Recorded(function)
    for run in (function, compiled, compiled):
        with pytest.raises(RuntimeError, match="can't be cast") as caught:
            run(X, torch.ones(2, dtype=torch.int64))
        entries = traceback.extract_tb(caught.value.__traceback__)[1:]
        found.append([entry.line for entry in entries if entry.name != "__call__"])
    assert found[0] == found[1] == found[2] and found[0]


def describe(x):
    print(tuple(x.shape), file=OUT)
    return x + 1


@pytest.mark.parametrize("form", ["append", "comprehension", "callee"])
def test_a_loop_that_collects_results_compiles_once(form):
    """Neither the loop variable nor the list that grows makes the next iteration a new case."""

    def append(x):
        found = []
        for _ in range(20):
            print("loop", file=OUT)
            found.append(x + 1)
        return found

    def comprehension(x):
        return [describe(x) for _ in range(20)]

    def callee(x):
        found = []
        for t in [x] * 20:
            found.append(describe(t) * 2)
        return found

    function = {"append": append, "comprehension": comprehension, "callee": callee}[form]
    compiled = Recorded(function)
    for _ in range(2):
        same(tuple(compiled(X)), tuple(function(X)))
    assert len(compiled.graphs) <= 2


def test_a_comprehension_with_breaks_is_read_by_its_frame():
    """Fuzzer, seed 5214: the loop ran over what was appended after the last break only."""

    def f(x, seen):
        for t in [describe(x) for _ in range(3)]:
            seen.append(t.dim())
            x = x + t
        return x

    compiled = Recorded(f)
    for _ in range(2):
        seen, expected = [], []
        same(compiled(X, seen), f(X, expected))
        assert seen == expected


def test_a_list_that_is_also_read_elsewhere():
    """The list is appended to here and read there: both see all of it."""

    class Holder:
        pass

    holder = Holder()

    def f(x, items):
        for _ in range(3):
            print("loop", file=OUT)
            items.append(x + len(holder.items))
        return items

    compiled = Recorded(f)
    for function in (f, compiled, compiled):
        holder.items = items = [X]
        result = function(X, items)
        assert result is items
        same(tuple(result), (X, X + 1, X + 2, X + 3))


def test_strides_of_a_tensor_with_history_survive_a_break():
    weight = torch.ones(3, requires_grad=True)

    def f(x):
        wide = (weight * x).expand(2, 3)
        print("break", file=OUT)
        return wide.stride(), wide * 2

    check(f, X)

    def writes(x):
        wide = (weight * x).expand(2, 3)
        print("break", file=OUT)
        wide[..., 0] = 3.0

    for function in (writes, Recorded(writes)):
        with pytest.raises(RuntimeError, match="single memory location"):
            function(X)


def test_side_effects_happen_in_order_around_a_break():
    def f(x, log):
        log.append("one")
        x = x + 1
        log.append(len(log))
        print("break", file=OUT)
        log.append("two")
        log[0] = "changed"
        return x * len(log)

    compiled = Recorded(f)
    for _ in range(2):
        log, expected = [], []
        torch.testing.assert_close(compiled(X, log), f(X, expected))
        assert log == expected


def test_explain(capsys):
    def f(x):
        x = torch.relu(x) + 1
        print("break", file=OUT)
        return x * 2

    explanation = argand.explain(f)(X)
    assert explanation.graph_count == 2 and explanation.graph_break_count == 1
    assert explanation.op_count == 3
    assert explanation.ops_per_graph[0] == ("torch.relu", "operator.add")
    assert explanation.breaks[0].row.name == "B007"
    torch.testing.assert_close(explanation.result, f(X))
    text = capsys.readouterr().out
    assert text.startswith("2 graphs, 1 graph breaks, 3 operations")
    assert "test_breaks.py" in text and "hint: print outside" in text


def test_breaks_deep_in_modules_cost_nothing_again():
    """torch's frames around a break are resumed by functions of their own: not to be known by identity."""

    class Gate(torch.nn.Module):
        def forward(self, x):
            return x.sign().sum(0).tolist()

    class Experts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.gate, self.weights = (
                Gate(),
                torch.nn.ParameterList([torch.randn(4, 4) for _ in range(3)]),
            )

        def forward(self, x):
            sizes = self.gate(x)
            for weight, size in zip(self.weights, sizes, strict=False):
                x = torch.tanh(x @ weight) if size > 0 else x
            return x

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = Experts(), Experts()

        def __call__(self, *args):
            return super().__call__(*args)  # so that torch's call is interpreted

        def forward(self, x):
            return x + self.second(x + self.first(x))

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList([Layer() for _ in range(3)])

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x * 2

    model = Model()
    run = argand.compile(model, backend="eager")
    x = torch.randn(3, 4)
    with events.collect() as first:
        assert torch.equal(run(x), model(x))
    assert first.total("capture.breaks")
    with events.collect() as later:
        for _ in range(4):
            assert torch.equal(run(x), model(x))
    assert not later.total("compiles")
