"""bytecode: CPython bytecode in a form that does not depend on the version.

In: code objects.  Out: `decode` (instructions), `assemble` (back to a code object), `flow` (stack and liveness),
`make_resume` (a function that continues in the middle of another), `steps` (generators as plain functions).
"""

from argand.bytecode import supported as supported  # first: it says where nothing else works
from argand.bytecode.assemble import assemble, relocated
from argand.bytecode.flow import (
    StackSlot,
    append_only,
    collected_on_stack,
    stack_before,
    used_names,
)
from argand.bytecode.instruction import CodeHandler, Decoded, Instruction, Positions
from argand.bytecode.normal import ROWS
from argand.bytecode.read import variables
from argand.bytecode.resume import handled_slots, is_resume, make_resume, original_code
from argand.bytecode.shadows import HERE, closure_of_resume, live_locals
from argand.bytecode.version import CLOSE_GIVES_VALUE, LOCALS_ARE_NEW, VERSION, decode

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
    "assemble",
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
