"""report.compare: one model under several backends, side by side.

In: a model, its inputs, backend names. Out: a ``Comparison`` that prints as one table: right or not (against
a double-precision run of the model: a backend may be as far from it as eager is, and a little more), time
of the first call, steady time with the contenders interleaved, and peak memory of the first call.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import torch
from typing_extensions import override

from argand.backends.registry import name_of
from argand.pipeline import compile as compile_model
from argand.support.platform import forget_peak, memory_line

TOLERANCE: Final = 1e-4  # of the largest magnitude, beyond twice eager's own error


class BackendRow(NamedTuple):
    """One backend's results; ``problem`` when it could not run at all."""

    backend: str
    error: float = float("nan")  # largest difference from double precision, relative
    correct: bool = False
    first_seconds: float = float("nan")
    steady_seconds: float = float("nan")
    peak_megabytes: float = float("nan")
    problem: str = ""


class Comparison(NamedTuple):
    """The table; the first row is eager."""

    rows: tuple[BackendRow, ...]

    @override
    def __str__(self) -> str:
        head = f"{'backend':<20} {'right':<6} {'error':>8} {'first':>10} {'steady':>10} {'x eager':>8} {'memory':>9}"
        eager = self.rows[0].steady_seconds
        lines = [head, "-" * len(head)]
        for row in self.rows:
            if row.problem:
                lines.append(f"{row.backend:<20} {row.problem}")
                continue
            lines.append(
                f"{row.backend:<20} {'yes' if row.correct else 'NO':<6} {row.error:>8.1e}"
                f" {row.first_seconds * 1e3:>7.1f} ms {row.steady_seconds * 1e3:>7.2f} ms"
                f" {eager / row.steady_seconds:>8.2f} {row.peak_megabytes:>6.1f} MB"
            )
        return "\n".join(lines)


def compare(
    model: Callable[..., Any],
    inputs: Sequence[Any],
    backends: Sequence[Any] = ("argand",),
    *,
    rounds: int = 10,
) -> Comparison:
    """Run a model under eager and each backend, without gradients."""
    with torch.no_grad():
        oracle = _flat(_in_double(model, inputs))
        runners: dict[str, Callable[..., Any]] = {"eager": model}
        for backend in backends:
            runners[name_of(backend)] = compile_model(model, backend=backend)
        rows = {name: _first_call(name, run, inputs, oracle) for name, run in runners.items()}
        allowed = 2 * rows["eager"].error + TOLERANCE
        working = {name: runners[name] for name, row in rows.items() if not row.problem}
        times: dict[str, list[float]] = {name: [] for name in working}
        for _ in range(rounds):
            for name, run in working.items():
                begin = time.perf_counter()
                run(*inputs)
                times[name].append(time.perf_counter() - begin)
    return Comparison(
        tuple(_finish(row, times.get(name, []), allowed) for name, row in rows.items())
    )


def _finish(row: BackendRow, times: Sequence[float], allowed: float) -> BackendRow:
    if row.problem:
        return row
    steady = statistics.median(times)
    return row._replace(correct=row.error <= allowed, steady_seconds=steady)


def _first_call(
    name: str, run: Callable[..., Any], inputs: Sequence[Any], oracle: Sequence[torch.Tensor]
) -> BackendRow:
    before = _start_peak()
    begin = time.perf_counter()
    try:
        result = run(*inputs)
    except Exception as error:  # a contender that fails is a row of the table
        return BackendRow(name, problem=f"{type(error).__name__}: {str(error).splitlines()[0]}")
    first = time.perf_counter() - begin
    peak = _megabytes("VmHWM") - before
    return BackendRow(name, _difference(_flat(result), oracle), False, first, peak_megabytes=peak)


def _in_double(model: Callable[..., Any], inputs: Sequence[Any]) -> Any:
    precise = copy.deepcopy(model).double() if isinstance(model, torch.nn.Module) else model
    doubled = [
        x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in inputs
    ]
    return precise(*doubled)


def _flat(value: Any) -> list[torch.Tensor]:
    leaves = torch.utils._pytree.tree_leaves(value)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _difference(ours: Sequence[torch.Tensor], oracle: Sequence[torch.Tensor]) -> float:
    if len(ours) != len(oracle):
        return float("inf")
    worst = 0.0
    for one, exact in zip(ours, oracle, strict=True):
        if one.shape != exact.shape:
            return float("inf")
        if one.numel():
            scale = exact.double().abs().max().clamp_min(1e-12)
            worst = max(worst, float((one.double() - exact.double()).abs().max() / scale))
    return worst


def _start_peak() -> float:
    """Forget the peak so far, where the system allows it; memory in use now, in megabytes."""
    return _megabytes("VmRSS" if forget_peak() else "VmHWM")


def _megabytes(field: str) -> float:
    return memory_line(field) / 2**20
