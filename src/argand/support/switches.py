"""support.switches: parts of the compiler that can be left out, by name. What the option ``off`` says is read here.

In: ``Options.off``, names between spaces (``"pass.simplify rule.unit"``). Out: whether a part is off. A part that is off is
replaced by something plainer that gives the same results: ``argand bisect`` takes parts away until a failure is gone. Every
room asks here, so what can be left out is one table.
"""

from __future__ import annotations

import functools
from typing import Final, NamedTuple, Protocol

from argand.support.errors import OptionError, guess


class Switched(Protocol):
    """Options, as far as they are read here."""

    @property
    def off(self) -> str:
        """The parts that are left out."""


class Switch(NamedTuple):
    """A part that can be off: ``name``, or ``name.item`` where it has items of which one can be off alone."""

    name: str
    instead: str  # what happens without it
    items: str = ""  # what its items are; empty: it has none
    whole: bool = True  # whether all items can be off at once


SWITCHES: Final = (
    Switch("capture", "functions run as they are"),
    Switch(
        "entries", "no compiled code is used a second time: what guards should have seen is seen"
    ),
    Switch("autograd", "captured graphs are run by torch, op by op"),
    Switch("partition", "all that a backward pass needs is kept, nothing is computed again"),
    Switch("decomposition", "ops stay whole", "ops"),
    Switch("native", "aten graphs are run by torch, op by op"),
    Switch("convolutions", "convolutions are torch's, each by itself"),
    Switch("lowering", "an op is computed by torch's kernel", "ops", whole=False),
    Switch(
        "node",
        "a node of an aten graph is computed by torch's kernel",
        "names of nodes",
        whole=False,
    ),
    Switch(
        "pass", "an optional pass of native/passes/table.py does not run", "passes", whole=False
    ),
    Switch("rule", "a law of native/passes/simplify.py is not applied", "rules", whole=False),
    Switch("writes", "new values of inputs are copied into them when a graph has run"),
    Switch("reuse", "no two values lie in the same memory one after the other"),
)
_BY_NAME: Final = {switch.name: switch for switch in SWITCHES}


@functools.cache
def read(text: str) -> frozenset[str]:
    """The names of an option; OptionError where one is no part of the compiler."""
    names = text.split()
    for name in names:
        head, _, item = name.partition(".")
        switch = _BY_NAME.get(head)
        if switch is None:
            hint = f"{guess(head, _BY_NAME)}parts: {', '.join(_BY_NAME)}"
            raise OptionError(f"option 'off': {head!r} is no part that can be off", hint=hint)
        if item and not switch.items:
            raise OptionError(f"option 'off': {head!r} has no parts of its own, got {name!r}")
        if not item and not switch.whole:
            raise OptionError(
                f"option 'off': {head!r} alone says nothing", hint=f"name one of its {switch.items}"
            )
    return frozenset(names)


def is_off(options: Switched, name: str, item: str = "") -> bool:
    """Whether a part, or one item of it, is left out."""
    if not options.off:
        return False
    names = read(options.off)
    return name in names or (bool(item) and f"{name}.{item}" in names)
