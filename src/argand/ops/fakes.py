"""ops.fakes: run torch code on tensors without data (design D2).

A fake is a plain CPU tensor from ``torch.empty_strided``: untouched virtual memory. Under ``FakeMode``
no kernel runs: views are made for real (C++ keeps aliasing and metadata right), every other op
answers from our type rules, and only an op without a row asks torch's own kernels (`ops.fallback`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Final

import torch
from torch._C import DispatchKey
from torch.autograd.graph import increment_version
from torch.utils._python_dispatch import TorchDispatchMode
from typing_extensions import override

from argand.ops import unreadable
from argand.ops.data_dependent import RULES, Make
from argand.ops.fallback import eager_error, fake_context, infer_by_eager, infer_by_torch, is_small
from argand.ops.layout import DataDependent, is_dense, new
from argand.ops.one_element import eager_takes
from argand.ops.overlap import lies_on, may_overlap, reads_what_it_writes
from argand.ops.rows import FUNCTIONS, OF_TORCH, draws, may_raise, row_of
from argand.ops.table import Draws, Kind, Raises, written_arguments
from argand.sizes.formulas import explain_sizes
from argand.sizes.table import SizeTable

__all__ = ["DataDependent", "FakeMode", "check_reads", "fake_at", "fake_of", "infer"]

# Takes the mode it runs under (None: called by hand), args and kwargs.
FakeRule = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]

_NO_KWARGS: Final[dict[str, Any]] = {}
_HALF_COVERED: Final = (
    "unsupported operation: some elements of the input tensor and the written-to tensor refer to a "
    "single memory location. Please clone() the tensor before performing the operation."
)
# Ops whose in-place twins are refused where they are: a result of theirs has the shape of what is written.
_CHECKED: Final = frozenset({Kind.POINTWISE, Kind.RANDOM})


def fake_of(real: torch.Tensor) -> torch.Tensor:
    """A fake with the metadata of a real tensor: storage offset, bits and ``requires_grad`` included."""
    return fake_at(real, real.size(), real.stride())


def fake_at(real: torch.Tensor, shape: Sequence[int], stride: Sequence[int]) -> torch.Tensor:
    """The same, with other sizes and strides."""
    fake = new(shape, stride, dtype=real.dtype, offset=real.storage_offset())
    if real.is_conj():
        fake = torch._conj(fake)
    if real.is_neg():
        fake = torch._neg_view(fake)
    return fake.requires_grad_() if real.requires_grad else fake


def check_reads(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuse a function that would take what lies in the memory of a fake for indices or numbers."""
    row = FUNCTIONS.get(name)
    if row is None:
        return
    if row.reads_memory and any(
        t.dtype is torch.int64 for t in [*_tensors((*args, *kwargs.values()))][1:]
    ):
        raise DataDependent(name)
    given: Iterable[Any] = ()
    if row.makes_of_numbers:
        given = (*args, *kwargs.values())
    elif row.indexes and len(args) > 1 and isinstance(args[1], list | tuple):
        given = args[1]  # x[0, [i, j]]: of a list of numbers an index is made
    if any(True for value in given if isinstance(value, list | tuple) for _ in _tensors(value)):
        raise DataDependent(name)


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Tensors in nested lists."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def reads_offset(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the answer of a function tells where its first argument lies in its storage."""
    row = FUNCTIONS.get(name)
    place = None if row is None else row.offset_place
    return place is not None and (len(args) > place or kwargs.get("storage_offset") is not None)


def infer(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Result(s) of one non-view aten op as fresh fakes; raises what eager raises for wrong shapes."""
    result = _functional(func)(None, args, kwargs)
    return _moved(result) if unreadable.is_wanted() else result


def _moved(result: Any) -> Any:
    """Results that lie in unreadable memory; some rules make them by torch's factories."""
    if isinstance(result, torch.Tensor):
        return unreadable.moved(result)
    return type(result)(map(_moved, result)) if type(result) in (tuple, list) else result


class FakeMode(TorchDispatchMode):
    """Inside it, torch functions on fakes give fakes; with a table, it learns the sizes they have."""

    def __init__(self, sizes: SizeTable | None = None) -> None:
        super().__init__()
        self.sizes = sizes
        self.writes = 0  # operators so far that change an argument
        self.draws = 0  # that draw random numbers; operators of users may
        self.effects = 0  # that must run though nobody reads their results: they draw, check values or write on the side
        # what answers inside of a call on tensors with a `__torch_dispatch__`
        self.wrappers: Callable[..., Any] | None = None
        # gives sizes to results of ops whose sizes depend on data
        self.unbacked: Make | None = None
        self.called: list[Any] | None = None  # if wanted: the operators that ran

    @classmethod
    @override
    def _should_skip_dynamo(cls) -> bool:
        return False  # True would import torch._dynamo at the first call (design D2)

    @override
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.wrappers is not None:
            return self.wrappers(func, types, args, kwargs or _NO_KWARGS)
        self.writes += func._schema.is_mutable
        if self.called is not None:
            self.called.append(func)
        rule = RULES.get(str(func)) if self.unbacked is not None else None
        if rule is not None and (func._opname != "index" or any(map(_is_mask, args[1]))):
            result = rule(self.unbacked, *args, **(kwargs or _NO_KWARGS))
        else:
            result = _handler(func)(self, args, kwargs or _NO_KWARGS)
            if unreadable.is_wanted() and _makes_memory(func):
                result = _moved(result)
        if self.sizes is not None:
            explain_sizes(self.sizes, func, args, kwargs or _NO_KWARGS)
            for value in result if isinstance(result, tuple | list) else (result,):
                if isinstance(value, torch.Tensor):
                    self.sizes.learn_strides(value.shape)
        return result


def _is_mask(index: Any) -> bool:
    return index is not None and index.dtype in (torch.bool, torch.uint8)


@cache
def _makes_memory(func: Any) -> bool:
    """Whether the results of an op are fresh memory, and no data that is known now."""
    return not func.is_view and not func._schema.is_mutable and func._opname != "lift_fresh"


@cache
def _functional(func: Any) -> FakeRule:
    """The type rule of an op, with torch itself behind it for what the rule cannot answer."""
    rule, kind = row_of(func).infer, row_of(func).kind
    takes_zeros = row_of(func).raises is Raises.NEVER
    if rule is None:
        return _rowless(func)

    def answer(mode: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            result = rule(*args, **kwargs)
        except DataDependent:
            raise
        except Exception:
            # Whatever a rule trips over is either an error in the program, whose message eager
            # knows best, or a case the rule does not know, and then eager's answer is right.
            return eager_error(func, args, kwargs)
        # Called by hand, in a graph that was captured before, the question has been asked.
        taken = mode is None or eager_takes(func, kind, args, kwargs)
        if taken is None and takes_zeros and is_small((args, kwargs)):
            return infer_by_eager(func, args, kwargs)
        return eager_error(func, args, kwargs) if taken is False else result

    return answer


def _rowless(func: Any) -> FakeRule:
    """An op we have no rule for; one from ``torch.library`` may bring its own fake kernel."""
    registry = torch._library.simple_registry.singleton

    def answer(_mode: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # Asked at each call: a kernel may be registered late. Through the dispatcher's meta key
        # the same kernel would cost an import of sympy.
        kernel = registry.find(func.name()).fake_impl.kernel
        if kernel is None:
            return infer_by_torch(func, args, kwargs)
        # Not the caller's mode: what a fake kernel calls is no part of the program.
        with FakeMode(), fake_context(func.name()):
            return kernel.func(*args, **kwargs)

    if func.namespace == "aten":
        return lambda _mode, args, kwargs: infer_by_torch(func, args, kwargs)
    return answer


@cache
def _handler(func: Any) -> FakeRule:
    """How FakeMode answers this op, decided once from its row and schema."""
    answer, row = _answer(func), row_of(func)
    of_user = func.namespace not in OF_TORCH
    if (
        row.draws is Draws.NEVER
        and row.raises is Raises.NEVER
        and not row.hidden_writes
        and not of_user
    ):
        return answer

    def counted(mode: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = answer(mode, args, kwargs)
        drawn = draws(func, args, kwargs)
        mode.draws += drawn or of_user
        mode.effects += drawn or row.hidden_writes or may_raise(func, result)
        return result

    return counted


def _answer(func: Any) -> FakeRule:
    schema, row = func._schema, row_of(func)
    aten = func.namespace == "aten"
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(
        func.name(), "CompositeImplicitAutograd"
    )
    if torch.Tag.inplace_view in func.tags or row.changes_storage:
        return _real(func)
    if func.is_view and aten and row.infer is None:
        # contiguous, to, reshape may copy: their parts know, not the schema.
        return _composite(func) if composite else _real(func)
    if row.kind is Kind.FACTORY:
        return _factory(func)
    if row.infer is not None and not schema.is_mutable:
        return _functional(func)
    if row.data_dependent:
        return _data_dependent(func)
    if not schema.returns and not schema.is_mutable:
        return lambda _mode, args, kwargs: None  # assertions on data: they hold at run time or not
    if schema.returns and not any("Tensor" in str(result.type) for result in schema.returns):
        return _real(func)  # aten.size, prim.device: questions about metadata
    if composite:
        return _composite(func)
    if schema.is_mutable:
        return _mutating(func)
    return _functional(func)


def _data_dependent(func: Any) -> FakeRule:
    def answer(_mode: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise DataDependent(str(func))

    return answer


def _real(func: Any) -> FakeRule:
    return lambda _mode, args, kwargs: func(*args, **kwargs)


def _factory(func: Any) -> FakeRule:
    """Like any functional op, but tensors asked for on the meta device are made there."""
    made_here = _functional(func)

    def answer(mode: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        device = kwargs.get("device")
        if device is not None and device.type != "cpu":
            return func(*args, **kwargs)
        return made_here(mode, args, kwargs)

    return answer


def _composite(func: Any) -> FakeRule:
    """Composite ops reach a mode only where autograd is out of the way (inference mode)."""

    def answer(mode: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with mode:
            # Not func.decompose: for some ops that is torch's Python decomposition (sympy).
            return func._op_dk(DispatchKey.CompositeImplicitAutograd, *args, **kwargs)

    return answer


def functional_twins(func: Any) -> Iterator[Any]:
    """Ops that compute the same without writing: ``add.Tensor`` of ``add_.Tensor``, ``add.out``."""
    name = func._opname.removesuffix("_")
    wanted = [(a.name, str(a.type)) for a in func._schema.arguments if not a.is_out]
    for packet in (
        getattr(getattr(torch.ops, func.namespace), n, None) for n in (name, f"{name}_functional")
    ):
        for overload in packet.overloads() if packet is not None else ():
            twin = getattr(packet, overload)
            arguments = [(a.name, str(a.type)) for a in twin._schema.arguments]
            if arguments == wanted and not twin._schema.is_mutable:
                yield twin


def _mutating(func: Any) -> FakeRule:
    """Ops that write give back what they write; nothing is written."""
    schema = func._schema
    written = written_arguments(schema)
    if schema.returns and all(result.alias_info is None for result in schema.returns):
        return _functional(func)  # it writes on the side: batch norm and its running statistics
    is_out = any(argument.is_out for argument in schema.arguments)
    pair = next(functional_twins(func), None)
    check: FakeRule | None = None
    if pair is not None and (is_out or row_of(pair).kind in _CHECKED):
        check = _functional(pair)
    names = frozenset(name for _, name in written) if is_out else frozenset()
    results = len(schema.returns)
    elementwise = func._opname == "copy_" or (
        pair is not None and row_of(pair).kind is Kind.POINTWISE
    )

    def answer(mode: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        targets = [args[place] if place < len(args) else kwargs[name] for place, name in written]
        if any(map(_overlaps, targets)):
            eager_error(func, args, kwargs)
        elif check is not None:
            inputs = {key: value for key, value in kwargs.items() if key not in names}
            if not _checked_fits(targets, lambda: check(mode, args, inputs), is_out):
                eager_error(func, args, kwargs)
            if not is_out and any(
                _half_covers(target, value) for target in _written(targets[0]) for value in args[1:]
            ):
                raise RuntimeError(_HALF_COVERED)
        _leave_overlaps(func, targets, (*args, *kwargs.values()), elementwise)
        for target in targets:
            if isinstance(target, list | tuple):  # torch counts writes to lists in its kernels
                increment_version([item for item in target if not item.is_inference()])
        if results == 0:
            return None
        return targets[0] if results == 1 else tuple(targets[:results])

    return answer


def _leave_overlaps(
    func: Any, targets: Iterable[Any], operands: Sequence[Any], elementwise: bool
) -> None:
    """Leave to Python what depends on the order in which eager's kernel goes over the elements."""
    for target in (target for target in targets if isinstance(target, torch.Tensor)):
        over = any(reads_what_it_writes(target, value) for value in operands)
        # `masked_scatter_` of a tensor into itself reads what it has written
        if not over and not elementwise:
            over = sum(lies_on(target, value) for value in operands) > 1
        if over or may_overlap(target):
            raise DataDependent(f"{func} on overlapping memory")


def _written(target: Any) -> Sequence[torch.Tensor]:
    """What is written: a tensor, or a list of them."""
    return (target,) if isinstance(target, torch.Tensor) else target


def _checked_fits(targets: Sequence[Any], check: Callable[[], Any], is_out: bool) -> bool:
    try:
        return _fits(targets, check(), is_out)
    except DataDependent:
        raise
    except Exception:
        return False


def _fits(targets: Sequence[Any], results: Any, is_out: bool) -> bool:
    """Whether results can be written into targets; empty ``out=`` targets are resized, eager warns about others."""
    fits = True
    for target, result in zip(
        targets, results if isinstance(results, tuple | list) else (results,), strict=False
    ):
        if not isinstance(target, torch.Tensor):
            continue
        # some ops convert into ``out``, others refuse: eager knows
        fits &= result.dtype is target.dtype or (
            not is_out and torch.can_cast(result.dtype, target.dtype)
        )
        if target.shape != result.shape:
            if not is_out:
                return False
            if target.numel():
                raise DataDependent("an out= tensor of another shape")
            target.resize_(result.shape)
            if not result.is_contiguous():
                target.as_strided_(result.shape, result.stride())
    return fits


def _half_covers(target: Any, value: Any) -> bool:
    """Whether an operand lies in part over the tensor to be written, as eager's iterator sees it."""
    if not isinstance(value, torch.Tensor) or value is target or not _is_dense(value):
        return False
    begin, other = target.data_ptr(), value.data_ptr()
    end, other_end = begin + target.nbytes, other + value.nbytes
    if (begin, end) == (other, other_end):
        return begin != end and target.stride() != value.stride() and _is_dense(target)
    return begin < other_end and other < end and _is_dense(target)


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether the elements of a tensor fill one block of memory."""
    return is_dense(tensor.shape, tensor.stride())


def _overlaps(target: Any) -> bool:
    """Whether several elements of a tensor to be written share one place in memory."""
    return (
        isinstance(target, torch.Tensor)
        and 0 in target.stride()
        and any(
            step == 0 and size > 1 for size, step in zip(target.shape, target.stride(), strict=True)
        )
    )
