"""Sizes that depend on data, under fullgraph: one graph, eager's results for any data, and reasons where it cannot be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import argand
from argand.support import events

BACKENDS = ("eager", "aot_eager", "argand")


def masked(x: torch.Tensor, mask: torch.Tensor) -> Any:
    y = x[mask] * 2 + 1
    return y.sum(0) / y.shape[0], y.shape, y


def places(x: torch.Tensor, mask: torch.Tensor) -> Any:
    (found,) = torch.where(mask)
    return (
        torch.nonzero(x > 0).float().mean(0),
        x.index_select(0, found).cos() @ x.t(),
        x[:, x[0] > 0],
    )


def selected(x: torch.Tensor, mask: torch.Tensor) -> Any:
    return torch.cat([x[mask], x[~mask]]).sin(), x.masked_select(mask.unsqueeze(-1)).tanh()


def uniques(x: torch.Tensor, mask: torch.Tensor) -> Any:
    whole = (x * 2).int()
    rows = torch.unique(whole, dim=0)
    return *torch.unique(whole, return_inverse=True, return_counts=True), rows * rows.shape[0]


def repeated(x: torch.Tensor, mask: torch.Tensor) -> Any:
    return torch.repeat_interleave(x, mask.long() + 1, dim=0).relu() + 1


def sliced(x: torch.Tensor, mask: torch.Tensor) -> Any:
    n = mask.sum().item()
    torch._check(n >= 0)
    torch._check(n <= x.shape[0])
    return x[:n] * 3, torch.zeros(n, 3) + n, n + 1, n > 3


def listed(x: torch.Tensor, mask: torch.Tensor) -> Any:
    first, second = mask.long()[:2].tolist()
    torch._check(first >= 0)
    return torch.ones(first + 2, 4) * second, int(mask.sum())


def written(x: torch.Tensor, mask: torch.Tensor) -> Any:
    z = x.clone()
    z[mask] = x[mask] * 2
    z += 1
    return z.mul_(2), z[mask].sum()


PROGRAMS = (masked, places, selected, uniques, repeated, sliced, listed, written)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_results_are_eagers_for_any_data(program: Callable[..., Any], backend: str) -> None:
    run = argand.compile(program, backend=backend, fullgraph=True)
    generator = torch.Generator().manual_seed(3)
    with events.collect() as seen:
        for size, share in (
            (6, 0.5),
            (6, 1.0),
            (6, 0.2),
            (6, 0.0),
            (9, 0.5),
            (13, 0.7),
            (13, 0.0),
            (20, 0.1),
        ):
            x = torch.randn(size, 4, generator=generator)
            mask = torch.rand(size, generator=generator) < share
            torch.testing.assert_close(run(x, mask), program(x, mask), equal_nan=True)
    assert seen.total("compiles") == 2 and not seen.total("capture.breaks")


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients(backend: str) -> None:
    def loss(x: torch.Tensor, w: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return ((x @ w).tanh()[mask].exp() * 3).sum()

    run = argand.compile(loss, backend=backend, fullgraph=True)
    w = torch.randn(4, 5, requires_grad=True)
    for size, share in ((6, 0.5), (6, 1.0), (6, 0.0), (9, 0.4)):
        x, mask = torch.randn(size, 4, requires_grad=True), torch.rand(size) < share
        wanted = torch.autograd.grad(loss(x, w, mask), (x, w))
        torch.testing.assert_close(torch.autograd.grad(run(x, w, mask), (x, w)), wanted)


@pytest.mark.parametrize("backend", BACKENDS)
def test_checks_are_made_when_it_runs(backend: str) -> None:
    def head(x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        n = count.item()
        torch._check(n >= 2, lambda: "too few")
        torch._check(n <= 8)
        return x[:n].sum(0) if n > 1 else x.sum(0)

    run = argand.compile(head, backend=backend, fullgraph=True)
    x = torch.randn(8, 3)
    for n in (2, 5, 8):
        torch.testing.assert_close(run(x, torch.tensor(n)), head(x, torch.tensor(n)))
    for n, text in ((1, "^too few$"), (9, "^Expected cond to be True, but got False")):
        with pytest.raises(RuntimeError, match=text):
            run(x, torch.tensor(n))


@pytest.mark.parametrize("backend", BACKENDS)
def test_asserts(backend: str) -> None:
    def head(x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        n = count.item()
        if n <= 2:
            raise ValueError("too few")
        torch._check(n <= 8)
        return x.sum(0) * n

    run = argand.compile(head, backend=backend, fullgraph=True)
    x = torch.randn(8, 3)
    for n in (3, 8):
        torch.testing.assert_close(run(x, torch.tensor(n)), head(x, torch.tensor(n)))
    with pytest.raises(ValueError, match="^too few$"):
        run(x, torch.tensor(2))


def test_what_may_be_checked() -> None:
    def program(x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        n = count.item()
        torch._check(n % 2 == 0)
        torch._check(n > 0)
        return torch.ones(n).view(2, -1) * n

    run = argand.compile(program, backend="eager", fullgraph=True)
    for n in (8, 2, 30):
        torch.testing.assert_close(
            run(torch.ones(3), torch.tensor(n)), program(torch.ones(3), torch.tensor(n))
        )

    def equal(x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        n = count.item()
        torch._check(n == x.shape[0])
        return torch.ones(n) + x

    with pytest.raises(argand.CaptureError, match="B017"):
        argand.compile(equal, backend="eager", fullgraph=True, dynamic=True)(
            torch.ones(30), torch.tensor(30)
        )


def branched(x: torch.Tensor) -> torch.Tensor:
    y = x[x > 0]
    return y + 1 if len(y) > 3 else y


def unchecked(x: torch.Tensor) -> torch.Tensor:
    return x[: (x > 0).sum().item()]


def looped(x: torch.Tensor) -> torch.Tensor:
    for _ in range(x[x > 0].shape[0]):
        x = x + 1
    return x


def unequal(x: torch.Tensor) -> torch.Tensor:
    return x + x[x > 0]


def squeezed(x: torch.Tensor) -> int:
    return x[x > 0].squeeze().dim()


@pytest.mark.parametrize(
    ("program", "text"),
    [
        (branched, "whether u0 > 3"),
        (unchecked, "whether u0 >= 0"),
        (looped, "u0 is needed as a number"),
        (unequal, "whether add fits"),
        (squeezed, "squeeze: sizes [u0] became []"),
    ],
)
def test_what_depends_on_them_is_an_error_with_the_line(
    program: Callable[..., Any], text: str
) -> None:
    with pytest.raises(argand.CaptureError, match="B017") as caught:
        argand.compile(program, backend="eager", fullgraph=True)(torch.randn(9))
    assert text in str(caught.value)
    assert f"in {program.__name__}" in str(caught.value)
    assert "torch._check" in str(caught.value)
    x = torch.randn(9)  # without fullgraph it breaks
    torch.testing.assert_close(argand.compile(program, backend="eager")(x.abs()), program(x.abs()))


def test_without_fullgraph_they_break() -> None:
    with events.collect() as seen:
        x = torch.randn(9)
        torch.testing.assert_close(argand.compile(branched, backend="eager")(x), branched(x))
    assert seen.total("capture.breaks") == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_modes_and_shared_memory(backend: str) -> None:
    def program(x: torch.Tensor, mask: torch.Tensor) -> Any:
        with torch.no_grad():
            quiet = x[mask] * 2
        y = x * 1
        view = y[1:]
        count = mask.sum().item()
        y.mul_(3)
        return quiet, view + count, y

    run = argand.compile(program, backend=backend, fullgraph=True)
    x, mask = torch.randn(7, 2, requires_grad=True), torch.arange(7) % 2 == 0
    found, wanted = run(x, mask), program(x, mask)
    torch.testing.assert_close(found, wanted)
    assert [t.requires_grad for t in found] == [t.requires_grad for t in wanted]
    gradients = [torch.autograd.grad(r[1].sum() + r[2].sum(), x) for r in (found, wanted)]
    torch.testing.assert_close(*gradients)
