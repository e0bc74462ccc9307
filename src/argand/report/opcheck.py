"""report.opcheck: whether a custom operator is what it says.

In: an operator and sample arguments. Out: a ``Report`` of named checks, each passed, failed with the
reason, or not applicable. Nothing is assumed from the definition: every check runs the operator.
"""

from __future__ import annotations

import copy
import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import torch
from typing_extensions import override

from argand.customops.definition import CustomOp, get_op
from argand.customops.errors import ContractViolation, NoImplementation
from argand.customops.kernels import as_tuple, check_aliases, flat_tensors
from argand.ops.layout import DataDependent
from argand.pipeline import compile as compile_model
from argand.support.errors import Break, CaptureError

SampleArguments: TypeAlias = tuple[tuple[Any, ...], Mapping[str, Any]]


class Outcome(NamedTuple):
    """One check: its name, and why it failed, or None; ``skipped`` says why it did not apply."""

    check: str
    failure: str | None = None
    skipped: str = ""

    @override
    def __str__(self) -> str:
        if self.failure is not None:
            return f"  FAILED   {self.check}: {self.failure}"
        return (
            f"  skipped  {self.check}: {self.skipped}"
            if self.skipped
            else f"  passed   {self.check}"
        )


class Report(NamedTuple):
    """What ``opcheck`` found."""

    operator: str
    outcomes: tuple[Outcome, ...]

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return all(outcome.failure is None for outcome in self.outcomes)

    @override
    def __str__(self) -> str:
        return "\n".join([f"opcheck of {self.operator}:", *map(str, self.outcomes)])


class _Skip(Exception):
    """The check does not apply to this operator or these samples."""


def _changed(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """SampleArguments with every tensor changed, gradients asked for as before."""
    if isinstance(value, torch.Tensor):
        return change(value.detach()).requires_grad_(value.requires_grad)
    if isinstance(value, list | tuple):
        return type(value)([_changed(item, change) for item in value])
    if isinstance(value, Mapping):
        return {name: _changed(item, change) for name, item in value.items()}
    return copy.copy(value)


def _clone(given: SampleArguments) -> Any:
    return _changed(given, torch.Tensor.clone)


def _tensors(given: SampleArguments) -> list[torch.Tensor]:
    return flat_tensors((*given[0], *given[1].values()))


def _run(op: CustomOp, given: SampleArguments) -> list[torch.Tensor]:
    with torch.no_grad():
        return flat_tensors(as_tuple(op.overload(*given[0], **given[1])))


def _check_mutation(op: CustomOp, given: SampleArguments) -> None:
    """Undeclared arguments stay the same; declared ones get a new version."""
    args, kwargs = ours = _clone(given)
    written = [op.argument(position, args, kwargs) for position in op.mutated_positions]
    declared = {id(t) for t in flat_tensors(written)}
    before = [(t, t.detach().clone(), t._version) for t in _tensors(ours)]
    _run(op, ours)
    for index, (tensor, old, version) in enumerate(before):
        same = torch.allclose(tensor.detach(), old, rtol=0, atol=0, equal_nan=True)
        if not same and id(tensor) not in declared:
            raise ContractViolation(f"tensor argument {index} was mutated, not in mutates_args")
        if id(tensor) in declared and tensor._version == version:
            raise ContractViolation(f"the version of mutated tensor argument {index} did not move")


def _check_outputs(op: CustomOp, given: SampleArguments) -> None:
    args, kwargs = _clone(given)
    with torch.no_grad():
        check_aliases(op, [*args, *kwargs.values()], op.overload(*args, **kwargs), op)


def _check_fake(op: CustomOp, given: SampleArguments) -> None:
    metas = _changed(
        given, lambda t: torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta")
    )
    try:
        fake = _run(op, metas)
    except DataDependent as reason:
        raise _Skip("its sizes depend on data") from reason
    except NoImplementation as reason:
        raise _Skip(reason.what) from reason
    for index, (one, other) in enumerate(zip(_run(op, _clone(given)), fake, strict=True)):
        stride = "stride" if one.numel() > 1 else "dim"
        for what in ("shape", "dtype", stride):
            said, real = getattr(other, what), getattr(one, what)
            said, real = (said(), real()) if callable(said) else (said, real)
            if said != real:
                raise ContractViolation(f"output {index}: the fake says {what} {said}, not {real}")


def _other_sizes(op: CustomOp, given: SampleArguments) -> Iterator[SampleArguments]:
    """The sample at two other sizes, equal sizes kept equal, where the operator takes them."""

    def grow(tensor: torch.Tensor, by: int) -> torch.Tensor:
        for dim, size in enumerate(tensor.shape):
            index = torch.arange(size + by) % max(size, 1)
            tensor = tensor.index_select(dim, index)
        return tensor.clone()

    for by in (1, 3):
        other: SampleArguments = _changed(given, functools.partial(grow, by=by))
        try:
            _run(op, _clone(other))
        except (RuntimeError, ValueError, IndexError, TypeError):
            continue
        yield other


def _check_fake_other_sizes(op: CustomOp, given: SampleArguments) -> None:
    others = list(_other_sizes(op, given))
    if not others:
        raise _Skip("the operator takes no other sizes than the sample's")
    for other in others:
        _check_fake(op, other)


def _differentiate(run: Callable[..., Any], given: SampleArguments) -> list[torch.Tensor]:
    """Results, arguments afterwards, and gradients of the sum of all results."""
    args, kwargs = ours = _clone(given)
    leaves = [t for t in _tensors(ours) if t.requires_grad]
    results = flat_tensors(as_tuple(run(*args, **kwargs)))
    ends = [r.double().sum() for r in results if r.requires_grad]
    gradients = torch.autograd.grad(sum(ends), leaves, allow_unused=True) if ends else ()
    return [*results, *_tensors(ours), *(g for g in gradients if g is not None)]


def _check_registration(op: CustomOp, given: SampleArguments) -> None:
    if not any(t.requires_grad for t in _tensors(given)):
        raise _Skip("no sample argument requires a gradient")
    _differentiate(op.overload, given)


def _check_gradients(op: CustomOp, given: SampleArguments) -> None:
    if not any(t.requires_grad for t in _tensors(given)):
        raise _Skip("no sample argument requires a gradient")
    doubles: SampleArguments = _changed(given, lambda t: t.double() if t.is_floating_point() else t)

    def run(*values: Any) -> Any:
        outputs = flat_tensors(as_tuple(op.overload(*values, **doubles[1])))
        return tuple(o for o in outputs if o.is_floating_point() and o.requires_grad)

    torch.autograd.gradcheck(run, doubles[0], raise_exception=True)


def _compare(ours: Sequence[torch.Tensor], expected: Sequence[torch.Tensor], who: str) -> None:
    for index, (one, other) in enumerate(zip(ours, expected, strict=True)):
        if not torch.allclose(one, other, rtol=1e-4, atol=1e-5, equal_nan=True):
            raise ContractViolation(f"{who}: value {index} differs from eager's")


def _check_compiled(op: CustomOp, given: SampleArguments, dynamic: bool = False) -> None:
    """Compiled calls give eager's results, mutations and gradients, at every size."""

    def program(*args: Any, **kwargs: Any) -> Any:
        return op(*args, **kwargs)

    compiled = compile_model(program, fullgraph=True, dynamic=dynamic)
    for sample in (given, *_other_sizes(op, given)):
        try:
            got = _differentiate(compiled, sample)
        except CaptureError as error:
            if error.cause.row is not Break.B008:
                raise
            raise _Skip("its sizes depend on data: graphs end before it") from error
        _compare(got, _differentiate(op.overload, sample), f"compiled, dynamic={dynamic}")


def _check_threads(op: CustomOp, given: SampleArguments) -> None:
    """Four threads get what one thread gets."""
    expected = _run(op, _clone(given))
    failures: list[str] = []

    def work() -> None:
        try:
            _compare(_run(op, _clone(given)), expected, "a thread")
        except Exception as error:
            failures.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise ContractViolation(failures[0])


CHECKS: Final[Mapping[str, Callable[[CustomOp, SampleArguments], None]]] = {
    "schema: mutation": _check_mutation,
    "schema: aliasing": _check_outputs,
    "fake against real": _check_fake,
    "fake at other sizes": _check_fake_other_sizes,
    "autograd registration": _check_registration,
    "gradients by finite differences": _check_gradients,
    "compiled, static shapes": _check_compiled,
    "compiled, dynamic shapes": functools.partial(_check_compiled, dynamic=True),
    "threads": _check_threads,
}


def opcheck(
    op: str | CustomOp | Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    checks: Sequence[str] | None = None,
    raise_exception: bool = False,
) -> Report:
    """Check an operator on sample arguments."""
    target = op if isinstance(op, CustomOp) else get_op(op if isinstance(op, str) else op._name)
    outcomes: list[Outcome] = []
    for name in checks or CHECKS:
        try:
            CHECKS[name](target, (tuple(args), kwargs or {}))
            outcomes.append(Outcome(name))
        except _Skip as reason:
            outcomes.append(Outcome(name, skipped=str(reason)))
        except Exception as error:
            outcomes.append(Outcome(name, failure=f"{type(error).__name__}: {error}"))
    report = Report(target.qualname, tuple(outcomes))
    if raise_exception and not report.ok:
        raise ContractViolation(str(report))
    return report
