"""capture.sizes.values: sizes as values of the traced program.

`Size` computes like an int, decides comparisons by the real size with a fact that becomes a guard, and
fixes its size when its number itself is needed. It is no subclass of int: no C code can read it past
its methods. `Shape` is a `torch.Size` of them, `Claim` a comparison that only the graph can decide.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final, Protocol, final

import torch
from typing_extensions import override

from argand.capture.markers import OfTrace
from argand.sizes.expressions import Expr
from argand.sizes.facts import Fact
from argand.sizes.refusals import fixing

_COMPARED: Final = {"lt": "<", "le": "<=", "eq": "==", "ne": "!=", "gt": ">", "ge": ">="}
_COMPUTED: Final = ("add", "sub", "mul", "floordiv", "mod")
_DIVIDING: Final = ("floordiv", "mod")
_SAME: Final = ("pos", "floor", "ceil", "trunc")
_NUMBER: Final = """
    index int float hash str repr format round truediv rtruediv and rand or ror xor rxor
    invert rpow rlshift rrshift
"""


class Owner(Protocol):
    """The sizes of one attempt, as far as a value needs them."""

    def value(self, expr: Expr) -> Any:
        """What the program sees of an expression."""

    def decide(self, symbol: str, left: Any, right: Any) -> bool:
        """A comparison by the real sizes, which becomes a guard."""

    def fix(self, expr: Expr, what: str) -> int:
        """The number itself."""


def seen_as(kind: type) -> Any:
    """The `__class__` of values that `isinstance` shall take for those of another type."""

    def answer(self: Any) -> type:
        return kind

    return property(answer)


@final
class OpenSize(OfTrace):
    """An integer of the program that is known at run time only."""

    __slots__ = ("expr", "owner")

    def __init__(self, expr: Expr, owner: Owner) -> None:
        self.expr, self.owner = expr, owner

    __class__ = seen_as(int)

    def __getattr__(self, name: str) -> Any:
        """Methods of int that need the number."""
        return getattr(self.owner.fix(self.expr, f".{name}"), name)

    def __bool__(self) -> bool:
        return self.owner.decide("!=", self, 0)

    def __neg__(self) -> Any:
        return self.owner.value(self.expr * -1)

    def __abs__(self) -> Any:
        return self if self.owner.decide(">=", self, 0) else -self

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __pow__(self, power: Any) -> Any:
        if type(power) is not int or not 0 <= power < 9:
            return self.owner.fix(self.expr, "**") ** power
        result: Any = 1
        for _ in range(power):
            result = self * result
        return result

    def __lshift__(self, other: Any) -> Any:
        return self * 2**other if type(other) is int else self.owner.fix(self.expr, "<<") << other

    def __rshift__(self, other: Any) -> Any:
        return self // 2**other if type(other) is int else self.owner.fix(self.expr, ">>") >> other


def expression(value: Any) -> Expr:
    """What an integer of the program stands for."""
    return value.expr if type(value) is OpenSize else Expr.of(int(value))


def _computed(name: str, reflected: bool) -> Callable[..., Any]:
    function = getattr(operator, name)

    def method(self: OpenSize, other: Any) -> Any:
        if isinstance(other, float):
            number = self.owner.fix(self.expr, f"a float ({name})")
            return function(other, number) if reflected else function(number, other)
        if not isinstance(other, int):
            return NotImplemented
        right = expression(other)
        pair = (right, self.expr) if reflected else (self.expr, right)
        if name in _DIVIDING and not self.owner.decide("!=", self if reflected else other, 0):
            function(1, 0)  # raises, also where nobody reads the result
        return self.owner.value(function(*pair))

    return method


def _compared(name: str, symbol: str) -> Callable[..., Any]:
    def method(self: OpenSize, other: Any) -> Any:
        if isinstance(other, float):
            number = self.owner.fix(self.expr, "a comparison with a float")
            return getattr(float(number), name)(other)
        if not isinstance(other, int):
            return NotImplemented
        return self.owner.decide(symbol, self, other)

    return method


def _needs_number(name: str) -> Callable[..., Any]:
    def method(self: OpenSize, *args: Any) -> Any:
        return getattr(self.owner.fix(self.expr, name), f"__{name}__")(*args)

    return method


def _same(self: OpenSize) -> OpenSize:
    return self


for _name in _COMPUTED:
    setattr(OpenSize, f"__{_name}__", _computed(_name, False))
    setattr(OpenSize, f"__r{_name}__", _computed(_name, True))
for _name, _symbol in _COMPARED.items():
    setattr(OpenSize, f"__{_name}__", _compared(f"__{_name}__", _symbol))
for _name in _SAME:
    setattr(OpenSize, f"__{_name}__", _same)
for _name in _NUMBER.split():
    setattr(OpenSize, f"__{_name}__", _needs_number(_name))


@final
class Claim(OfTrace):
    """A comparison of sizes that depend on data: true or false when the graph runs."""

    def __init__(self, fact: Fact, node: Any) -> None:
        self.fact, self.node = fact, node

    __class__ = seen_as(bool)

    def __bool__(self) -> bool:
        raise fixing(self.fact.symbols, f"whether {self.fact}", self.fact.where)


@final
class OpenShape(OfTrace, tuple[Any, ...]):
    """A `torch.Size` that holds sizes."""

    __class__ = seen_as(torch.Size)

    def numel(self) -> Any:
        """The product."""
        total: Any = 1
        for size in self:
            total = size * total
        return total

    @override
    def __getitem__(self, index: Any) -> Any:
        found = tuple.__getitem__(self, index)
        return OpenShape(found) if isinstance(index, slice) else found

    @override
    def __add__(self, other: Any) -> Any:
        return OpenShape(tuple.__add__(self, other)) if isinstance(other, tuple) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        return OpenShape((*other, *self)) if isinstance(other, tuple) else NotImplemented

    @override
    def __mul__(self, times: Any) -> Any:
        return OpenShape(tuple.__mul__(self, times))

    __rmul__ = __mul__


def is_open_shape(value: Any) -> bool:
    """Whether a tuple holds sizes that are open: a shape, or what a program has made of one."""
    kind = type(value)
    return kind is OpenShape or (kind is tuple and any(type(part) is OpenSize for part in value))
