"""capture.sizes.floats: floats of the program that are known at run time only.

In: floats of the outside that a `SizePlan` leaves open. Out: `Float`, which adds, subtracts, multiplies
and divides like a float and is an input of the graph where it meets a tensor. A comparison with a
number is decided by its value now, and becomes a guard; whatever else needs the number itself fixes
it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final, NamedTuple, NoReturn, final

from typing_extensions import override

from argand.capture.markers import OfTrace
from argand.capture.sizes.values import seen_as
from argand.runtime.guards import COMPARISONS, Guard, GuardKind, ValueComparison
from argand.runtime.sources import Source
from argand.sizes.expressions import Symbol
from argand.sizes.floats import LARGEST
from argand.sizes.refusals import fixing
from argand.support.errors import Location

_COMPUTED: Final = {"add": "+", "sub": "-", "mul": "*", "truediv": "/"}
_EXACT: Final = 1 << 53  # integers below it are floats
_NUMBER: Final = """
    int float hash str repr format round abs trunc floor ceil
    floordiv rfloordiv mod rmod divmod rdivmod pow rpow
"""


@final
class Computed(NamedTuple):
    """A float made of others: an operator between sources and numbers."""

    operator: str
    left: Any
    right: Any

    @override
    def __str__(self) -> str:
        return f"({self.left} {self.operator} {self.right})"


@final
class Float(OfTrace):
    """A float of the program that is known at run time only."""

    __slots__ = ("guards", "place", "real", "source", "symbols")

    def __init__(
        self,
        source: Source | Computed,
        real: float,
        symbols: frozenset[Symbol],
        guards: list[Guard],
        place: Callable[[], Location | None],
    ) -> None:
        self.source, self.real, self.symbols = source, real, symbols
        self.guards, self.place = guards, place

    __class__ = seen_as(float)

    def __getattr__(self, name: str) -> Any:
        """Methods of float need the number; what is none of them raises as it does for a float."""
        getattr(self.real, name)
        self.fix(f".{name}")

    def __bool__(self) -> bool:
        return self.compared("ne", 0.0)

    def __neg__(self) -> Any:
        return operator.mul(self, -1)

    def __pos__(self) -> Any:
        return self

    def compared(self, name: str, other: float) -> bool:
        """A comparison with a number: decided by the value now, which a guard holds."""
        if isinstance(self.source, Computed):
            self.fix("a comparison")
        holds = bool(getattr(operator, name)(self.real, other))
        row = ValueComparison(COMPARISONS.index(name), other, holds)
        self.guards.append(Guard(GuardKind.COMPARED, self.source, row, self.place()))
        return holds

    def guard_range(self) -> None:
        """Guard in which types of elements it fits: the others raise."""
        for bound in LARGEST:
            self.compared("lt", bound)
            self.compared("gt", -bound)

    def fix(self, what: str) -> NoReturn:
        """The number itself is needed: trace again with that of this call."""
        raise fixing(self.symbols, f"{self.source} is needed as a number ({what})", self.place())


def _computed(name: str, reflected: bool) -> Callable[..., Any]:
    function = getattr(operator, name)

    def method(self: Float, other: Any) -> Any:
        if not isinstance(other, int | float):
            return NotImplemented
        if type(other) not in (int, float, Float):
            self.fix(f"with a {type(other).__name__}")
        sides: tuple[Any, Any] = (other, self) if reflected else (self, other)
        if name == "truediv" and not sides[1]:
            self.fix("a division by zero")
        left, right = (side.real if type(side) is Float else side for side in sides)
        sources = [side.source if type(side) is Float else side for side in sides]
        symbols = [side.symbols for side in sides if type(side) is Float]
        return Float(
            Computed(_COMPUTED[name], *sources),
            function(left, right),
            frozenset[Symbol]().union(*symbols),
            self.guards,
            self.place,
        )

    return method


def _compared(name: str) -> Callable[..., Any]:
    def method(self: Float, other: Any) -> Any:
        if not isinstance(other, int | float):
            return NotImplemented
        exact = type(other) is float or (type(other) is int and abs(other) < _EXACT)
        if not exact:
            self.fix("a comparison")
        return self.compared(name, float(other))

    return method


def _needs_number(name: str) -> Callable[..., Any]:
    def method(self: Float, *args: Any) -> Any:
        self.fix(name)

    return method


for _name in _COMPUTED:
    setattr(Float, f"__{_name}__", _computed(_name, False))
    setattr(Float, f"__r{_name}__", _computed(_name, True))
for _name in COMPARISONS:
    setattr(Float, f"__{_name}__", _compared(_name))
for _name in _NUMBER.split():
    setattr(Float, f"__{_name}__", _needs_number(_name))
