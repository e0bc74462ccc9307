"""runtime.disk.keys: what a cache entry depends on, as named parts, and the key made of them.

In: parts by name. Out: a hexadecimal key, and the section "about" that keeps the parts readable, so that
``argand cache why`` can tell which of them differs. The thread count is no part: kernels give the
same bits however they are split.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import torch

from argand.runtime.disk.format import Damaged
from argand.runtime.disk.store import DiskStore, default_directory
from argand.runtime.disk.values import guarded
from argand.support.dataclass import fields_of
from argand.support.options import Options

# Options that change whether or where something is compiled, not what comes out.
_NOT_IN_KEYS: Final = (
    "cache",
    "cache_dir",
    "recompile_limit",
    "fullgraph",
    "strict",
    "dynamic",
    "name",
    "background",
)


def hexdigest(*parts: bytes) -> str:
    """A hash of some bytes, in order."""
    state = hashlib.blake2b(digest_size=20)
    for part in parts:
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.hexdigest()


@functools.cache
def source_version() -> str:
    """A hash of Argand itself: during development its version number says nothing.

    Reading all files takes longer than looking at them, so the answer is kept on disk under their sizes and times.
    """
    root = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    times = sorted(_sources(root))
    store = DiskStore(default_directory(), warn=False)
    key = hexdigest(b"source", repr(times).encode())
    known = store.peek(key).get("version")
    if known is None:
        rows = ((path[len(root) :].encode(), _content(path, size)) for path, size, _ in times)
        known = hexdigest(*itertools.chain.from_iterable(rows)).encode()
        store.put(key, {"about": about("source", {"root": root}), "version": known})
    return known.decode()


def _sources(folder: str) -> Iterator[tuple[str, int, int]]:
    """Path, size and time of each file that Argand consists of."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith((".py", ".so")):
                facts = entry.stat()
                yield entry.path, facts.st_size, facts.st_mtime_ns
            elif entry.name != "__pycache__" and entry.is_dir():
                yield from _sources(entry.path)


def _content(path: str, size: int) -> bytes:
    """A file of this size, read in one go: hundreds of them are read while somebody waits."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(handle, size + 1)
    finally:
        os.close(handle)
    if len(data) == size:
        return data
    return Path(path).read_bytes()  # it was just written, or came in parts


@functools.cache
def environment() -> Mapping[str, str]:
    """The parts of every key: the programs that made the entry."""
    return {
        "argand": source_version(),
        "torch": f"{torch.__version__} {torch.version.git_version}",
        "python": f"{sys.implementation.cache_tag} {sys.version}",
    }


def state_part() -> str:
    """Settings of torch that decide which kernels and types a compile chooses."""
    c = torch._C
    attention = (
        c._get_flash_sdp_enabled(),
        c._get_mem_efficient_sdp_enabled(),
        c._get_math_sdp_enabled(),
    )
    kernels = (*attention, c._get_mkldnn_enabled(), c._get_deterministic_algorithms())
    return f"{torch.get_default_dtype()} {torch.get_float32_matmul_precision()} {kernels}"


def options_part(options: Options) -> str:
    """The options that can change what is compiled."""
    rows = fields_of(options)
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
