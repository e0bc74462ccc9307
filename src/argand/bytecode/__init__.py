"""bytecode: CPython bytecode in a form that does not depend on the version.

In: code objects.  Out: `decode` (instructions), `assemble.assemble` (back to a code object), `flow` (stack and liveness),
`make_resume` (a function that continues in the middle of another), `steps` (generators as plain functions).

The names are loaded at their first use: a warm start reads no bytecode.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

from argand.bytecode import supported as supported  # first: it says where nothing else works

if TYPE_CHECKING:
    from argand.bytecode.assemble import relocated
    from argand.bytecode.flow import (
        StackSlot,
        append_only,
        collected_on_stack,
        stack_before,
        used_names,
    )
    from argand.bytecode.instruction import CodeHandler, Decoded, Instruction, Positions
    from argand.bytecode.normal import ROWS
    from argand.bytecode.origin import is_resume, original_code
    from argand.bytecode.read import variables
    from argand.bytecode.resume import handled_slots, make_resume
    from argand.bytecode.shadows import HERE, closure_of_resume, live_locals
    from argand.bytecode.version import CLOSE_GIVES_VALUE, LOCALS_ARE_NEW, VERSION, decode

_WHERE: Final = {
    "assemble": "relocated",
    "flow": "StackSlot append_only collected_on_stack stack_before used_names",
    "instruction": "CodeHandler Decoded Instruction Positions",
    "normal": "ROWS",
    "origin": "is_resume original_code",
    "read": "variables",
    "resume": "handled_slots make_resume",
    "shadows": "HERE closure_of_resume live_locals",
    "version": "CLOSE_GIVES_VALUE LOCALS_ARE_NEW VERSION decode",
}
_PLACE: Final = {name: module for module, names in _WHERE.items() for name in names.split()}

__all__ = [
    "CLOSE_GIVES_VALUE",
    "HERE",
    "LOCALS_ARE_NEW",
    "ROWS",
    "VERSION",
    "CodeHandler",
    "Decoded",
    "Instruction",
    "Positions",
    "StackSlot",
    "append_only",
    "closure_of_resume",
    "collected_on_stack",
    "decode",
    "handled_slots",
    "is_resume",
    "live_locals",
    "make_resume",
    "original_code",
    "relocated",
    "stack_before",
    "used_names",
    "variables",
]


def __getattr__(name: str) -> Any:
    """Load a name."""
    place = _PLACE.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(importlib.import_module(f"{__name__}.{place}"), name)
    return value
