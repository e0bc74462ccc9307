"""native.codegen.elf: relocatable objects loaded without LLVM, whose library takes longer to map than they do.

In: object code of our own kernels: they call nothing, and refer only to constants of the same object. Out: memory
with the functions in it, or None for an object that needs a real linker (another machine, a symbol from outside).
"""

from __future__ import annotations

import ctypes
import struct
from typing import Final, NamedTuple, final

from argand.support.platform import own_pages, set_rights

FILE: Final = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION: Final = struct.Struct("<IIQQQQIIQQ")
SYMBOL: Final = struct.Struct("<IBBHQQ")
_RELOCATION: Final = struct.Struct("<QQq")
X86_64: Final = 62
_ALLOCATED: Final = 2
_PROGRAM, SYMBOLS, _RELOCATIONS = 1, 2, 4  # types of sections; tables for unwinding have another
# types of relocations: size, and whether relative to the place
_KNOWN: Final = {1: ("<Q", False), 24: ("<q", True), 2: ("<i", True), 4: ("<i", True)}


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry: int


@final
class Memory:
    """Loaded functions; they live as long as this object."""

    def __init__(self, size: int) -> None:
        self.pages = own_pages(size)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.pages))
        self.functions: dict[str, int] = {}

    def address(self, name: str) -> int:
        """Where a function begins; KeyError if there is none."""
        return self.functions[name]

    def seal(self) -> bool:
        """From now on it can be run and no longer be written."""
        return set_rights(self.base, len(self.pages), "run")


def load_object(code: bytes) -> Memory | None:
    """The functions of an object; None when it needs a real linker."""
    try:
        return _load(code)
    except (struct.error, ValueError, IndexError, StopIteration, OSError):
        return None


def outside_symbols(code: bytes) -> frozenset[str]:
    """The names an object refers to and does not define; ValueError or struct.error when it is none of ours."""
    table = _sections(code)
    symbols = next(section for section in table if section.kind == SYMBOLS)
    names = code[table[symbols.link].offset :]
    rows = SYMBOL.iter_unpack(code[symbols.offset :][: symbols.size])
    return frozenset(_name(names, row[0]) for row in rows if row[0] and row[3] == 0)


def function_sizes(code: bytes) -> dict[str, int]:
    """How many bytes each function of an object has; empty when it is none of ours."""
    try:
        table = _sections(code)
        symbols = next(section for section in table if section.kind == SYMBOLS)
        names = code[table[symbols.link].offset :]
        rows = SYMBOL.iter_unpack(code[symbols.offset :][: symbols.size])
        return {_name(names, row[0]): row[5] for row in rows if row[0] and row[3]}
    except (ValueError, struct.error, StopIteration):
        return {}


def _name(names: bytes, at: int) -> str:
    return names[at : names.index(b"\0", at)].decode("ascii")


def _sections(code: bytes) -> list[_Section]:
    magic, _, machine, _, _, _, at, _, _, _, _, size, count, _ = FILE.unpack_from(code)
    if not magic.startswith(b"\x7fELF\x02\x01") or machine != X86_64 or size != SECTION.size:
        raise ValueError("no object for this machine")
    return [_Section(*SECTION.unpack_from(code, at + size * i)) for i in range(count)]


def _load(code: bytes) -> Memory | None:
    table = _sections(code)
    places: dict[int, int] = {}
    end = 0
    for i, section in enumerate(table):
        if section.kind == _PROGRAM and section.flags & _ALLOCATED and section.size:
            end += -end % max(64, section.alignment)
            places[i], end = end, end + section.size
    memory = Memory(end)
    for i, place in places.items():
        section = table[i]
        memory.pages[place : place + section.size] = code[section.offset :][: section.size]
    symbols = next(section for section in table if section.kind == SYMBOLS)
    rows = list(SYMBOL.iter_unpack(code[symbols.offset :][: symbols.size]))
    for section in table:
        if section.kind == _RELOCATIONS and section.info in places:
            for row in _RELOCATION.iter_unpack(code[section.offset :][: section.size]):
                if not _relocate(memory, places, rows, places[section.info], *row):
                    return None
    names = code[table[symbols.link].offset :]
    for name, _, _, where, value, _ in rows:
        if name and where in places:
            memory.functions[_name(names, name)] = memory.base + places[where] + value
    return memory if memory.seal() else None


def _relocate(
    memory: Memory,
    places: dict[int, int],
    symbols: list[tuple[int, ...]],
    start: int,
    offset: int,
    info: int,
    addend: int,
) -> bool:
    _, _, _, where, value, _ = symbols[info >> 32]
    if where not in places or info & 0xFFFFFFFF not in _KNOWN:
        return False
    form, relative = _KNOWN[info & 0xFFFFFFFF]
    target = memory.base + places[where] + value + addend
    target -= memory.base + start + offset if relative else 0
    struct.pack_into(form, memory.pages, start + offset, target)
    return True
