"""native.codegen.triton.traces: the user's line behind a value, for a comment."""

from __future__ import annotations

import functools
import linecache
import os
import re

_ENTRY = re.compile(r'File "(.*)", line (\d+)')


@functools.lru_cache(maxsize=512)
def shown_line(trace: str) -> str:
    """``program.py:3  y = x.exp()``; empty when nothing is known."""
    found = _ENTRY.findall(trace)
    if not found:
        return ""
    path, number = found[-1]
    line = linecache.getline(path, int(number)).strip()
    return f"{os.path.basename(path)}:{number}  {line}".rstrip()
