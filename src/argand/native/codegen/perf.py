"""native.codegen.perf: names of kernels for tools that look at machine code from outside, with the user's lines.

In: object code, where its functions are in memory, and the user's lines that each computes. Out: for ``perf`` a line per
function in /tmp/perf-PID.map, as other JIT compilers write them (``ARGAND_PERF=1``): address, size,
``argand:kernel0_exp_sum model.py:12``. For gdb (``ARGAND_GDB=1``) a symbol file in memory, through its interface for
JIT compilers: backtraces and breakpoints have names much like these.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from argand.native.codegen.elf import FILE, SECTION, SYMBOL, SYMBOLS, X86_64, function_sizes
from argand.runtime import _native
from argand.support.locks import make_lock
from argand.support.platform import perf_folder

_LINE: Final = re.compile(r'File "(?:[^"]*/)?(?P<file>[^"/]+)", line (?P<line>\d+)')
_FOR_GDB: Final = str.maketrans(": ,", "_..")
# kind of file; kinds of sections; flags: in memory, code
_RELOCATABLE, _NAMES, _NO_BITS, _RUN = (1, 3, 8, 0b110)
_FUNCTION: Final = 0x12  # a function that everybody sees
_lock: Final = make_lock()


class PlacedFunction(NamedTuple):
    """One function in memory."""

    address: int
    size: int
    name: str


def named_functions(
    code: bytes, addresses: Mapping[str, int], origins: Mapping[str, Sequence[str]]
) -> tuple[PlacedFunction, ...]:
    """The functions of an object, by the names that tools show."""
    sizes = function_sizes(code)
    return tuple(
        PlacedFunction(at, sizes.get(name, 1), _shown(name, origins.get(name, ())))
        for name, at in addresses.items()
    )


def _shown(name: str, origins: Sequence[str]) -> str:
    found = [list(_LINE.finditer(origin)) for origin in origins]
    lines = dict.fromkeys(f"{last[-1]['file']}:{last[-1]['line']}" for last in found if last)
    return f"argand:{name} {','.join(lines)}".rstrip()


# --- perf ------------------------------------------------------------------------------------


def map_file() -> Path:
    """Where ``perf`` looks for the names of this process."""
    return perf_folder() / f"perf-{os.getpid()}.map"


def tell_perf(functions: Sequence[PlacedFunction]) -> None:
    """Append functions to the map."""
    text = "".join(f"{each.address:x} {each.size:x} {each.name}\n" for each in functions)
    # The folder is everybody's: a link that somebody put there is not followed.
    with _lock:
        file = os.open(map_file(), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        with os.fdopen(file, "a") as out:
            out.write(text)


# --- gdb -------------------------------------------------------------------------------------


def tell_gdb(functions: Sequence[PlacedFunction]) -> object:
    """Register a symbol file; gdb knows the names as long as the result lives.

    ``argand.kernel0_exp_sum.model.py_12``: gdb takes what stands before a colon for a file, ends a name at a space, and
    drops numbers behind a dot.
    """
    return _native.tell_gdb(
        symbol_file(
            [
                each._replace(name=each.name.replace(":", ".", 1).translate(_FOR_GDB))
                for each in functions
            ]
        )
    )


def symbol_file(functions: Sequence[PlacedFunction]) -> bytes:
    """An object file without code: one section that lies where the functions are, and a symbol for each of them."""
    start = min(each.address for each in functions)
    end = max(each.address + each.size for each in functions)
    names = b"\0" + b"".join(each.name.encode() + b"\0" for each in functions)
    rows, at = [SYMBOL.pack(0, 0, 0, 0, 0, 0)], 1
    for each in functions:
        rows.append(SYMBOL.pack(at, _FUNCTION, 0, 1, each.address - start, each.size))
        at += len(each.name.encode()) + 1
    symbols = b"".join(rows)
    titles = b"\0.text\0.symtab\0.strtab\0"
    places = [FILE.size, FILE.size + len(symbols), FILE.size + len(symbols) + len(names)]
    table = (
        (0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        (1, _NO_BITS, _RUN, start, FILE.size, end - start, 0, 0, 1, 0),
        (7, SYMBOLS, 0, 0, places[0], len(symbols), 3, 1, 8, SYMBOL.size),
        (15, _NAMES, 0, 0, places[1], len(names), 0, 0, 1, 0),
        (15, _NAMES, 0, 0, places[2], len(titles), 0, 0, 1, 0),
    )
    body = symbols + names + titles
    head = FILE.pack(
        b"\x7fELF\x02\x01\x01".ljust(16, b"\0"), _RELOCATABLE, X86_64, 1, 0, 0, FILE.size + len(body), 0,
        FILE.size, 0, 0, SECTION.size, len(table), 4,
    )  # fmt: skip
    return head + body + b"".join(SECTION.pack(*row) for row in table)
