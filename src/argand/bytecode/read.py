"""bytecode.read: raw code objects to the normal form.

In: a code object and the dialect of the running version.  Out: its instructions, each with the target of
its jump and its exception handler.
"""

from __future__ import annotations

import dis
import opcode
from collections.abc import Sequence
from types import CodeType
from typing import Final, final

from argand.bytecode.dialect import Context, Dialect, NormalForm, Piece, Raw
from argand.bytecode.instruction import CodeHandler, Instruction, Positions

_OPERATORS: Final = tuple(symbol for _, symbol in opcode._nb_ops)  # type: ignore[attr-defined]  # the only table of them
_CONSTANT, _NAME, _VARIABLE, _COMPARISON, _OPERATOR = range(1, 6)


def _argument_kinds() -> dict[str, int]:
    tables = (
        (dis.hasconst, _CONSTANT),
        (dis.hasname, _NAME),
        (dis.haslocal, _VARIABLE),
        (dis.hasfree, _VARIABLE),
        (dis.hascompare, _COMPARISON),
    )
    return {dis.opname[code]: kind for table, kind in tables for code in table} | {
        "BINARY_OP": _OPERATOR
    }


def variables(code: CodeType) -> tuple[str, ...]:
    """Names of the frame's slots: arguments and locals, cells that are not arguments, free variables."""
    own_cells = [name for name in code.co_cellvars if name not in code.co_varnames]
    return (*code.co_varnames, *own_cells, *code.co_freevars)


@final
class CodeReader:
    """Reads code objects of one dialect; the tables are made once."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.names = tuple(dis.opname)
        self.kinds = _argument_kinds()
        self.have_argument = frozenset(
            name for name, op in dis.opmap.items() if op >= dis.HAVE_ARGUMENT
        )
        self.extended, self.cache = dis.opmap["EXTENDED_ARG"], dis.opmap["CACHE"]

    def read(self, code: CodeType) -> tuple[Instruction, ...]:
        """The instructions of `code` in normal form."""
        raws = self._scan(code.co_code)
        context = Context(code, variables(code), _cells(code, raws))
        positions = list(code.co_positions())
        sent = self._send_targets(raws)
        found: list[Instruction] = []
        index_at: dict[int, int] = {}
        jumps: list[tuple[Instruction, int]] = []
        at = 0
        while at < len(raws):
            raw = raws[at]
            index_at[raw.start] = len(found)
            # twice as fast as Positions(...)
            place: Positions = tuple.__new__(Positions, positions[raw.offset >> 1])
            if raw.start in sent:
                found.append(Instruction(len(found), "end_send", None, None, raw.offset, place))
            splitter = self.dialect.split.get(raw.name)
            pieces, used = (
                self._plain(context, raw) if splitter is None else splitter(context, raws, at)
            )
            for other in raws[at + 1 : at + used]:
                index_at[other.start] = len(found)
            last = raws[at + used - 1]
            for piece in pieces:
                made = Instruction(len(found), piece.op, piece.arg, piece.argval, raw.offset, place)
                found.append(made)
                if piece.jumps:
                    jumps.append((made, self._target(last)))
            at += used
        for instruction, offset in jumps:
            instruction.target = index_at[offset]
        _set_handlers(code, found, index_at)
        return tuple(found)

    def _scan(self, raw: bytes) -> list[Raw]:
        found: list[Raw] = []
        extended, start = 0, -1
        names, caches = self.names, self.dialect.caches
        for offset in range(0, len(raw), 2):
            op = raw[offset]
            if op == self.cache:
                continue
            if start < 0:
                start = offset
            arg = raw[offset + 1] | extended
            if op == self.extended:
                extended = arg << 8
                continue
            name = names[op]
            found.append(Raw(name, arg, start, offset, offset + 2 + 2 * caches.get(name, 0)))
            extended, start = 0, -1
        return found

    def _target(self, raw: Raw) -> int:
        return raw.end + 2 * self.dialect.jumps[raw.name] * raw.arg

    def _send_targets(self, raws: Sequence[Raw]) -> frozenset[int]:
        """Where an exhausted SEND goes: the normal form has an `end_send` there."""
        if not self.dialect.send_drops:
            return frozenset()
        return frozenset(self._target(raw) for raw in raws if raw.name == "SEND")

    def _plain(self, context: Context, raw: Raw) -> NormalForm:
        """A raw instruction that is one of the normal form."""
        name, arg = raw.name, raw.arg
        op = self.dialect.renamed.get(name) or name.lower()
        argument = arg if name in self.have_argument else None
        return NormalForm(
            (Piece(op, argument, self.value(context, name, arg), name in self.dialect.jumps),)
        )

    def value(self, context: Context, name: str, arg: int) -> object:
        """What the argument of a raw instruction stands for."""
        kind = self.kinds.get(name)
        if kind == _CONSTANT:
            return context.code.co_consts[arg]
        if kind == _NAME:
            return context.code.co_names[arg]
        if kind == _VARIABLE:
            return context.variables[arg]
        if kind == _COMPARISON:
            return dis.cmp_op[arg]
        return _OPERATORS[arg] if kind == _OPERATOR else None


def _cells(code: CodeType, raws: Sequence[Raw]) -> frozenset[int]:
    """Slots that are cells in all of the body. One that a comprehension alone makes a cell is not."""
    made = []
    for raw in raws:
        if raw.name == "RESUME":
            break
        if raw.name == "MAKE_CELL":
            made.append(raw.arg)
    slots = len(variables(code))
    return frozenset((*made, *range(slots - len(code.co_freevars), slots)))


def _set_handlers(code: CodeType, found: Sequence[Instruction], index_at: dict[int, int]) -> None:
    if not code.co_exceptiontable:
        return
    for start, end, target, depth, lasti in read_exception_table(code.co_exceptiontable):
        handler = CodeHandler(index_at[target], depth, lasti)
        last = index_at[end] if end in index_at else len(found)
        for instruction in found[index_at[start] : last]:
            instruction.handler = handler


def read_exception_table(table: bytes) -> list[tuple[int, int, int, int, bool]]:
    """Entries (start, end, target, depth, lasti) of `co_exceptiontable`, in byte offsets."""
    numbers: list[int] = []
    value = 0
    for byte in table:
        value = value << 6 | byte & 63
        if not byte & 64:
            numbers.append(value)
            value = 0
    entries = []
    for i in range(0, len(numbers), 4):
        start, size, target, flags = numbers[i : i + 4]
        entries.append((2 * start, 2 * (start + size), 2 * target, flags >> 1, bool(flags & 1)))
    return entries
