"""native.codegen.perf: names of kernels for ``perf``: a line per function in /tmp/perf-PID.map, as other JIT compilers write them.

In: object code, where its functions are in memory, and the user's lines that each computes. Out: lines of the map: address,
size, ``argand:kernel0_exp_sum model.py:12``. Switched on by ``ARGAND_PERF=1``.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from argand.native.codegen.elf import function_sizes
from argand.support.locks import make_lock

_LINE: Final = re.compile(r'File "(?:[^"]*/)?(?P<file>[^"/]+)", line (?P<line>\d+)')
_lock: Final = make_lock()


def map_file() -> Path:
    """Where ``perf`` looks for the names of this process."""
    return Path(tempfile.gettempdir() if os.name != "posix" else "/tmp") / f"perf-{os.getpid()}.map"  # perf's own


def note_functions(code: bytes, addresses: Mapping[str, int], origins: Mapping[str, Sequence[str]]) -> None:
    """Append the functions of an object."""
    sizes = function_sizes(code)
    rows = (f"{at:x} {sizes.get(name, 1):x} {_shown(name, origins.get(name, ()))}\n" for name, at in addresses.items())
    text = "".join(rows)
    # The folder is everybody's: a link that somebody put there is not followed.
    with _lock:
        file = os.open(map_file(), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        with os.fdopen(file, "a") as out:
            out.write(text)


def _shown(name: str, origins: Sequence[str]) -> str:
    found = [list(_LINE.finditer(origin)) for origin in origins]
    lines = dict.fromkeys(f"{last[-1]['file']}:{last[-1]['line']}" for last in found if last)
    return f"argand:{name} {','.join(lines)}".rstrip()
