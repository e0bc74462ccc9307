"""report.lines: the user's lines: from what capture writes beside a node to file, line, function and text."""

from __future__ import annotations

import functools
import linecache
import re
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch

from argand.support.errors import Location

_RESUMED: Final = re.compile(r"resume_in_(.*)_at_\d+$")
_TEXT: Final = re.compile(r"(.*?):(\d+)(?: in (.*))?")
_FRAME: Final = re.compile(r'File "(.*)", line (\d+), in (.*)')
_TORCH: Final = str(Path(torch.__file__).parent)
_OURS: Final = str(Path(__file__).parent.parent)
_PYTHON: Final = sysconfig.get_paths()["stdlib"]


def place(file: str, line: int, function: str = "") -> dict[str, Any]:
    """A line as the report has it."""
    return {
        "file": file,
        "short": short(file),
        "line": line,
        "function": function_name(function),
        "source": linecache.getline(file, line).strip(),
    }


def function_name(name: str) -> str:
    """The function as the user wrote it: what resumes after a break is the same one for him."""
    while found := _RESUMED.search(name):
        name = name[: found.start()] + found[1]
    return name


def short(file: str) -> str:
    """The last two parts of a path: enough to know it again."""
    return "/".join(Path(file).parts[-2:])


def located(where: Location | None) -> dict[str, Any] | None:
    """The line of a ``Location``."""
    return None if where is None else place(where.file, where.line, where.function)


def of_text(text: str) -> dict[str, Any] | None:
    """The line of a ``Location`` that was printed."""
    found = _TEXT.fullmatch(text)
    return place(found[1], int(found[2]), found[3] or "") if found else None


def of_user(where: Location | None, stack: Sequence[Location]) -> dict[str, Any] | None:
    """The user's innermost line of a stack of calls; ``where`` it ends, when none of them is his."""
    own = [place for place in stack if is_of_user(place.file)]
    return located(own[-1] if own else where)


def is_of_user(file: str) -> bool:
    """Whether a file is neither torch's, Python's nor ours."""
    inside = "site-packages" in file and not file.startswith(_PYTHON + "/site-packages")
    return not file.startswith((_TORCH, _OURS)) and (
        inside or not file.startswith(_PYTHON) or "site-packages" in file
    )


@functools.lru_cache(maxsize=4096)
def _parsed(origin: str) -> tuple[str, int, str] | None:
    frames = [
        (file, int(line), function.strip()) for file, line, function in _FRAME.findall(origin)
    ]
    own = [frame for frame in frames if is_of_user(frame[0])]
    return (own or frames)[-1] if frames else None


def of_origin(origin: str | None) -> dict[str, Any] | None:
    """The user's innermost line of a node."""
    found = _parsed(origin) if origin else None
    return place(*found) if found else None


def of_origins(origins: list[str]) -> list[dict[str, Any]]:
    """The same for several, each line once, by line."""
    found = {(p["file"], p["line"]): p for p in map(of_origin, origins) if p}
    return [found[key] for key in sorted(found)]
