"""Sizes that vary: how often a program is compiled, and that results are eager's at every size."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

import argand
from argand.support import events

Args = tuple[Any, ...]


def compiles(
    function: Callable[..., Any],
    calls: Iterable[Args],
    dynamic: bool | None = None,
    backend: Any = "eager",
    **keywords: Any,
) -> int:
    """How often a function is compiled over some calls, each checked against eager."""
    run = argand.compile(function, backend=backend, dynamic=dynamic, fullgraph=True, **keywords)
    with events.collect() as seen:
        for args in calls:
            torch.testing.assert_close(run(*args), function(*args), rtol=0, atol=0)
    return seen.total("compiles")


def rows(*sizes: int) -> list[Args]:
    return [(torch.randn(n, 8),) for n in sizes]


def pairs(*sizes: tuple[int, int]) -> list[Args]:
    return [(torch.randn(a, 8), torch.randn(b, 8)) for a, b in sizes]


def scaled(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x) * x.shape[0] + len(x) - x.size(0) // 2


@pytest.mark.parametrize(("dynamic", "count"), [(None, 2), (True, 1), (False, 6)])
def test_compiles_over_sizes(dynamic: bool | None, count: int) -> None:
    assert compiles(scaled, rows(2, 3, 4, 5, 9, 30), dynamic) == count


def test_sizes_zero_and_one_are_their_own() -> None:
    assert compiles(scaled, rows(4, 1, 0, 7, 9, 1, 0), True) == 3


def test_two_sizes_become_open_at_once() -> None:
    calls = [(torch.randn(n, 2 * n), torch.randn(2 * n, 4)) for n in (3, 4, 5, 6)]
    assert compiles(lambda x, y: x @ y, calls) == 2


def test_integers_of_arguments_and_modules() -> None:
    def narrow(x: torch.Tensor, n: int) -> torch.Tensor:
        return x[:, :n] * n

    assert compiles(narrow, [(torch.randn(2, 50), n) for n in (3, 4, 5, 9)]) == 2
    assert compiles(narrow, [(torch.randn(2, 50), n) for n in (3, 4, 5, 9)], True) == 1

    class Window(torch.nn.Module):
        length = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[: self.length].sum(0) / self.length

    module = Window()
    run = argand.compile(module, backend="eager", fullgraph=True)
    x = torch.randn(40, 3)
    with events.collect() as seen:
        for module.length in (5, 6, 7, 8, 20):
            torch.testing.assert_close(run(x), module(x))
    assert seen.total("compiles") == 2


def test_branches_on_sizes_are_guards() -> None:
    def longer(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > y.shape[0]:
            return x.sum() + y.sum()
        return x.sum() - y.sum()

    assert compiles(longer, pairs((5, 3), (9, 2), (7, 6), (3, 5), (2, 8), (30, 4)), True) == 2

    def twice(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if x.shape[0] == 2 * y.shape[0]:
            return x.view(2, -1, 8)[0] + y
        return x[:2] + y[:2]

    calls = pairs((6, 3), (8, 4), (20, 10), (7, 3), (9, 4), (30, 4), (4, 2))
    assert compiles(twice, calls, True) == 2

    def even(x: torch.Tensor) -> torch.Tensor:
        return x.view(-1, 2, 8).sum(1) if x.shape[0] % 2 == 0 else x * 2

    assert compiles(even, rows(4, 6, 20, 5, 7, 31), True) == 2


def test_equal_sizes_are_shared_only_where_needed() -> None:
    def apart(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.sum(0) + y.sum(0)

    assert compiles(apart, pairs((5, 5), (4, 9), (8, 2)), True) == 1

    def together(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y

    assert compiles(together, pairs((5, 5), (4, 4), (9, 9)), True) == 1
    with pytest.raises(RuntimeError, match="must match"):
        compiles(together, pairs((5, 5), (4, 3)), True)


def test_slices_and_their_ends() -> None:
    def head(x: torch.Tensor) -> torch.Tensor:
        return x[:16].sum(0) + x[-4:].sum(0) + x[1:-1].mean(0)

    assert compiles(head, rows(6, 9, 16, 20, 33, 100), True) == 2


def test_views_that_need_a_divisor() -> None:
    def heads(x: torch.Tensor) -> torch.Tensor:
        return x.reshape(-1, 4, 8).transpose(0, 1).flatten(1)

    assert compiles(heads, rows(8, 12, 40, 64), True) == 1


def test_a_pyramid_needs_multiples() -> None:
    def pyramid(x: torch.Tensor) -> torch.Tensor:
        steps = [x]
        for _ in range(3):
            steps.append(F.max_pool2d(steps[-1], 2))
        x = steps.pop()
        while steps:
            x = torch.cat([steps.pop(), F.interpolate(x, scale_factor=2.0)], 1)
        return x

    calls = [(torch.randn(2, 3, 16 * n, 16 * n + 24),) for n in (2, 3, 4, 7)]
    assert compiles(pyramid, calls) == 2
    marked = torch.randn(2, 3, 32, 40)
    argand.mark_dynamic(marked, (2, 3))
    assert compiles(pyramid, [(marked,), (torch.randn(2, 3, 48, 80),)]) == 1


def test_errors_name_the_sizes_of_the_call() -> None:
    def refused(x: torch.Tensor) -> tuple[torch.Tensor, str]:
        try:
            return x.view(999), ""
        except RuntimeError as error:
            return x + 1, str(error)

    run = argand.compile(refused, backend="eager", dynamic=True)
    for n in (3, 5):
        assert run(torch.ones(n, 2))[1] == f"shape '[999]' is invalid for input of size {2 * n}"


def test_an_error_fixes_no_size() -> None:
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return (x @ torch.ones(8, 2)) * x.shape[0]

    run = argand.compile(doubled, backend="eager", dynamic=True)
    with pytest.raises(RuntimeError, match="3x7 and 8x2"):
        run(torch.ones(3, 7))
    with events.collect() as seen:
        assert [len(run(torch.ones(n, 8))) for n in (3, 5, 9)] == [3, 5, 9]
    assert seen.total("compiles") == 1


def test_a_number_of_chunks_keeps_the_size_open() -> None:
    def chunked(x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(8)
        for i in range((x.shape[0] + 15) // 16):
            total = total + x[16 * i : 16 * (i + 1)].sum(0) * (x.shape[0] // 16 + 0.5)
        return total + x[: x.shape[0] // 64 * 64].sum(0)

    assert compiles(chunked, rows(17, 18, 23, 30, 31), True) == 1
    assert compiles(chunked, rows(17, 30, 40, 47), True) == 2


def test_loops_fix_the_size() -> None:
    def unrolled(x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(8)
        for i in range(x.shape[0]):
            total = total + x[i] * i
        return total

    explanation = argand.explain(unrolled, dynamic=True)(torch.randn(3, 8))
    assert "x.shape[0] is fixed at 3: s0 is needed as a number (index)" in str(explanation)
    assert "test_dynamic_sizes.py" in str(explanation)
    assert compiles(unrolled, rows(3, 4, 5, 3), True) == 3


def test_numbers_in_text_and_keys_fix_the_size() -> None:
    def named(x: torch.Tensor) -> tuple[torch.Tensor, str, dict[int, int]]:
        return x + 1, f"{x.shape[0]} rows", {x.shape[0]: 1}

    run = argand.compile(named, backend="eager", dynamic=True)
    for n in (3, 5):
        assert run(torch.ones(n, 2))[1:] == (f"{n} rows", {n: 1})


def test_sizes_leave_the_frame_as_numbers() -> None:
    def measured(x: torch.Tensor) -> tuple[Any, ...]:
        n, m = x.shape
        return x * 2, x.shape, n * m - 1, [n // 2, -n], max(n, 3), isinstance(n, int)

    run = argand.compile(measured, backend="eager", dynamic=True)
    with events.collect() as seen:
        for n in (4, 7, 11):
            x = torch.randn(n, 5)
            found, wanted = run(x), measured(x)
            assert found[1:] == wanted[1:] and type(found[1]) is torch.Size
            assert type(found[2]) is int
    assert seen.total("compiles") == 1


def test_after_a_break_sizes_are_open_too() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        n = x.shape[0]
        y = x * n
        argand.graph_break()
        return y + n

    run = argand.compile(broken, backend="eager")
    with events.collect() as seen:
        for n in (3, 4, 5, 6, 7, 8):
            x = torch.randn(n, 5)
            torch.testing.assert_close(run(x), broken(x))
    assert seen.total("compiles") == 4


def test_images() -> None:
    weight, up = torch.randn(4, 3, 3, 3), torch.randn(4, 4, 2, 2)

    def unet(x: torch.Tensor) -> torch.Tensor:
        skip = F.conv2d(x, weight, padding=1)
        low = F.conv_transpose2d(F.max_pool2d(skip, 2), up, stride=2)
        return torch.cat([skip, low], 1)

    calls = [(torch.randn(1, 3, n, m),) for n, m in ((16, 16), (20, 24), (32, 18), (64, 40))]
    assert compiles(unet, calls) == 2


def test_strides_that_do_not_follow_the_size() -> None:
    def flat(x: torch.Tensor) -> torch.Tensor:
        return x.as_strided((x.shape[0] * x.shape[1],), (1,)) * 2

    run = argand.compile(flat, backend="eager", dynamic=True)
    for x in (
        torch.randn(4, 6),
        torch.randn(5, 3),
        torch.randn(6, 9)[:, :4],
        torch.randn(4, 6).t(),
    ):
        torch.testing.assert_close(run(x), flat(x))


def test_marks() -> None:
    def fixed(x: torch.Tensor) -> torch.Tensor:
        return x + torch.ones(5, 8)

    x = torch.randn(5, 8)
    argand.mark_dynamic(x, 0)
    with pytest.raises(argand.UserError, match=r"x.shape\[0\] is marked dynamic") as caught:
        argand.compile(fixed, backend="eager")(x)
    assert "test_dynamic_sizes.py" in str(caught.value) and "in fixed" in str(caught.value)
    x = torch.randn(5, 8)
    argand.maybe_mark_dynamic(x, [0, 1])
    torch.testing.assert_close(argand.compile(fixed, backend="eager")(x), fixed(x))

    calls = rows(4, 5, 6)
    for (x,) in calls:
        argand.mark_dynamic(x, 0, min=2, max=64)
    assert compiles(scaled, [*calls, *rows(64)]) == 1
    assert compiles(scaled, [*calls, *rows(65)]) == 2
    with pytest.raises(ValueError, match="no size lies"):
        argand.mark_dynamic(x, 0, min=4, max=3)
    for (x,) in calls:
        argand.mark_static(x)
    assert compiles(scaled, calls, True) == 3
    with pytest.raises(IndexError):
        argand.mark_dynamic(x, 7)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "argand"])
def test_marked_sizes_of_zero_and_one_are_open(backend: str) -> None:
    def grown(x: torch.Tensor) -> torch.Tensor:
        y = torch.cat([x, x]).reshape(-1, 2, 8).transpose(0, 1) * x.shape[0]
        return y.sum(1) + 1

    def calls(*sizes: int, **limits: int) -> list[Args]:
        made = rows(*sizes)
        for (x,) in made:
            argand.mark_dynamic(x, 0, **limits)
        return made

    def near(sizes: list[Args]) -> int:
        options = {"cache": False} if backend == "argand" else None
        run = argand.compile(grown, backend=backend, fullgraph=True, options=options)
        with events.collect() as seen:
            for args in sizes:
                torch.testing.assert_close(run(*args), grown(*args), rtol=1e-5, atol=1e-4)
        return seen.total("compiles")

    assert near(calls(1, 2, 1, 5, 30)) == 1
    assert near(calls(5, 1, 30, 2, 1)) == 2
    assert near(calls(5, 1, 30, 2, 1, min=1)) == 1
    assert near(calls(0, 5, 1, 0, 30)) == 1


def test_a_marked_size_of_one_may_be_fixed_by_the_program() -> None:
    x = torch.randn(1, 8)
    argand.mark_dynamic(x, 0)
    for program in (lambda x: x.squeeze(0), lambda x: x + torch.ones(3, 8)):
        with pytest.raises(argand.UserError, match=r"x.shape\[0\] is marked dynamic"):
            argand.compile(program, backend="eager")(x)


def test_gradients_and_changes_in_place() -> None:
    def step(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = (x @ w).tanh().clone()
        y[: x.shape[0] // 2] *= 3
        return y.square().sum() / x.shape[0]

    run = argand.compile(step, backend="eager", fullgraph=True)
    w = torch.randn(8, 4, requires_grad=True)
    with events.collect() as seen:
        for n in (4, 6, 9, 12):
            x = torch.randn(n, 8)
            (wanted,) = torch.autograd.grad(step(x, w), w)
            (found,) = torch.autograd.grad(run(x, w), w)
            torch.testing.assert_close(found, wanted)
    assert seen.total("compiles") == 2


def test_an_integer_that_looks_like_a_size() -> None:
    def tricky(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x.sum(0), torch.ones(101), torch.ones(x.shape[0] + 103)])

    assert compiles(tricky, rows(4, 5, 6), True) <= 3


def test_what_is_printed() -> None:
    with events.collect() as seen:
        compiles(scaled, rows(4), True)
    assert "s0 = x.shape[0], now 4" in "\n".join(seen.texts("dynamic"))


def test_a_quotient_that_is_small_is_no_constant() -> None:
    def rolled(x: torch.Tensor) -> torch.Tensor:
        return F.avg_pool1d(x.t()[None], 2, 3).squeeze(0).t().roll(1, 0) * 2

    run = argand.compile(rolled, dynamic=True)
    for n in (7, 30, 12):
        x = torch.randn(n, 4)
        torch.testing.assert_close(run(x), rolled(x))


def test_a_quotient_nobody_explains_is_no_constant() -> None:
    def chunked(x: torch.Tensor) -> torch.Tensor:
        padded = F.pad(x, (0, (64 - x.shape[1] % 64) % 64)).view(x.shape[0], -1, 64)
        return padded.sum((1, 2), keepdim=True).expand(-1, padded.shape[1], 2)

    run = argand.compile(chunked, backend="eager", dynamic=True)
    for n in (100, 300, 7):
        x = torch.randn(3, n)
        torch.testing.assert_close(run(x), chunked(x))


@pytest.mark.parametrize("more", [2, 24, 26])
def test_sums_of_sizes_look_like_no_other_size(more: int) -> None:
    """Whatever primes stand for the sizes, some of these sums met another size."""

    def repeat(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (
            torch.cat([x, y[:, :1].expand(-1, x.shape[1])])
            .mean(0, keepdim=True)
            .expand(y.shape[0] + more, -1)
        )

    compiled = argand.compile(repeat, options={"strict": True})
    for rows, columns in ((14, 4), (9, 6), (30, 5)):
        x, y = torch.randn(4, columns), torch.randn(rows, columns)
        argand.mark_dynamic(x, 1)
        argand.mark_dynamic(y, [0, 1])
        torch.testing.assert_close(compiled(x, y), repeat(x, y))


@pytest.mark.parametrize(
    "shape", [lambda n: (n, 1, 1, n + 1), lambda n: (3, n, 1), lambda n: (1, n, 1, 4, 1)]
)
def test_dimensions_of_size_one_do_not_fix_strides(shape):
    compiled = argand.compile(lambda x: x.sin() + 1, backend="eager", dynamic=True)
    with events.collect() as seen:
        for n in (5, 6, 9):
            x = torch.randn(shape(n))
            assert torch.equal(compiled(x), x.sin() + 1)
    assert seen.total("compiles") == 1


def small_branch(x):
    return x.sum(0) * 2 if x.shape[0] > 10 else (x * 2).sum(0)


def small_branches(x):
    return x.reshape(-1) * 2 if x.shape[0] <= 9 and x.shape[1] < 8 else x.flatten() + x.shape[1]


def short_slice(x):
    return x[:10] * 2


@pytest.mark.parametrize("backend", ["eager", "argand"])
@pytest.mark.parametrize("function", [small_branch, small_branches, short_slice])
def test_comparisons_with_small_numbers_leave_sizes_open(function, backend):
    """Only a small sample would satisfy `s <= 10`, and small samples look like constants of the program."""
    compiled = argand.compile(function, backend=backend)
    with events.collect() as seen:
        for size in (3, 4, 5, 6, 7, 8, 9, 12, 13, 14, 2):
            x = torch.randn(size, 7)
            torch.testing.assert_close(compiled(x), function(x))
    # the first size, one for each side; at the border perhaps another
    assert seen.total("compiles") <= 4


THRESHOLDS = {
    "qr": lambda x: torch.linalg.qr(x)[1].shape[0] * x,
    "singular values": lambda x: torch.linalg.svdvals(x).shape[0] * x,
    "lu": lambda x: torch.linalg.lu_factor(x)[1].shape[0] * x,
    "narrow": lambda x: x.narrow(0, 1, 4) * 2,
    "topk": lambda x: x.topk(4, 0)[0],
    "kthvalue": lambda x: x.kthvalue(4, 0)[0],
    "smaller": lambda x: torch.ones(min(x.shape), device=x.device) * 2,
}


@pytest.mark.parametrize("backend", ["eager", "argand"])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("name", THRESHOLDS)
def test_operators_that_do_something_else_below_a_size(name, both, backend):
    """A graph with large samples says nothing of small sizes: it is also run for the smallest ones."""
    function = THRESHOLDS[name]
    compiled = argand.compile(function, backend=backend, options={"recompile_limit": 32})
    for rows, columns in [
        (9, 7),
        (8, 6),
        (12, 11),
        (5, 8),
        (6, 9),
        (4, 7),
        (3, 7),
        (2, 9),
        (20, 3),
        (30, 2),
        (7, 7),
    ]:
        x = torch.randn(rows, columns if both else 7)
        outs = []
        for call in (function, compiled):
            try:
                outs.append(call(x))
            except RuntimeError:
                outs.append(torch.empty(0))
        torch.testing.assert_close(outs[0], outs[1])


OVERFLOWING = {
    "square": lambda x, n: x + n * n,
    "cube": lambda x, n: x * (n * n * n),
    "shifted": lambda x, n: x + (n << 50),
    "sum": lambda x, n: x + (n + 2**62 + 2**62 - 10),
    "difference": lambda x, n: x + (-n - 2**62 - 2**62),
    "itself": lambda x, n: x + n,
    "compared": lambda x, n: x + 1 if n * n > 100 else x - 1,
    "returned": lambda x, n: (x + 1, n * n),
}


@pytest.mark.parametrize("name", OVERFLOWING)
@pytest.mark.parametrize("backend", ["eager", "argand"])
def test_integers_beyond_64_bits_are_eagers(name, backend):
    function = OVERFLOWING[name]
    compiled = argand.compile(function, backend=backend, options={"recompile_limit": 32})
    x = torch.zeros(2, dtype=torch.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a fall back to eager is a warning
        for n in (2, 3, 5, 2**13, 2**33, 2**62, 2**63 - 1, 2**63, 2**70, 7):
            outs = []
            for call in (function, compiled):
                try:
                    outs.append(call(x, n))
                except (OverflowError, RuntimeError) as error:
                    outs.append(type(error))
            assert str(outs[0]) == str(outs[1]), n


def test_a_size_may_equal_one_that_equals_another():
    def f(a, v):
        w = v + v.transpose(0, 1)  # two sizes of `v` are one
        return w.view(a.shape) * 2 + a  # and those of `a` are those of `v`

    for dynamic in (None, True):
        compiled = argand.compile(f, backend="eager", dynamic=dynamic)
        for shape in ((3, 3, 2), (4, 4, 2), (5, 5, 3), (1, 1, 2)):
            a, v = torch.rand(shape), torch.rand(shape)
            assert torch.equal(compiled(a, v), f(a, v))
