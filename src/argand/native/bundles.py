"""native.bundles: cache entries carried to other machines.

In: the entries of a cache directory. Out: one file of the cache's own format, with a key an authenticated
one, and its entries put into another directory. Machine code goes where the machine can do at least
what the code was made for; entries of other versions are taken along and simply never asked for.
"""

from __future__ import annotations

import json
from pathlib import Path

from argand.native.codegen.target import machine_key, runs_here
from argand.runtime.disk.format import Damaged, decode, encode
from argand.runtime.disk.keys import read_about
from argand.runtime.disk.store import DiskStore, default_directory
from argand.runtime.disk.values import guarded
from argand.support import events
from argand.support.errors import UserError


def save_cache_artifacts(*, key: bytes = b"", directory: Path | None = None) -> bytes:
    """All entries of the disk cache as one bundle; with ``key``, only its holders can make or change it."""
    store = DiskStore(directory or default_directory())
    found = [(entry.key, store.peek(entry.key)) for entry in store.entries()]
    files = [(name, encode(sections)) for name, sections in found if sections]
    index = json.dumps([[name, len(data)] for name, data in files]).encode()
    return encode({"index": index, "files": b"".join(data for _, data in files)}, key)


def load_cache_artifacts(data: bytes, *, key: bytes = b"", directory: Path | None = None) -> int:
    """Put the entries of a bundle into the disk cache; how many this machine can use.

    A bundle holds machine code that will run: load only what you trust, or what a key vouches for.
    Fails with ``UserError`` when the bundle is damaged or was made with another key.
    """
    store = DiskStore(directory or default_directory())
    try:
        bundle = decode(data, key)
        entries = guarded(lambda: list(_entries(bundle)))
    except Damaged as error:
        raise UserError(f"this bundle cannot be used: {error}") from None
    taken = 0
    for name, sections in entries:
        said = read_about(sections) if "about" in sections else {}
        if "base" not in said:
            taken += store.put(name, sections)
        elif runs_here(said["features"]):
            place = machine_key(said["base"])
            # what was made here is made for more
            taken += bool(store.peek(place)) or store.put(place, sections)
        else:
            events.count("cache.bypass", detail=f"import: {name} needs another machine")
    return taken


def _entries(bundle: dict[str, bytes]) -> list[tuple[str, dict[str, bytes]]]:
    place, entries = 0, []
    for name, length in json.loads(bundle["index"]):
        entries.append((name, decode(bundle["files"][place : place + length])))
        place += length
    return entries
