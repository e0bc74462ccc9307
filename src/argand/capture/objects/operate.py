"""capture.objects.operate: operators, truth, subscripts and iteration on values of a trace.

In: operands as the interpreter holds them. Out: the result. A tensor operand records a node; a class with a
Python method for the operator has it interpreted; everything else is Python's own work.
"""

from __future__ import annotations

import collections
import enum
import functools
import operator
import types
from collections.abc import Callable
from typing import Any, Final

import torch

from argand.capture.markers import END, MISSING, OfTrace
from argand.capture.objects import callbacks, loaded, polyfills
from argand.capture.objects.methods import PLAIN, check_native, lookup, python_method
from argand.capture.objects.parts import Caller, GraphState
from argand.capture.objects.tracer import Tracer
from argand.capture.outside import pure, real
from argand.capture.outside.arrays import KINDS
from argand.capture.outside.kinds import is_trusted_module
from argand.capture.outside.known import LoadedModules
from argand.capture.outside.state import Outside
from argand.capture.outside.world import World
from argand.capture.record import items
from argand.capture.record.pending import Pending, looked_at
from argand.capture.record.recorder import Recorder
from argand.capture.sizes.floats import Float
from argand.capture.sizes.values import OpenShape, OpenSize, is_open_shape
from argand.ops.fakes import DataDependent
from argand.runtime.guards import GuardKind
from argand.runtime.levels import depth, dual_level
from argand.support.errors import Break, CaptureBreak

_SYMBOLS: Final = {
    "+": "add", "-": "sub", "*": "mul", "@": "matmul", "/": "truediv", "//": "floordiv", "%": "mod",
    "**": "pow", "<<": "lshift", ">>": "rshift", "&": "and", "|": "or", "^": "xor",
}  # fmt: skip
_COMPARE: Final = {
    "<": ("lt", "gt"), "<=": ("le", "ge"), "==": ("eq", "eq"),
    "!=": ("ne", "ne"), ">": ("gt", "lt"), ">=": ("ge", "le"),
}  # fmt: skip


def _function(name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(operator, f"{name}_" if name in {"and", "or"} else name)
    return found


# function, method, reflected method, in-place method
OperatorRow = tuple[Callable[..., Any], str, str, str]
BINARY: Final[dict[str, OperatorRow]] = {
    **{s: (_function(n), f"__{n}__", f"__r{n}__", "") for s, n in _SYMBOLS.items()},
    **{
        f"{s}=": (getattr(operator, f"i{n}"), f"__{n}__", f"__r{n}__", f"__i{n}__")
        for s, n in _SYMBOLS.items()
    },
}
PLAIN_FORM: Final = {BINARY[f"{s}="][0]: BINARY[s][0] for s in _SYMBOLS}  # `a += b` to `a + b`
COMPARE: Final[dict[str, OperatorRow]] = {
    s: (getattr(operator, n), f"__{n}__", f"__{r}__", "") for s, (n, r) in _COMPARE.items()
}


_NESTED: Final = frozenset({list, tuple, dict})
_INDICES: Final = frozenset({int, str, bool, type(None), float})  # that call nothing
_UNLIKE_TENSORS: Final = frozenset({type(None), str, bytes, type, torch.dtype, torch.device})
_ADDITIONS: Final = (operator.add, operator.iadd)
_PRODUCTS: Final = (operator.matmul, operator.imatmul)
_JOINING: Final = frozenset({"__add__", "__mul__"})
_JOINED: Final = (list, tuple, str, bytes, bytearray, collections.deque)
_CLAIMED: Final = {name: symbol for symbol, (name, _) in _COMPARE.items()}


def check_readable(world: World, value: Any) -> None:
    """Break on an object whose state lives in C code: reading or changing it would go unnoticed."""
    if id(value) in world.opaque or not pure.is_own(type(value)):
        raise CaptureBreak(Break.B011, None, type=type(value).__name__)
    world.pin(value)


def binary(tracer: Tracer, row: OperatorRow, a: Any, b: Any) -> Any:
    """`a op b`, by a row of BINARY or COMPARE."""
    function, method, reflected, inplace = row
    if type(a) is torch.Size and function in _ADDITIONS and is_open_shape(b):
        return OpenShape((*a, *b))  # torch's own method takes numbers only
    if type(a) in PLAIN and type(b) in PLAIN:
        return _nested(tracer, function, a, b) if type(b) in _NESTED else real.apply(function, a, b)
    if type(a) in KINDS or type(b) in KINDS:
        return tracer.arrays.binary(tracer, function, a, b, bool(inplace))
    if type(a) is Pending or type(b) is Pending:
        numbers = tracer.recorder.number((a, b))
        changed = numbers[0] is not a or numbers[1] is not b
        return binary(tracer, row, *numbers) if changed else _pending(tracer, row, a, b)
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        return _beside_tensor(tracer, row, a, b)
    if type(a) in (OpenSize, Float) or type(b) in (OpenSize, Float):
        return _sizes(tracer.recorder, function, a, b)
    tries = [(a, b, inplace), (a, b, method), (b, a, reflected)]
    if _goes_first(tracer, function, a, b, reflected):
        tries = [(a, b, inplace), (b, a, reflected), (a, b, method)]
    elif _is_of_sequence(lookup(tracer, type(a), method), method):
        tries = [(b, a, reflected), (a, b, inplace), (a, b, method)]
    if not any(name and python_method(tracer, x, name) for x, _, name in tries):
        check_readable(tracer.world, a)
        check_readable(tracer.world, b)
        return real.apply(function, *_settled(tracer, function, a, b))
    return _try_methods(tracer, function, tries)


def _pending(state: GraphState, row: OperatorRow, a: Any, b: Any) -> Any:
    """An operator on a number that the graph computes."""
    function, recorder = row[0], state.recorder
    if not isinstance(a, torch.Tensor) and not isinstance(b, torch.Tensor):
        made = items.arithmetic(recorder, function, a, b)
        return items.compare(recorder, function, a, b) if made is None else made
    is_left = type(a) is Pending
    tensor, number = (b, a) if is_left else (a, b)
    if _is_plain(state, tensor, row):
        operand = items.as_operand(recorder, function, tensor, number, is_left)
        if operand is not None:
            plain = PLAIN_FORM.get(function, function)
            return (
                tensor_binary(state, plain, operand, b)
                if is_left
                else tensor_binary(state, function, a, operand)
            )
    raise looked_at(number, CaptureBreak(Break.B004, None, method="item"))


def _is_plain(state: GraphState, tensor: torch.Tensor, row: OperatorRow) -> bool:
    """Whether nobody sees what a tensor's operator is called with: no override, no transform, no method of the user's."""
    replaced = any(name and _replaced(state, tensor, name) for name in row[1:])
    return (
        not replaced
        and not state.overrides.apply((tensor,), {})
        and depth() == 0
        and dual_level() == -1
    )


def _beside_tensor(tracer: Tracer, row: OperatorRow, a: Any, b: Any) -> Any:
    """An operator with a tensor: torch's, unless a user replaced its method or a number has its own."""
    function, method, reflected, inplace = row
    tries = [(a, b, inplace), (a, b, method), (b, a, reflected)]
    replaced = any(name and _replaced(tracer, x, name) for x, _, name in tries)
    own = any(name and _of_scalar(tracer, a, name) for name in (inplace, method))
    refused = function in _PRODUCTS or not isinstance(b, int | float | complex)
    if (refused and _of_scalar(tracer, b, reflected)) or (own and isinstance(a, str | bytes)):
        # torch says no to it in C code, which then asks it
        what = f"an operator of a tensor and a {type(a if own else b).__name__}"
        raise CaptureBreak(Break.B013, None, what=what)
    if replaced or own:
        return _try_methods(tracer, function, tries)
    if inplace and not isinstance(a, torch.Tensor):
        if isinstance(a, list) and function is operator.iadd:
            a.extend(get_iter(tracer, b))
            return a
        function = PLAIN_FORM[function]
    return tensor_binary(tracer, function, a, b)


def _of_scalar(outside: Outside, value: Any, name: str) -> bool:
    """Whether a number or text is of a user's class with this method: a graph would hold its value alone."""
    kept = isinstance(value, int | float | complex | str | bytes)
    return kept and callbacks.is_object_with(outside, value, name)


def _is_of_sequence(found: Any, name: str) -> bool:
    """Whether `+` or `*` is that of a sequence of C: Python asks numbers on the other side before it."""
    native = name in _JOINING and type(found) is types.WrapperDescriptorType
    return native and found.__objclass__ in _JOINED


def _settled(caller: Caller, function: Callable[..., Any], a: Any, b: Any) -> tuple[Any, Any]:
    """Operands of C code, which asks how often to repeat, and texts for what stands in them."""
    if function in (operator.mul, operator.imul):
        if isinstance(a, _JOINED):
            return a, callbacks.index(caller, b)
        if isinstance(b, _JOINED):
            return callbacks.index(caller, a), b
    if function in (operator.mod, operator.imod) and isinstance(a, str | bytes):
        callbacks.refuse(caller, b, callbacks.TEXT + callbacks.NUMBER, "a text of objects")
    return a, b


def _goes_first(
    outside: Outside, function: Callable[..., Any], a: Any, b: Any, reflected: str
) -> bool:
    """Whether the right operand is asked first: its class is a true subclass, for arithmetic with a method of its own."""
    if type(b) is type(a) or type(a) not in type(b).__mro__:
        return False
    own = lookup(outside, type(b), reflected) is not lookup(outside, type(a), reflected)
    return own or function.__name__ in _CLAIMED


def _try_methods(caller: Caller, function: Callable[..., Any], tries: Any) -> Any:
    for left, right, name in tries:
        found = lookup(caller, type(left), name) if name else MISSING
        if found is not MISSING:
            result = caller.sealed(found, (left, right), {})
            if result is not NotImplemented:
                return result
    a, b, _ = tries[0]
    if function in (operator.eq, operator.ne):
        return identical(caller.world, a, b) is (function is operator.eq)
    # Python's words for it, said of objects without the methods that were just asked.
    return real.apply(function, *(type(type(x).__name__, (), {})() for x in (a, b)))


def _replaced(outside: Outside, value: Any, name: str) -> types.FunctionType | None:
    """The method that a user has put into the class of tensors in place of torch's."""
    if not isinstance(value, torch.Tensor):
        return None
    found = lookup(outside, type(value), name)
    return (
        found
        if type(found) is types.FunctionType and not is_trusted_module(found.__module__)
        else None
    )


def _nested(caller: Caller, function: Callable[..., Any], a: Any, b: Any) -> Any:
    """An operator on plain containers: comparisons, and texts made of them, call methods of what is in them."""
    if function in (operator.mod, operator.imod):
        callbacks.refuse(caller, b, callbacks.TEXT + callbacks.NUMBER, "a text of objects")
    elif function.__name__ in _CLAIMED and type(a) is type(b):
        names = callbacks.EQUALITY if function in (operator.eq, operator.ne) else callbacks.ORDER
        if callbacks.runs_python(caller, (a, b), names):
            if names is callbacks.ORDER:
                raise CaptureBreak(
                    Break.B002, None, function="a comparison of containers of objects"
                )
            same = caller.sealed(
                polyfills.same_dict if type(a) is dict else polyfills.same_items, (a, b), {}
            )
            return same if function is operator.eq else not same
    return real.apply(function, a, b)


def _sizes(recorder: Recorder, function: Callable[..., Any], a: Any, b: Any) -> Any:
    if function.__name__ in _CLAIMED and isinstance(a, int) and isinstance(b, int):
        return recorder.claim(function, _CLAIMED[function.__name__], a, b)
    return real.apply(function, a, b)


def tensor_binary(state: GraphState, function: Callable[..., Any], a: Any, b: Any) -> Any:
    """An operator with a tensor operand becomes a node, unless the other operand knows better."""
    other = b if isinstance(a, torch.Tensor) else a
    if not isinstance(other, torch.Tensor | int | float | bool | complex):
        if function in (operator.eq, operator.ne) and not isinstance(other, list | tuple):
            if other is None or isinstance(other, str):
                return real.apply(function, a, b)
        else:
            check_readable(state.world, other)
    return state.recorder.call_function(function, (a, b), {})


def unary(tracer: Tracer, function: Callable[[Any], Any], method: str, value: Any) -> Any:
    """`-a`, `+a`, `~a`."""
    if isinstance(value, torch.Tensor) and _replaced(tracer, value, method) is None:
        return tracer.recorder.call_function(function, (value,), {})
    if type(value) in KINDS:
        return tracer.arrays.unary(tracer, function, value)
    found = python_method(tracer, value, method)
    if found is not None:
        return tracer.call(found, (value,), {})
    return real.apply(function, value)


def truth(tracer: Tracer, value: Any) -> bool:
    """`bool(value)`."""
    if type(value) in PLAIN:
        return bool(value)
    if isinstance(value, torch.Tensor) and tracer.recorder.is_false(value):
        return False
    if isinstance(value, torch.Tensor) or type(value) is Pending or type(value) in KINDS:
        raise looked_at(value, CaptureBreak(Break.B003))
    if value is NotImplemented:
        raise CaptureBreak(Break.B013, None, what="the truth of NotImplemented, which warns")
    for name in ("__bool__", "__len__"):
        found = lookup(tracer, type(value), name)
        if type(found) is types.FunctionType:
            answer = tracer.sealed(found, (value,), {})
            return (
                bool(answer) if type(answer) in (bool, OpenSize) else _as_answer(bool, name, answer)
            )
        if found is not MISSING:
            check_native(tracer, type(value), name, found)
            break
    check_readable(tracer.world, value)
    return bool(real.apply(bool, value))


def _as_answer(function: Callable[[Any], Any], name: str, answer: Any) -> Any:
    """What Python makes of an answer of `__bool__` or `__len__`, with its words for what is none."""
    return real.apply(function, type("Answer", (), {name: lambda _: answer})())


def subscript(tracer: Tracer, container: Any, key: Any) -> Any:
    """`container[key]`."""
    if isinstance(container, torch.Tensor) and _replaced(tracer, container, "__getitem__") is None:
        return tracer.recorder.call_function(operator.getitem, (container, key), {})
    kind = type(container)
    if kind in KINDS:
        return tracer.arrays.subscript(tracer, container, key)
    if kind in PLAIN:
        if type(key) not in _INDICES:
            key = callbacks.settle_key(tracer, container, key)
        return real.apply(operator.getitem, container, key)
    found = python_method(tracer, container, "__getitem__")
    if found is not None:
        return tracer.call(found, (container, key), {})
    key = callbacks.settle_key(tracer, container, key)
    if kind is LoadedModules and type(key) is str:
        return loaded.found(tracer.world, container, key)
    if isinstance(container, dict) and not dict.__contains__(container, key):
        missing = python_method(tracer, container, "__missing__")
        if missing is not None:
            return tracer.call(missing, (container, key), {})
        factory = getattr(container, "default_factory", None)
        if type(factory) is types.FunctionType:
            value = tracer.sealed(factory, (), {})
            dict.__setitem__(container, key, value)
            return value
    check_readable(tracer.world, container)
    return real.apply(operator.getitem, container, key)


def store_subscript(tracer: Tracer, container: Any, key: Any, value: Any) -> None:
    """`container[key] = value`."""
    if isinstance(container, torch.Tensor) and _replaced(tracer, container, "__setitem__") is None:
        tracer.recorder.call_function(operator.setitem, (container, key, value), {})
        return
    if type(container) in KINDS:
        tracer.arrays.store(tracer, container, key, value)
        return
    found = python_method(tracer, container, "__setitem__")
    if found is not None:
        tracer.call(found, (container, key, value), {})
        return
    check_readable(tracer.world, container)
    key = callbacks.settle_key(tracer, container, key)
    if type(key) is slice and type(value) not in PLAIN:
        value = list(iterate(tracer, value))
    real.apply(operator.setitem, container, key, value)


def delete_subscript(caller: Caller, container: Any, key: Any) -> None:
    """`del container[key]`."""
    found = python_method(caller, container, "__delitem__")
    if found is not None:
        caller.call(found, (container, key), {})
        return
    check_readable(caller.world, container)
    key = callbacks.settle_key(caller, container, key)
    real.apply(operator.delitem, container, key)


def identical(world: World, a: Any, b: Any) -> bool:
    """`a is b`; that two objects from outside are different ones must hold the next time too."""
    if a is not b and type(a) is type(b):
        first, second = world.known.get(id(a)), world.known.get(id(b))
        if first is not None and second is not None:
            world.guard(GuardKind.NOT_ALIASED, first.source, (second.source,))
    return a is b


def contains(tracer: Tracer, key: Any, container: Any) -> bool:
    """`key in container`."""
    if isinstance(container, torch.Tensor):
        raise CaptureBreak(Break.B004, None, method="in")
    found = python_method(tracer, container, "__contains__")
    if found is not None:
        return truth(tracer, tracer.sealed(found, (container, key), {}))
    if lookup(tracer, type(container), "__contains__") is MISSING:
        method = python_method(tracer, container, "__iter__") or python_method(
            tracer, container, "__getitem__"
        )
        if method is not None:
            return any(item is key or item == key for item in iterate(tracer, container))
    if type(container) is LoadedModules and type(key) is str:
        return loaded.holds(tracer.world, container, key)
    check_readable(tracer.world, container)
    if isinstance(key, torch.Tensor) and isinstance(container, list | tuple):
        return _contains_tensor(key, container)
    if isinstance(container, dict | set | frozenset):
        key = callbacks.settle_key(tracer, container, key)
    elif callbacks.runs_python(tracer, (key, container), callbacks.EQUALITY):
        return bool(tracer.sealed(polyfills.holds_item, (container, key), {}))
    return bool(real.apply(operator.contains, container, key))


def _contains_tensor(key: torch.Tensor, container: Any) -> bool:
    for item in container:
        if item is key:
            return True
        if (
            type(item) not in _UNLIKE_TENSORS
        ):  # a number, a tensor, or what may say that it is equal
            raise DataDependent("in")
    return False


def get_iter(tracer: Tracer, value: Any) -> Any:
    """`iter(value)`."""
    if type(value) in PLAIN:
        return real.apply(iter, value)
    if isinstance(value, torch.Tensor):
        if tracer.world.sizes.active and type(size := length(tracer, value)) is OpenSize:
            size.owner.fix(size.expr, "iteration")
        return real.apply(iter, tracer.recorder.call_method("unbind", (value, 0), {}))
    if type(value) in KINDS:
        return tracer.arrays.iterate(tracer, value)
    found = lookup(tracer, type(value), "__iter__")
    if found is enum.EnumMeta.__iter__ and isinstance(value, enum.EnumMeta):
        return real.apply(iter, list(value))  # its members are those it was made with
    if type(found) is types.FunctionType:
        return tracer.call(found, (value,), {})
    if found is MISSING:
        method = python_method(tracer, value, "__getitem__")
        if method is not None:
            return tracer.call(polyfills.iterate_by_index, (value,), {})
    check_readable(tracer.world, value)
    return real.apply(iter, value)


def advance(caller: Caller, iterator: Any) -> Any:
    """`next(iterator)`, or END."""
    found = python_method(caller, iterator, "__next__")
    if found is not None and not issubclass(type(iterator), OfTrace):
        try:
            return caller.sealed(found, (iterator,), {})
        except StopIteration:
            return END
    check_readable(caller.world, iterator)
    return real.apply(next, iterator, END)


def advance_or_stop(caller: Caller, iterator: Any) -> Any:
    """`next(iterator)`; StopIteration comes out, with the value a generator returned."""
    found = python_method(caller, iterator, "__next__")
    if found is not None and not issubclass(type(iterator), OfTrace):
        return caller.call(found, (iterator,), {})
    check_readable(caller.world, iterator)
    return real.apply(next, iterator)


def iterate(tracer: Tracer, value: Any) -> Any:
    """Items of an iterable, one by one, for rules written in Python."""
    with tracer.seal():
        iterator = get_iter(tracer, value)
    while (item := advance(tracer, iterator)) is not END:
        if iterator is value:
            tracer.took_at = tracer.count
        yield item


def length(tracer: Tracer, value: Any) -> Any:
    """`len(value)`."""
    if isinstance(value, torch.Tensor) and tracer.overrides.apply((value,), {}):
        return tracer.recorder.dispatch(len, (value,), {}, functools.partial(length, tracer, value))
    if id(value) in tracer.world.opaque and isinstance(value, torch.Tensor):
        raise CaptureBreak(Break.B010, None, type=type(value).__name__)
    if isinstance(value, torch.Tensor) and _replaced(tracer, value, "__len__") is None:
        return tracer.world.sizes.wrap(real.apply(len, value))
    if type(value) in KINDS:
        return tracer.arrays.length(tracer, value)
    found = python_method(tracer, value, "__len__")
    if found is not None:
        answer = tracer.sealed(found, (value,), {})
        return answer if type(answer) is int and answer >= 0 else _as_answer(len, "__len__", answer)
    check_readable(tracer.world, value)
    return int(real.apply(len, value))
