"""report.misses: why the disk cache had no entry: which part of the key is new."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, final

from argand.runtime.disk.format import Damaged
from argand.runtime.disk.keys import read_about
from argand.runtime.disk.store import DiskStore

_MOST: Final = 200  # entries that are looked at


def about(store: DiskStore, key: str) -> dict[str, Any]:
    """What an entry says of itself; nothing when it cannot be read."""
    with contextlib.suppress(Damaged):
        return read_about(store.peek(key))
    return {}


def entries_of(store: DiskStore) -> dict[str, dict[str, Any]]:
    """What all entries say of themselves, by key."""
    return {entry.key: about(store, entry.key) for entry in store.entries()}


@final
class Misses:
    """The reasons of misses, from the entries that were written since and those before; read when first asked for."""

    def __init__(self, directory: Path | None, known: Sequence[str]) -> None:
        self._store = None if directory is None else DiskStore(directory, warn=False)
        self._known, self._before = known[:_MOST], dict[str, dict[str, Any]]()

    def __call__(self, kind: str, key: str) -> str:
        """Why an entry was not there."""
        if self._store is None:
            return "the cache is off"
        if self._known and not self._before:
            self._before = {old: about(self._store, old) for old in self._known}
        return reason(kind, about(self._store, key), self._before)


def reason(kind: str, said: Mapping[str, Any], before: Mapping[str, Mapping[str, Any]]) -> str:
    """What is new in an entry, against the nearest of those before."""
    parts = said.get("parts", {})
    others = [other["parts"] for other in before.values() if other.get("kind") == kind]
    if not parts or not others:
        return "it could not be stored" if not parts else "the first of its kind"
    nearest = max(others, key=lambda other: sum(other.get(k) == v for k, v in parts.items()))
    differing = [name for name in parts if nearest.get(name) != parts[name]]
    if not differing:
        return "it was made for another machine, or damaged"
    return "; ".join(_change(name, str(nearest.get(name)), parts[name]) for name in differing)


# Parts of keys that are hashes: what it means that one is new.
_HASHED: Final = {
    "argand": "another version of Argand wrote what is there",
    "program": "a program that was not compiled before",
    "graph": "a graph that was not compiled before",
}
_IS_HASH: Final = re.compile(r"[0-9a-f]{40,}")


def _change(name: str, old: str, new: str) -> str:
    """What is new in words, or the two texts from shortly before they part."""
    if _IS_HASH.fullmatch(old) and _IS_HASH.fullmatch(new):
        return _HASHED.get(name, f"another {name}")
    parted = (k for k, (a, b) in enumerate(zip(old, new, strict=False)) if a != b)
    start = max(0, next(parted, 0) - 16)
    return f"{name}: {old[start : start + 48]} -> {new[start : start + 48]}"
