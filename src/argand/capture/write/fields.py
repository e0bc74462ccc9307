"""capture.write.fields: what objects hold besides their dict.

In: a class, a descriptor, an exception. Out: names of slots, descriptors of fields, what one holds.
"""

from __future__ import annotations

import functools
import types
from typing import Any

from argand.capture.markers import MISSING


@functools.lru_cache(maxsize=1024)
def slots_of(kind: Any) -> tuple[str, ...]:
    """The names of the slots of a class and its bases, but for those that a class below gave another meaning (a property)."""
    found: dict[str, Any] = {}
    hidden: set[str] = set()
    for base in kind.__mro__:
        if "__slots__" in vars(base):
            own = vars(base).items()
            found |= {
                name: slot
                for name, slot in own
                if type(slot) is types.MemberDescriptorType and name not in hidden
            }
        hidden |= vars(base).keys()
    return tuple(found)


@functools.lru_cache(maxsize=1024)
def members_of(kind: Any) -> tuple[Any, ...]:
    """Descriptors of the fields of an exception besides those that all have: what `__init__` may have set."""
    bases = kind.__mro__[: kind.__mro__.index(BaseException)]
    # its fields are what it is made of
    own = (base for base in bases if base is not BaseExceptionGroup)
    return tuple(
        found
        for base in own
        for found in vars(base).values()
        if type(found) is types.MemberDescriptorType
    )


def held(member: Any, error: BaseException) -> Any:
    """What a field of an exception holds; MISSING when it was never set."""
    try:
        return member.__get__(error)
    except AttributeError:
        return MISSING
