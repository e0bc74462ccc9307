"""The frame hook: what it looks at, what it leaves alone, and that it is gone when not needed."""

import gc
import sys
import threading
import types
import weakref

import pytest
import torch

from argand.runtime import _native, callables, skips
from argand.runtime.guard_programs import compile_guards
from argand.runtime.guards import Guard, GuardKind
from argand.runtime.sources import Local

from .handmade import HandMade, collected, locals_of

K = GuardKind


def recorder(answer=None):
    seen = []

    def on_miss(view):
        seen.append(view)
        return answer

    _native.set_skip_rule(skips.should_skip)
    return _native.Region(on_miss), seen


def names(seen):
    return [view.code.co_name for view in seen]


def helper(x):
    return x + 1


def caller(x):
    return helper(x) * 2


def test_nested_frames_are_seen_and_the_hook_goes_away():
    region, seen = recorder()
    inside = []

    def f(x):
        inside.append((_native.hook_is_installed(), _native.current_region()))
        return caller(x)

    assert _native.Switch(f, region)(3) == 8
    assert names(seen) == ["f", "caller", "helper"]
    assert inside == [(True, region)]
    assert not _native.hook_is_installed()
    assert _native.current_region() is None
    caller(3)
    assert len(seen) == 3


def test_functions_of_observers_are_nobodys_program():
    """A library may have an audit hook or a tracer in Python; CPython calls it in the midst of everything."""
    region, seen = recorder()
    events = []

    def observer(*event):
        events.append(helper(len(events)))
        return observer

    def f(x):
        before = sys.gettrace()
        sys.settrace(observer)
        try:
            return caller(x)
        finally:
            sys.settrace(before)

    assert _native.Switch(f, region)(3) == 8
    assert events
    assert names(seen) == ["f", "caller", "helper"]

    audited = []

    def auditor(event, args):
        if event == "argand.test" and not audited:
            audited.append(helper(1))

    sys.addaudithook(auditor)  # there is no way to take it away again
    assert _native.Switch(lambda: sys.audit("argand.test"), region)() is None
    assert audited == [2]
    assert names(seen)[3:] == ["<lambda>"]


def test_a_view_shows_the_frame_before_it_starts():
    region, seen = recorder()
    free = [1]

    def f(a, cell, *rest, k=5, **more):
        local = 1
        return lambda: (cell, free, local)

    _native.Switch(f, region)(1, 2, 3, z=4)
    view = seen[0]
    values = locals_of(view)
    assert view.code is f.__code__ and view.function is f and view.globals is globals()
    assert "len" in view.builtins
    assert values["a"] == 1 and values["cell"] == 2 and values["rest"] == (3,)
    assert values["k"] == 5 and values["more"] == {"z": 4}
    assert values["local"] is _native.NULL
    assert isinstance(values["free"], types.CellType) and values["free"].cell_contents is free


def test_skip_asks_once_per_code_and_region():
    region, seen = recorder(_native.SKIP)
    switch = _native.Switch(helper, region)
    assert [switch(1), switch(2)] == [2, 3]
    assert len(seen) == 1
    other, seen_by_other = recorder()
    assert _native.Switch(helper, other)(1) == 2
    assert len(seen_by_other) == 1


def test_generators_and_coroutines_and_class_bodies_run_as_usual():
    region, seen = recorder()

    def numbers(n):
        for i in range(n):
            yield helper(i)

    async def answer():
        return helper(41)

    def f():
        class Body:
            value = helper(1)

        coroutine = answer()
        with pytest.raises(StopIteration) as stop:
            coroutine.send(None)
        return list(numbers(3)), stop.value.value, Body.value

    assert _native.Switch(f, region)() == ([1, 2, 3], 42, 2)
    assert set(names(seen)) == {"f", "helper"}


def test_torch_and_the_standard_library_are_skipped_but_nn_modules_are_not():
    region, seen = recorder()
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.LayerNorm(2))

    def f(x):
        import textwrap

        textwrap.dedent(" a")
        return net(x)

    f(torch.ones(2))
    _native.Switch(f, region)(torch.ones(2))
    assert {view.code.co_qualname for view in seen} == {
        f.__qualname__,
        "Sequential.forward",
        "Linear.forward",
        "LayerNorm.forward",
    }


def test_disabled_turns_the_hook_off_while_it_runs():
    region, seen = recorder()
    quiet = _native.disabled(caller)

    def f(x):
        return quiet(x) + helper(x)

    assert _native.Switch(f, region)(1) == 6
    assert names(seen) == ["f", "helper"]


def test_exceptions_pass_and_leave_everything_as_it_was():
    region, seen = recorder()

    def f():
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        _native.Switch(f, region)()
    assert not _native.hook_is_installed() and _native.current_region() is None

    def bad_callback(view):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        _native.Switch(f, _native.Region(bad_callback))()
    with pytest.raises(TypeError, match="returns Entry"):
        _native.Switch(f, _native.Region(lambda view: 3))()
    assert not _native.hook_is_installed()


def test_exception_of_a_target_passes():
    def target(x):
        raise ValueError("from the target")

    _native.mark_code(target.__code__, False)
    run = HandMade(helper, [], (Local("x"),), target)
    with pytest.raises(ValueError, match="from the target"):
        run(1)


def test_recursion_is_an_error_not_a_crash():
    def target(x):
        return helper(x)

    def endless(view):
        return _native.Entry(compile_guards([], (Local("x"),), view.code), helper)

    region = _native.Region(lambda view: endless(view) if view.code is helper.__code__ else None)
    with pytest.raises(RecursionError):
        _native.Switch(helper, region)(1)

    def deep(n):
        return 0 if n == 0 else 1 + deep(n - 1)

    region, _ = recorder()
    assert _native.Switch(deep, region)(200) == 200
    with pytest.raises(RecursionError):
        _native.Switch(deep, region)(sys.getrecursionlimit() + 10)


def test_recursive_function_with_entries():
    def fact(n):
        return 1 if n == 0 else n * fact(n - 1)

    def on_miss(view):
        n = view.localsplus[0]
        if view.code is not fact.__code__:
            return _native.SKIP
        target = (lambda n: 1) if n == 0 else (lambda n: n * fact(n - 1))
        rows = [Guard(K.EQUALS, Local("n"), n)]
        return _native.Entry(compile_guards(rows, (Local("n"),), view.code), target)

    region = _native.Region(on_miss)
    compiled = _native.Switch(fact, region)
    assert compiled(10) == compiled(10) == 3628800
    assert len(region.entries(fact.__code__)) == 11


def test_most_recently_used_comes_first():
    run = HandMade(helper, lambda view: [Guard(K.EQUALS, Local("x"), view.localsplus[0])])
    for value in [1, 2, 3]:
        run(value)

    def first():
        return run.entries[0].program.guards[0].expected

    assert first() == 3
    run(1)
    assert first() == 1 and len(run.entries) == 3
    run(2)
    assert [entry.program.guards[0].expected for entry in run.entries] == [2, 1, 3]


def test_a_closed_code_keeps_its_entries_but_asks_no_more():
    run = HandMade(helper, lambda view: [Guard(K.EQUALS, Local("x"), view.localsplus[0])])
    run(1)
    run.region.close(helper.__code__)
    assert run(1) == ("hit",) and run(5) == 6
    assert len(run.misses) == 1
    run.region.clear()
    run(5)
    assert len(run.misses) == 2


def test_many_collected_values():
    def f(x):
        return None

    from argand.runtime.sources import Item

    sources = tuple(Item(Local("x"), i) for i in range(500))
    run = HandMade(f, [], sources)
    values = list(range(1000, 1500))
    run(values)
    counts = [sys.getrefcount(value) for value in values]
    for _ in range(10):
        assert run(values) == ("hit", *values)
    assert [sys.getrefcount(value) for value in values] == counts


def test_regions_are_separate_and_nest():
    outer, seen_outer = recorder()
    inner, seen_inner = recorder()
    compiled_helper = _native.Switch(helper, inner)

    def f(x):
        return compiled_helper(x) + helper(x)

    assert _native.Switch(f, outer)(1) == 4
    assert names(seen_outer) == ["f", "helper"]
    assert names(seen_inner) == ["helper"]


def test_other_threads_pay_nothing_and_see_nothing():
    region, seen = recorder()
    inside, proceed, results = threading.Event(), threading.Event(), []

    def f(x):
        inside.set()
        proceed.wait(10)
        return helper(x)

    def compiled_side():
        results.append(_native.Switch(f, region)(1))

    thread = threading.Thread(target=compiled_side)
    thread.start()
    inside.wait(10)
    assert _native.hook_is_installed()
    assert _native.current_region() is None
    assert caller(1) == 4
    proceed.set()
    thread.join()
    assert results == [2]
    assert names(seen) == ["f", "helper"]
    assert not _native.hook_is_installed()


def test_threads_share_entries():
    run = HandMade(
        helper, lambda view: [Guard(K.EQUALS, Local("x"), view.localsplus[0])], (Local("x"),)
    )
    errors = []

    def work(seed):
        for i in range(3000):
            value = (i * seed) % 7
            if run(value) != ("hit", value):
                errors.append(value)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert sum(entry.hits for entry in run.entries) == 9000


def test_code_objects_are_held_weakly():
    region, seen = recorder(_native.SKIP)
    for i in range(100):
        namespace = {}
        exec(f"def f(x): return x + {i}", namespace)
        assert _native.Switch(namespace["f"], region)(1) == i + 1
        seen.clear()
    code = weakref.ref(namespace["f"].__code__)
    del namespace
    gc.collect()
    assert code() is None
    assert len(region.codes()) == 0


def test_an_earlier_hook_is_called():
    """The peer's hook (torch.compile) around ours and inside ours."""
    region, seen = recorder()
    counts = []

    def backend(gm, inputs):
        counts.append(len(inputs))
        return gm.forward

    def f(x):
        return torch.sin(x) + 1

    theirs = torch.compile(f, backend=backend)
    ours = _native.Switch(lambda x: theirs(x), region)
    x = torch.ones(3)
    assert torch.equal(ours(x), f(x)) and torch.equal(ours(x), f(x))
    assert counts == [1]
    compiled = callables.compiled(helper, region)

    @torch._dynamo.disable
    def call_ours(x):
        return compiled(x)

    assert torch.equal(torch.compile(lambda x: call_ours(x) * 2, backend=backend)(x), (x + 1) * 2)
    assert "helper" in names(seen)
    assert not _native.hook_is_installed()


def test_views_and_targets_do_not_leak():
    class Big:
        pass

    def f(x):
        return x

    run = HandMade(f, lambda view: [Guard(K.TYPE_IS, Local("x"), Big)], (Local("x"),))
    big = Big()
    run(big)
    run.misses.clear()
    before = sys.getrefcount(big)
    for _ in range(100):
        run(big)
    assert sys.getrefcount(big) == before
    assert collected.__name__ == "collected"
