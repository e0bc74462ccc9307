"""capture.bytecode: CPython bytecode in a form that does not depend on the version.

In: code objects.  Out: `decode` (instructions), `assemble` (back to a code object), `flow` (stack and liveness),
`make_resume` (a function that goes on in the middle of another).
"""

from argand.capture.bytecode.instruction import Decoded, Handler, Instruction, Positions
from argand.capture.bytecode.version import decode

__all__ = ["Decoded", "Handler", "Instruction", "Positions", "decode"]
