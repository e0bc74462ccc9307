"""Programs come back from disk: compiled once, right in every later run, nothing compiled again."""

import copy
import warnings

import pytest
import torch
from torch._higher_order_ops.scan import scan

import argand
from argand.backends.argand_backend import compile_fx
from argand.support import events
from argand.support.options import Options


def counts(heard, counter):
    rows = [e for e in heard.events if isinstance(e, events.Count) and e.counter == counter]
    kinds = [e.detail.split(":")[0] for e in rows]
    return [kind for kind in kinds if kind != "capture"]  # has tests of its own


def twice(program, make, tmp_path, check=None, **options):
    """Run cold and warm against eager; the counters of the warm run."""
    options["cache_dir"] = str(tmp_path)
    for _ in range(2):
        argand.reset()
        eager_args, args = make(), make()
        torch.manual_seed(7)
        wanted = program(*eager_args)
        with events.collect() as heard:
            compiled = argand.compile(program, options=options)
            torch.manual_seed(7)
            got = compiled(*args)
            if check is not None:
                check(wanted, eager_args), check(got, args)
        torch.testing.assert_close(got, wanted)
        for one, other in zip(args, eager_args, strict=True):
            if isinstance(one, torch.Tensor):
                torch.testing.assert_close(one, other)
                torch.testing.assert_close(one.grad, other.grad)
    return heard


def backward(result, _):
    sum(r.sum() for r in (result if isinstance(result, tuple) else (result,))).backward()


def leaf(*shape):
    torch.manual_seed(len(shape))
    return torch.randn(shape, requires_grad=True)


def mlp(x, w, b):
    return torch.nn.functional.gelu(x @ w + b).softmax(-1)


def writes(x, y):
    x.mul_(2)
    return x[1:], y.t(), 3, torch.nn.functional.layer_norm(x + y, (4,))


def embeds(table, index):
    return torch.nn.functional.embedding(index, table) * torch.tensor([1.0, 2.0, 3.0, 4.0])


def draws(x):
    return torch.nn.functional.dropout(x, 0.5) + torch.rand(4)


def recurs(x, state, *weights):
    return torch.gru(x, state, weights, True, 1, 0.0, True, False, False)


def chooses(x, w):
    def nested(value):
        return torch.cond(value.mean() > 100, torch.sin, lambda v: torch.cos(v) * 2, (value,))

    return (torch.cond(x.sum() > 0, nested, lambda v: v * torch.tensor([3.0]), (x,)) * w).sum()


def scans(x):
    def step(carry, row):
        carry = torch.tanh(carry + row)
        return carry, carry @ torch.ones(4, 4)

    last, rows = scan(step, torch.zeros(4), x)
    return rows + last


CASES = {
    "loops": (
        recurs,
        lambda: (leaf(6, 2, 4), leaf(1, 2, 4), leaf(12, 4), leaf(12, 4), leaf(12), leaf(12)),
        backward,
    ),
    "branches": (chooses, lambda: (leaf(3, 4).abs().detach(), leaf(3, 4)), backward),
    "scans": (scans, lambda: (torch.ones(5, 4),), None),
    "scans_training": (scans, lambda: (leaf(5, 4),), backward),
    "inference": (mlp, lambda: (torch.ones(3, 4), torch.ones(4, 5), torch.ones(5)), None),
    "training": (mlp, lambda: (leaf(3, 4), leaf(4, 5), leaf(5)), backward),
    "effects": (writes, lambda: (torch.ones(4, 4), torch.ones(4, 4)), None),
    "gather": (embeds, lambda: (leaf(5, 4), torch.tensor([1, 3])), backward),
}


@pytest.mark.parametrize("name", CASES)
def test_warm_run_compiles_nothing(name, tmp_path):
    program, make, check = CASES[name]
    heard = twice(program, make, tmp_path, check)
    assert not counts(heard, "cache.miss") and not counts(heard, "cache.bypass")
    assert "autograd" in counts(heard, "cache.hit")
    stages = heard.seconds()
    assert "autograd.trace" not in stages and "native.lower" not in stages


def test_random_draws(tmp_path):
    heard = twice(draws, lambda: (leaf(4, 4),), tmp_path, backward, fallback_random=True)
    assert not counts(heard, "cache.miss")


def test_rare_roads_of_a_restored_program(tmp_path):
    """Gradients of one result only, and of gradients: from the graphs in the entry."""

    def two(x, w):
        return (x @ w).exp(), (x * 2).tanh()

    def first_only(result, _):
        result[1].sum().backward()

    twice(two, lambda: (leaf(3, 4), leaf(4, 4)), tmp_path, first_only)

    def second_order(result, args):
        (gradient,) = torch.autograd.grad(result[0].sum(), args[0], create_graph=True)
        gradient.square().sum().backward()

    twice(two, lambda: (leaf(3, 4), leaf(4, 4)), tmp_path, second_order)


def test_evicted_parts_are_made_again(tmp_path):
    program, make, check = CASES["training"]
    twice(program, make, tmp_path, check)
    entries = sorted(p for p in (tmp_path / "v1").glob("??/*") if p.is_file())
    for path in entries:
        path.unlink()
        twice(program, make, tmp_path, check)


def test_what_changes_the_result_changes_the_key(tmp_path):
    options = {"cache_dir": str(tmp_path)}
    x = torch.randn(3, 4)

    def program(x):
        return x.exp() + 1

    def run(x, **more):
        argand.reset()
        with events.collect() as heard:
            got = argand.compile(program, options=options | more)(x)
        torch.testing.assert_close(got, program(x))
        return "autograd" in counts(heard, "cache.hit")

    assert not run(x) and run(x)
    for other in (x.double(), x.t(), x[:2], x[:, ::2], x.clone().requires_grad_()):
        assert not run(other) and run(other)
    assert not run(x, max_fusion=3)
    threads = torch.get_num_threads()
    torch.set_num_threads(2 if threads == 1 else 1)
    try:
        assert run(x)
    finally:
        torch.set_num_threads(threads)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not run(x)
    with torch.backends.mkldnn.flags(enabled=False):
        assert not run(x)
    assert run(x)


def test_live_constants_are_not_copied(tmp_path):
    """A tensor inside of a hand-made graph stays the caller's: changes to it are seen."""
    weight = torch.ones(4)

    def compiled():
        graph = torch.fx.Graph()
        x = graph.placeholder("x")
        graph.output((graph.call_function(torch.mul, (x, graph.get_attr("weight"))),))
        module = torch.fx.GraphModule({"weight": weight}, graph)
        return compile_fx(module, [torch.ones(4)], options={"cache_dir": str(tmp_path)})

    with events.collect() as heard:
        first = compiled()
        weight.fill_(1)
        second = compiled()
    assert "graph" in counts(heard, "cache.hit") and "autograd" in counts(heard, "cache.bypass")
    weight.mul_(3)
    for run in (first, second):
        torch.testing.assert_close(run(torch.ones(4))[0], torch.full((4,), 3.0))


def test_bypasses_have_reasons(tmp_path):
    graph = torch.fx.Graph()
    graph.output((graph.call_function(torch.exp, (graph.placeholder("x"),)),))
    module = torch.fx.GraphModule({}, graph)
    options = {"cache_dir": str(tmp_path)}

    def same(gm):
        return gm

    def reasons(**keywords):
        with events.collect() as heard:
            compile_fx(copy.deepcopy(module), [torch.ones(3)], options=options, **keywords)
        rows = [e for e in heard.events if isinstance(e, events.Count)]
        return [e.detail for e in rows if e.counter == "cache.bypass"]

    assert reasons() == []
    assert reasons(joint_pass=same) == ["autograd: a joint pass without a cache_id"]
    assert "of the caller" in reasons(inner_compile=lambda gm, inputs: gm)[0]
    same.cache_id = "same 1"
    assert reasons(joint_pass=same) == []


def test_cache_off_touches_no_disk(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        options = {"cache": False, "cache_dir": str(tmp_path / "none")}
        argand.compile(torch.sin, options=options)(torch.ones(3))
        Options(**options)
    assert not (tmp_path / "none").exists()


def test_custom_operators_need_a_version(tmp_path):
    def scaled(x: torch.Tensor, by: float) -> torch.Tensor:
        return x * by

    def hits_and_reasons(op):
        def program(x):
            return op(x.exp(), 2.0) + 1

        heard = twice(program, lambda: (torch.ones(4),), tmp_path)
        rows = [e for e in heard.events if isinstance(e, events.Count)]
        return counts(heard, "cache.hit"), [e.detail for e in rows if e.counter == "cache.bypass"]

    plain = argand.custom_op("cache_test::plain", mutates_args=())(scaled)
    plain.register_fake(lambda x, by: torch.empty_like(x))
    hits, reasons = hits_and_reasons(plain)
    assert "autograd" not in hits and any(
        "cache_test::plain, which has no version" in r for r in reasons
    )
    versioned = argand.custom_op("cache_test::versioned", mutates_args=(), version="1")(scaled)
    versioned.register_fake(lambda x, by: torch.empty_like(x))
    hits, reasons = hits_and_reasons(versioned)
    assert {"autograd", "graph"} <= set(hits) and not reasons


def test_logs_of_the_compiler_are_shown_on_a_warm_cache(tmp_path):
    def program(x):
        return x.sin() + 1

    def compiles():
        argand.reset()
        with events.collect() as heard:
            argand.compile(program, options={"cache_dir": str(tmp_path)})(torch.ones(3))
        return "native.lower" in heard.seconds()

    assert compiles() and not compiles()
    try:
        argand.set_logs("output_code")
        assert compiles()
        argand.set_logs("cache")
        assert not compiles()
    finally:
        argand.set_logs("")
