"""Read a running frame's locals and value stack from CPython's own frame, for the resume tests.

`run_until(fn, args, stop)` runs `fn` natively under an opcode trace and calls `stop(state)` at every instruction. The
frame's stack pointer is written back before the trace function runs, so the stack read here is CPython's own.
"""

import ctypes
import dis
import sys
from dataclasses import dataclass
from types import CodeType

from argand.bytecode import HERE, StackSlot, closure_of_resume, decode, stack_before
from argand.bytecode.shadows import shadows

_WORD = ctypes.sizeof(ctypes.c_void_p)
_OBJECT = 2 * _WORD  # refcount, type
_FRAME_POINTER = _OBJECT + _WORD  # PyFrameObject: f_back, f_frame
# _PyInterpreterFrame: eight pointers, int stacktop, two bytes, then localsplus
_STACKTOP = 8 * _WORD
_LOCALSPLUS = 9 * _WORD
NULL = object()


def _slots(frame, count: int) -> list[object]:
    interpreter = ctypes.c_void_p.from_address(id(frame) + _FRAME_POINTER).value
    top = ctypes.c_int.from_address(interpreter + _STACKTOP).value
    # From 3.12 on the stack pointer of a running frame is in a register; the values are in the frame all the same.
    assert top in (-1, count), (top, count)
    pointers = (ctypes.c_void_p * count).from_address(interpreter + _LOCALSPLUS)
    return [ctypes.cast(p, ctypes.py_object).value if p else NULL for p in pointers]


def place_of(frame) -> int:
    """The instruction a traced frame is about to begin (it stops at the EXTENDED_ARG); -1 inside of one."""
    code = frame.f_code.co_code
    at = frame.f_lasti
    while code[at] == dis.opmap["EXTENDED_ARG"]:
        at += 2
    return next((i.index for i in decode(frame.f_code).instructions if i.offset == at), -1)


@dataclass
class State:
    code: CodeType
    index: int
    locals: dict[str, object]  # bound plain locals
    cells: dict[str, object]  # name -> cell
    stack: list[object]
    saved: frozenset[int]  # slots of the stack with cells
    handled: BaseException | None
    globals: dict[str, object]
    values: dict[str, object]  # contents of variables that are cells

    @classmethod
    def of(cls, frame) -> "State":
        code = frame.f_code
        index = place_of(frame)
        own = [name for name in code.co_cellvars if name not in code.co_varnames]
        names = [*code.co_varnames, *own, *code.co_freevars]
        slots = _slots(frame, len(names) + len(stack_before(code)[index]))
        variables, stack = slots[: len(names)], slots[len(names) :]
        cells, plain, values = {}, {}, {}
        hidden = shadows(code)[index]
        for name, value in zip(names, variables, strict=True):
            if name in hidden.plain:
                if value is not NULL:
                    plain[name] = value
            elif name in code.co_cellvars or name in code.co_freevars:
                cells[name] = value
                try:
                    values[name] = value.cell_contents
                except (ValueError, AttributeError):
                    pass
            elif value is not NULL:
                plain[name] = value
        saved = frozenset(slot for slot, _ in hidden.saved)
        handled = sys.exc_info()[1]
        return cls(code, index, plain, cells, stack, saved, handled, frame.f_globals, values)

    def stack_arguments(self) -> list[object]:
        """The stack as make_resume wants it: what is being handled in the slots of PUSH_EXC_INFO."""
        kinds = stack_before(self.code)[self.index]
        assert len(kinds) == len(self.stack), (self.code, self.index)
        arguments = list(self.stack)
        handled = self.handled
        for slot in reversed(range(len(kinds))):
            if kinds[slot] is StackSlot.PREVIOUS:
                arguments[slot], handled = handled, self.stack[slot]
        return arguments

    def given(self, stack) -> tuple[bool, ...]:
        """Which of these slots of the stack are arguments of a resume function."""
        return tuple(
            value is not NULL and slot not in self.saved for slot, value in enumerate(stack)
        )

    def closure(self, depth: int) -> tuple[object, ...]:
        """The cells to give to a resume function that keeps this many slots of the stack."""
        return tuple(
            self.cells[name] if slot == HERE else self.stack[slot]
            for name, slot in closure_of_resume(self.code, self.index, depth)
        )


def trace_opcodes(code: CodeType, visit) -> object:
    """A trace function for sys.settrace: `visit(frame)` before every instruction of frames of `code`."""
    # 3.12 looks for this when the trace function is set, and never again
    sys._getframe().f_trace_opcodes = True

    def trace(frame, event, _):
        if frame.f_code is not code:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            visit(frame)
        return trace

    return trace
