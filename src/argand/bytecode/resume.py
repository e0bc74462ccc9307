"""bytecode.resume: a function that continues in the middle of another one.

In: a code object, the place, and what is known of the frame there.  Out: a code object whose arguments are the frame's
state. A graph break in

    for x in xs:          #  stack: [iterator]
        print(x.sum())    #  <- breaks the graph; continues after the call, stack: [iterator, None]
        y = y + x

runs `print` in Python and then calls the resume function with `(iterator, None, y)`. It is a prologue that puts
locals and stack back and jumps to the place, followed by all code that can still run, with its exception table: inside
`for`, `try` and `with` nothing is lost. Three ways in:

- plain: jump to `index`, the stack as it is before that instruction runs;
- `thunk`: instruction `index` is done by calling the first argument, in the range of the same exception handler.
  For the frames around an inlined callee, and for an operation that may raise;
- `raises`: instruction `index` raised the first argument.

Cells: the frame's cells (its own and those of its closure) are the closure of the resume function, so that functions
made before the break share them; what a comprehension hides of them is in `shadows`. Exception state: inside a handler, the value taken for the slot of push_exc_info
(`handled_slots`) is the exception being handled there; the prologue makes it `sys.exc_info()` again.
"""

from __future__ import annotations

import functools
import inspect
from types import CodeType
from typing import TYPE_CHECKING, Final, final

from argand.bytecode import flow
from argand.bytecode.assemble import assemble
from argand.bytecode.instruction import CodeHandler, Instruction
from argand.bytecode.normal import ROWS
from argand.bytecode.origin import Origin
from argand.bytecode.shadows import (
    HERE,
    closure_of_resume,
    in_cell_slot,
    live_locals,
    mixed_cells,
    shadows,
)
from argand.bytecode.version import DIALECT, decode
from argand.support.dataclass import replace
from argand.support.errors import Break, CaptureBreak, Location
from argand.support.later import later

if TYPE_CHECKING:
    from argand.bytecode import steps
else:
    steps = later("argand.bytecode.steps")

_LOCALS: Final = frozenset({"load_fast", "load_fast_and_clear", "store_fast", "delete_fast"})
_CELLS: Final = frozenset(
    {"load_closure", "load_deref", "store_deref", "delete_deref", "make_cell"}
)


def handled_slots(code: CodeType, index: int) -> tuple[int, ...]:
    """Stack slots before `index` that push_exc_info made, outermost first.

    CPython keeps there what was handled *before*; a resume function takes what is handled *there*.
    """
    stack = flow.stack_before(code)[index] or ()
    return tuple(slot for slot, kind in enumerate(stack) if kind is flow.StackSlot.PREVIOUS)


def make_resume(
    code: CodeType,
    index: int,
    *,
    stack: tuple[bool, ...],
    bound: tuple[str, ...],
    thunk: bool = False,
    raises: bool = False,
    step: bool = False,
) -> CodeType:
    """Code that continues with `code` at `index`; see the module for the three ways in.

    With `step`, `code` may be a generator's: see `steps`. What continues a step is one.

    Its positional arguments: the thunk or exception if asked for, the stack's values bottom first (`stack[i]` False is
    a NULL or a cell, and no argument), then the values of the variables `bound`. The cells to give it as closure:
    `closure_of_resume`. Raises CaptureBreak B020 where no such code exists. Equal arguments give the same code object; so does a place
    in a resume function and the place it was copied from.
    """
    original, place = Origin.of(code, index)
    step = step or original is not code
    if steps.is_generator(original) and not step:
        raise _refuse(original, place, "it is a generator or coroutine")
    return _make(original, place, stack, bound, thunk, raises)


def _refuse(code: CodeType, index: int, reason: str) -> CaptureBreak:
    where = Location(code.co_filename, decode(code).instructions[index].line or 0, code.co_name)
    return CaptureBreak(Break.B020, where, function=code.co_qualname, reason=reason)


@functools.lru_cache(maxsize=4096)
def _make(
    code: CodeType,
    index: int,
    stack: tuple[bool, ...],
    bound: tuple[str, ...],
    thunk: bool,
    raises: bool,
) -> CodeType:
    place = decode(code).instructions[index]
    kinds = _slot_kinds(code, place, len(stack), thunk=thunk, raises=raises)
    entries: tuple[int, ...] = (index,)
    if thunk or raises:
        handler = () if place.handler is None else (place.handler.target,)
        entries = handler if raises else (index + 1, *handler)
    builder = _Builder(code, place, entries, bound, len(stack))
    builder.take_parameters(first=thunk or raises, stack=stack)
    unread = not (thunk or raises) and _drops_top(code, place) and bool(stack and stack[-1])
    builder.restore_stack(stack, kinds, unread=len(stack) - 1 if unread else -1)
    builder.restore_hidden()
    if raises:
        builder.raise_first()
    elif thunk:
        after = flow.stack_before(code)[index + 1] or ()
        builder.call_first(keep_result=len(after) > len(stack))
    return builder.finish(None if raises else entries[0], (index, stack, bound, thunk, raises))


def _drops_top(code: CodeType, place: Instruction) -> bool:
    """Whether `place` throws the top of the stack away, or stores it in a variable nobody reads."""
    if place.op == "store_fast":
        return place.argval not in live_locals(code, place.index + 1)
    return place.op == "pop_top" and not flow.reads_own_frame(code)


def _slot_kinds(
    code: CodeType, place: Instruction, depth: int, *, thunk: bool, raises: bool
) -> flow.Stack:
    """The kinds of the `depth` slots to restore; refuses what cannot be resumed."""

    refuse = functools.partial(_refuse, code, place.index)
    if steps.is_generator(code) and steps.refusal(code):
        raise refuse(steps.refusal(code))
    if not code.co_flags & inspect.CO_OPTIMIZED:
        raise refuse("it is the body of a class or module")
    stacks, instructions = flow.stack_before(code), decode(code).instructions
    before = stacks[place.index]
    mixed = mixed_cells(code, place.index)
    if mixed:
        raise refuse(mixed)
    begin = next(found.index for found in instructions if found.op == "resume")
    if before is None or place.index <= begin:
        raise refuse("the place is not inside its body")
    if raises:
        needed = 0 if place.handler is None else place.handler.depth
        if depth < needed:
            raise refuse(f"the handler wants {needed} stack slots, {depth} given")
    elif thunk:
        if not ROWS[place.op].by_thunk or not flow.falls_through(place):
            raise refuse(f"{place.op} cannot be done by a call")
        after = len(stacks[place.index + 1] or ())
        if after - depth not in (0, 1):
            raise refuse(f"{depth} stack slots given, there are {after} after {place.op}")
    elif depth != len(before):
        raise refuse(f"the stack has {len(before)} slots, {depth} given")
    # What an instruction leaves alone keeps its kind, so `before` serves all three ways in.
    return (*before[:depth], *(flow.StackSlot.VALUE,) * (depth - len(before)))


@final
class _Builder:
    """One resume function in the making: the prologue grows in `prologue`, then the kept code is copied."""

    def __init__(
        self,
        code: CodeType,
        place: Instruction,
        entries: tuple[int, ...],
        bound: tuple[str, ...],
        depth: int,
    ) -> None:
        self.code, self.place, self.bound = code, place, bound
        self.old = decode(code).instructions
        self.exits = steps.exits(code) if steps.is_generator(code) else frozenset[int]()
        ways = [
            flow.compute_stacks(self.old, entry, flow.stack_before(code)[entry] or (), self.exits)
            for entry in entries
        ]
        self.kept = sorted(
            {i for stacks in ways for i, stack in enumerate(stacks) if stack is not None}
        )
        self.constants = list(code.co_consts)
        self.prefix = "___"  # of our own names; longer when `code` is a resume function itself
        while any(name.startswith(self.prefix) for name in code.co_varnames):
            self.prefix += "_"
        # its closure: the frame's own variables first, then cells that comprehensions hide and have
        self.places = closure_of_resume(code, place.index, depth)
        own = len(code.co_cellvars) + len(code.co_freevars)
        further = (f"{self.prefix}cell_{i}" for i in range(len(self.places) - own))
        self.cells = (*(name for name, _ in self.places[:own]), *further)
        self.names: list[str] = []  # of the local slots
        self.parameters = 0
        self.prologue: list[Instruction] = []
        if self.cells:
            self.emit("copy_free_vars", len(self.cells))
        self.emit("resume", 0)

    def emit(self, op: str, arg: int | None = None, handler: CodeHandler | None = None) -> None:
        """Append to the prologue. A handler keeps its target in the old code until `finish`."""
        positions = self.place.positions
        self.prologue.append(
            Instruction(
                index=len(self.prologue),
                op=op,
                arg=arg,
                argval=None,
                offset=-1,
                positions=positions,
                target=None,
                handler=handler,
            )
        )

    def load_and_forget(self, name: str) -> None:
        """Push a parameter and drop it, so that the frame holds no more than the user's frame did."""
        slot = self.names.index(name)
        self.emit("load_fast", slot)
        self.emit("delete_fast", slot)

    def take_parameters(self, *, first: bool, stack: tuple[bool, ...]) -> None:
        """Lay out the local slots: parameters, then the other locals of the kept code."""
        slots = [f"{self.prefix}stack_{slot}" for slot, given in enumerate(stack) if given]
        self.names = [
            *([f"{self.prefix}first"] if first else []),
            *slots,
            *map(self._local_name, self.bound),
        ]
        self.parameters = len(self.names)
        used = {
            self.old[i].argval
            for i in self.kept
            if self.old[i].op in _LOCALS and not in_cell_slot(self.code, self.old[i])
        }
        ours = self._leave_names(used)
        self.names += [
            name for name in self.code.co_varnames if name in used and name not in self.bound
        ]
        self.names += ours
        if self.code.co_argcount and "__class__" in self.code.co_freevars:
            self._put_self_first(self._local_name(self.code.co_varnames[0]))

    def _leave_names(self, used: set[object]) -> list[str]:
        """Our own variables of the ways out of a step; the user's that they read are added to `used`."""
        actions = [
            action
            for i in self.kept
            if i in self.exits
            for action in steps.leaving(self.code, self.old[i])
        ]
        used |= {each.name for each in actions if each.op == "load_fast" and not each.own}
        return sorted({self.prefix + each.name for each in actions if each.own})

    def _local_name(self, name: str) -> str:
        """A cell's contents, and a variable that has its slot for a while, are not to be mistaken for the cell."""
        return f"{self.prefix}in_{name}" if name in self.code.co_cellvars else name

    def _put_self_first(self, own: str) -> None:
        """`super()` looks for the object in slot 0: whatever parameter came there makes room for it."""
        at = self.names.index(own) if own in self.names[: self.parameters] else 0
        if at == 0:
            return
        self.names.append(self.names[0])
        self.names[0], self.names[at] = own, f"{self.prefix}self"
        self.emit("load_fast", 0)
        self.emit("store_fast", len(self.names) - 1)
        self.load_and_forget(f"{self.prefix}self")
        self.emit("store_fast", 0)

    def restore_stack(self, stack: tuple[bool, ...], kinds: flow.Stack, unread: int) -> None:
        """Push the slots, bottom first. Slot `unread` gets None: reading it would mean a guard on its value."""
        saved = {slot for slot, _ in shadows(self.code)[self.place.index].saved}
        for slot, (given, kind) in enumerate(zip(stack, kinds, strict=True)):
            if slot in saved:
                self.emit("load_fast_and_clear", self._cell_of(slot))
                continue
            if not given:
                self.emit("push_null")
                continue
            if slot == unread:
                none = self._constant(None)
                self.emit("load_const", none)
                self.emit("store_fast", self.names.index(f"{self.prefix}stack_{slot}"))
                self.emit("load_const", none)
                continue
            self.load_and_forget(f"{self.prefix}stack_{slot}")
            if kind is flow.StackSlot.PREVIOUS:
                self.emit("push_exc_info")
                self.emit("pop_top")
            elif kind is flow.StackSlot.LASTI:
                # RERAISE takes its line number from there; the unit of RESUME is a valid one.
                self.emit("pop_top")
                self.emit("load_const", self._constant(int(bool(self.cells))))

    def _cell_of(self, slot: int) -> int:
        """The slot of our own that has the cell in a slot of the frame's stack."""
        return len(self.names) + next(i for i, place in enumerate(self.places) if place[1] == slot)

    def restore_hidden(self) -> None:
        """Put what a comprehension has there into the slots of variables whose cells are on the stack now."""
        own = len(self.code.co_cellvars) + len(self.code.co_freevars)
        plain = shadows(self.code)[self.place.index].plain
        for at, (name, _) in enumerate(self.places[:own]):
            if name in plain and name in self.bound:
                self.load_and_forget(self._local_name(name))
                self.emit("store_fast", len(self.names) + at)
        for at, (name, slot) in enumerate(self.places[own:], own):
            if slot == HERE:
                self.emit("load_fast_and_clear", len(self.names) + at)
                self.emit("store_fast", len(self.names) + self.cells.index(name))

    def _constant(self, value: object) -> int:
        self.constants.append(value)
        return len(self.constants) - 1

    def raise_first(self) -> None:
        """Raise the first parameter where the operation stood."""
        self.load_and_forget(f"{self.prefix}first")
        self.emit("raise_varargs", 1, self.place.handler)

    def call_first(self, *, keep_result: bool) -> None:
        """Call the first parameter where the operation stood."""
        handler, slot = self.place.handler, self.names.index(f"{self.prefix}first")
        if not DIALECT.null_last:
            self.emit("push_null", None, handler)
        self.emit("load_fast", slot, handler)
        self.emit("delete_fast", slot, handler)  # forgotten before the call
        if DIALECT.null_last:
            self.emit("push_null", None, handler)
        self.emit("call", 0, handler)
        if not keep_result:
            self.emit("pop_top")

    def finish(self, entry: int | None, request: tuple[object, ...]) -> CodeType:
        """Copy the kept code behind the prologue, which jumps to `entry`."""
        if entry is not None:
            self.emit("jump")
            self.prologue[-1].target = entry
        both, moved, places = list(self.prologue), {}, list[int]()
        for old in self.kept:
            moved[old] = len(both)
            copied = self._copies(self.old[old])
            both += copied
            places += [old] if len(copied) == 1 else [-1] * len(copied)
        for index, instruction in enumerate(both):
            instruction.index = index
            if instruction.target is not None:
                instruction.target = moved[instruction.target]
            if instruction.handler is not None:
                instruction.handler = instruction.handler._replace(
                    target=moved[instruction.handler.target]
                )
        # In the prologue, only the CALL of a thunk stands for a place: the instruction it is done for.
        own = [self.place.index if i.op == "call" else -1 for i in self.prologue]
        self.constants.append(Origin(self.code, (*own, *places), request))
        flags = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | steps.FLAGS
        return assemble(
            both,
            self.code,
            co_argcount=self.parameters,
            co_posonlyargcount=0,
            co_kwonlyargcount=0,
            co_nlocals=len(self.names),
            co_varnames=tuple(self.names),
            co_cellvars=(),
            co_freevars=self.cells,
            co_consts=tuple(self.constants),
            co_flags=self.code.co_flags & ~flags,
        )

    def _copies(self, old: Instruction) -> list[Instruction]:
        """A kept instruction, or what a step does there instead."""
        if self.exits and old.op in steps.UNDONE:
            return [replace(old, op="nop", arg=None, argval=None, offset=-1)]
        if old.index not in self.exits:
            return [self._copy(old)]
        plain = replace(old, argval=None, offset=-1, handler=None, target=None)
        return [
            replace(plain, op=action.op, arg=self._operand(action))
            for action in steps.leaving(self.code, old)
        ]

    def _operand(self, action: steps.WayOut) -> int:
        if action.op == "load_const":
            return self._constant(action.constant)
        if action.op == "load_deref":
            return len(self.names) + self.cells.index(action.name)
        if not action.name:
            return action.arg
        return self.names.index(self.prefix + action.name if action.own else action.name)

    def _copy(self, old: Instruction) -> Instruction:
        new = replace(old, offset=-1)
        if old.op in _CELLS or (old.op in _LOCALS and in_cell_slot(self.code, old)):
            new.arg = len(self.names) + self.cells.index(str(old.argval))
        elif old.op in _LOCALS:
            new.arg = self.names.index(str(old.argval))
        return new
