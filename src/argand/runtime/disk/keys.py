"""runtime.disk.keys: what a cache entry depends on, as named parts, and the key made of them.

In: parts by name. Out: a hexadecimal key, and the section "about" that keeps the parts readable, so that
``argand cache why`` can tell which of them differs. The thread count is no part: kernels give the
same bits however they are split.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch

from argand.runtime.disk.format import Damaged
from argand.runtime.disk.values import guarded
from argand.support.options import Options

# Options that change whether or where something is compiled, not what comes out.
_NOT_IN_KEYS: Final = ("cache", "cache_dir", "recompile_limit", "fullgraph", "strict")


def hexdigest(*parts: bytes) -> str:
    """A hash of some bytes, in order."""
    state = hashlib.blake2b(digest_size=20)
    for part in parts:
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.hexdigest()


@functools.cache
def source_version() -> str:
    """A hash of Argand itself: during development its version number says nothing."""
    root = Path(__file__).parents[2]
    state = hashlib.blake2b(digest_size=12)
    for directory, below, names in os.walk(root):
        below.sort()
        for name in sorted(names):
            if name.endswith((".py", ".so")):
                path = Path(directory, name)
                state.update(f"{path.relative_to(root)}\0".encode())
                state.update(path.read_bytes())
    return state.hexdigest()


@functools.cache
def environment() -> Mapping[str, str]:
    """The parts of every key: the programs that made the entry."""
    return {
        "argand": source_version(),
        "torch": f"{torch.__version__} {torch.version.git_version}",
        "python": f"{sys.implementation.cache_tag} {sys.version}",
    }


def options_part(options: Options) -> str:
    """The options that can change what is compiled."""
    rows = dataclasses.fields(options)
    kept = [(f.name, getattr(options, f.name)) for f in rows if f.name not in _NOT_IN_KEYS]
    return " ".join(f"{name}={value!r}" for name, value in kept)


def make_key(kind: str, parts: Mapping[str, str]) -> str:
    """The key of an entry."""
    return hexdigest(kind.encode(), *(f"{k}\0{v}".encode() for k, v in sorted(parts.items())))


def about(kind: str, parts: Mapping[str, str], **more: Any) -> bytes:
    """The section "about" of an entry."""
    return json.dumps({"kind": kind, "parts": dict(parts), **more}).encode()


def read_about(sections: Mapping[str, bytes]) -> dict[str, Any]:
    """What an entry says about itself; ``Damaged`` when it says nothing readable."""
    found = guarded(lambda: json.loads(sections["about"]))
    if not isinstance(found, dict) or not isinstance(found.get("parts"), dict):
        raise Damaged("an entry that does not say what it is")
    return found
