"""customops.check: ``opcheck``, which tells whether an operator is what it says.

In: an operator and sample arguments. Out: a ``Report`` of named checks, each passed, failed with the
reason, or not applicable. Nothing is assumed from the definition: every check runs the operator.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import torch
from typing_extensions import override

from argand.customops.definition import CustomOp, get_op
from argand.customops.errors import ContractViolation, NoImplementation
from argand.customops.kernels import as_tuple, check_aliases, flat_tensors


@final
@dataclass(frozen=True, slots=True)
class Outcome:
    """One check: its name, and why it failed, or None; ``skipped`` says why it did not apply."""

    check: str
    failure: str | None = None
    skipped: str = ""


@final
@dataclass(frozen=True, slots=True)
class Report:
    """What ``opcheck`` found."""

    operator: str
    outcomes: tuple[Outcome, ...]

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return all(outcome.failure is None for outcome in self.outcomes)

    @override
    def __str__(self) -> str:
        lines = [f"opcheck of {self.operator}:"]
        for outcome in self.outcomes:
            if outcome.failure is not None:
                lines.append(f"  FAILED   {outcome.check}: {outcome.failure}")
            elif outcome.skipped:
                lines.append(f"  skipped  {outcome.check}: {outcome.skipped}")
            else:
                lines.append(f"  passed   {outcome.check}")
        return "\n".join(lines)


class _Skip(Exception):
    """The check does not apply to this operator or these samples."""


def _clone(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if isinstance(value, list | tuple):
        return type(value)(_clone(item) for item in value)
    return copy.copy(value)


def _clone_all(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    return [_clone(a) for a in args], {name: _clone(value) for name, value in kwargs.items()}


def _check_mutation(op: CustomOp, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Bytes of undeclared arguments stay the same; declared ones get a new version."""
    ours, keywords = _clone_all(args, kwargs)
    declared = {
        id(t)
        for position in op.mutated_positions
        for t in flat_tensors((op.argument(position, tuple(ours), keywords),))
    }
    tensors = flat_tensors([*ours, *keywords.values()])
    before = [(t, t.detach().clone(), t._version) for t in tensors]
    with torch.no_grad():
        op.overload(*ours, **keywords)
    for index, (tensor, old, version) in enumerate(before):
        same = torch.equal(tensor.detach(), old) or bool(
            torch.equal(tensor.isnan(), old.isnan()) and torch.equal(tensor[~tensor.isnan()], old[~old.isnan()])
            if tensor.is_floating_point()
            else False
        )
        if not same and id(tensor) not in declared:
            raise ContractViolation(f"tensor argument {index} was mutated but is not in mutates_args")
        if id(tensor) in declared and tensor._version == version:
            raise ContractViolation(f"the version of mutated tensor argument {index} did not move")


def _check_outputs(op: CustomOp, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    ours, keywords = _clone_all(args, kwargs)
    with torch.no_grad():
        result = op.overload(*ours, **keywords)
    check_aliases(op, [*ours, *keywords.values()], result, op)


def _resize(value: Any, size_map: Mapping[int, int]) -> Any:
    """A tensor with every size of the map replaced, filled by repeating values."""
    if isinstance(value, list | tuple):
        return type(value)(_resize(item, size_map) for item in value)
    if not isinstance(value, torch.Tensor):
        return value
    result = value.detach()
    for dim, size in enumerate(value.shape):
        index = torch.arange(size_map.get(size, size)) % max(size, 1)
        result = result.index_select(dim, index)
    return result.clone()


def _compare_fake(op: CustomOp, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    ours, keywords = _clone_all(args, kwargs)
    with torch.no_grad():
        real = as_tuple(op.overload(*ours, **keywords))
        metas = [_to_meta(a) for a in args]
        fake = as_tuple(op.overload(*metas, **{k: _to_meta(v) for k, v in kwargs.items()}))
    for index, (one, other) in enumerate(zip(flat_tensors(real), flat_tensors(fake), strict=True)):
        for what in ("shape", "dtype"):
            if getattr(one, what) != getattr(other, what):
                raise ContractViolation(
                    f"output {index}: the fake says {what} {getattr(other, what)},"
                    f" the kernel gives {getattr(one, what)}"
                )
        if one.stride() != other.stride() and one.numel() > 1:
            raise ContractViolation(
                f"output {index}: the fake says strides {other.stride()}, the kernel {one.stride()}"
            )


def _to_meta(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    if isinstance(value, list | tuple):
        return type(value)(_to_meta(item) for item in value)
    return value


def _check_fake(op: CustomOp, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    if op.fake is None and op.implementations.get("meta") == op.where:
        raise _Skip("no fake is registered; the operator cannot be traced")
    _compare_fake(op, args, kwargs)


def _check_fake_other_sizes(op: CustomOp, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    if op.fake is None and op.implementations.get("meta") == op.where:
        raise _Skip("no fake is registered")
    sizes = {s for t in flat_tensors([*args, *kwargs.values()]) for s in t.shape}
    tried = 0
    for offset in (1, 3):
        size_map = {size: size + offset for size in sizes}
        changed = [_resize(a, size_map) for a in args]
        keywords = {name: _resize(value, size_map) for name, value in kwargs.items()}
        try:
            with torch.no_grad():
                op.overload(*[_clone(a) for a in changed], **keywords)
        except (RuntimeError, ValueError, IndexError, TypeError):
            continue  # the operator itself refuses these sizes
        _compare_fake(op, changed, keywords)
        tried += 1
    if not tried:
        raise _Skip("the operator takes no other sizes than the sample's")


def _check_gradients(op: CustomOp, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    tensors = flat_tensors([*args, *kwargs.values()])
    if not any(t.requires_grad for t in tensors):
        raise _Skip("no sample argument requires a gradient")
    doubles = [_to_double(a) for a in args]
    keywords = {name: _to_double(value) for name, value in kwargs.items()}

    def run(*values: Any) -> Any:
        outputs = flat_tensors(as_tuple(op.overload(*values, **keywords)))
        return tuple(o for o in outputs if o.is_floating_point() and o.requires_grad)

    try:
        torch.autograd.gradcheck(run, tuple(doubles), raise_exception=True)
    except NoImplementation as error:
        raise ContractViolation(f"no gradient formula: {error.what}") from error


def _to_double(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.detach().to(torch.float64).requires_grad_(value.requires_grad)
    if isinstance(value, list | tuple):
        return type(value)(_to_double(item) for item in value)
    return value


def _check_threads(op: CustomOp, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Four threads get what one thread gets."""
    with torch.no_grad():
        ours, keywords = _clone_all(args, kwargs)
        expected = flat_tensors(as_tuple(op.overload(*ours, **keywords)))
    failures: list[str] = []

    def work() -> None:
        mine, names = _clone_all(args, kwargs)
        try:
            with torch.no_grad():
                got = flat_tensors(as_tuple(op.overload(*mine, **names)))
        except Exception as error:
            failures.append(f"{type(error).__name__}: {error}")
            return
        if not all(torch.allclose(a, b, equal_nan=True) for a, b in zip(got, expected, strict=True)):
            failures.append("a thread got another result")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise ContractViolation(failures[0])


CHECKS: Final[Mapping[str, Callable[[CustomOp, Sequence[Any], Mapping[str, Any]], None]]] = {
    "schema: mutation": _check_mutation,
    "schema: aliasing": _check_outputs,
    "fake against real": _check_fake,
    "fake at other sizes": _check_fake_other_sizes,
    "gradients by finite differences": _check_gradients,
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
            CHECKS[name](target, args, kwargs or {})
        except _Skip as reason:
            outcomes.append(Outcome(name, skipped=str(reason)))
        except Exception as error:
            outcomes.append(Outcome(name, failure=f"{type(error).__name__}: {error}"))
        else:
            outcomes.append(Outcome(name))
    report = Report(target.qualname, tuple(outcomes))
    if raise_exception and not report.ok:
        raise ContractViolation(str(report))
    return report
