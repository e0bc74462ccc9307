"""cli.cache: ``argand cache``: look at the disk cache, clean it, carry it to other machines."""

from __future__ import annotations

import argparse
import contextlib
import runpy
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from argand.cli.tables import write_json
from argand.native.bundles import load_cache_artifacts, save_cache_artifacts
from argand.report.misses import about, entries_of, reason
from argand.runtime.disk.store import DEFAULT_LIMIT, DiskStore, default_directory
from argand.support import events
from argand.support.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("action", choices=tuple(_ACTIONS))
    parser.add_argument("what", nargs="?", default="", help="a KEY, a FILE.py or a BUNDLE")
    parser.add_argument("--max-size", type=_size, default=DEFAULT_LIMIT, help="for gc, e.g. 500M")
    parser.add_argument("--directory", type=Path, default=default_directory())
    parser.add_argument(
        "--json", action="store_true", help="what was found or done as one JSON value"
    )
    parser.add_argument("--key-file", type=Path, help="for bundles: a secret that signs them")


def _size(text: str) -> int:
    unit = {"K": 10, "M": 20, "G": 30}.get(text[-1:].upper())
    return int(float(text[:-1]) * 2**unit) if unit else int(text)


class CacheAnswer(NamedTuple):
    """What an action found or did: for programs, and for people."""

    data: Any
    lines: list[str]


def run(options: argparse.Namespace) -> int:
    """Run one action."""
    if options.action in ("info", "why", "export", "import") and not options.what:
        raise UserError(f"argand cache {options.action} needs a name")
    answer = _ACTIONS[options.action](DiskStore(options.directory), options)
    if options.json:
        write_json(answer.data)
    else:
        print("\n".join(answer.lines))
    return 0


def _ls(store: DiskStore, _: Any) -> CacheAnswer:
    entries = sorted(store.entries(), key=lambda entry: entry.used, reverse=True)
    rows, lines = [], []
    for entry in entries:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used))
        said = about(store, entry.key)
        kind = said.get("kind", "?")
        sizes = said.get("sizes") or said.get("parts", {}).get("sizes", "")  # those that are open
        rows.append(
            {
                "key": entry.key,
                "kind": kind,
                "bytes": entry.size,
                "used": entry.used,
                "sizes": sizes,
            }
        )
        lines.append(
            f"{entry.key}  {kind:<9} {entry.size / 1024:>9.1f} KiB  used {used}  {sizes}".rstrip()
        )
    return CacheAnswer(
        rows, [*lines, f"{len(entries)} entries, {sum(e.size for e in entries) / 2**20:.1f} MiB"]
    )


def _info(store: DiskStore, options: Any) -> CacheAnswer:
    found = [entry for entry in store.entries() if entry.key.startswith(options.what)]
    if len(found) != 1:
        raise UserError(f"{len(found)} entries begin with {options.what!r}")
    said = about(store, found[0].key)
    head = f"{found[0].key}  {said.get('kind', '?')}  {found[0].size} bytes"
    parts = {**said.pop("parts", {}), **said}
    sections = {name: len(data) for name, data in store.peek(found[0].key).items()}
    data = {"key": found[0].key, "bytes": found[0].size, "parts": parts, "sections": sections}
    lines = [f"  {name}: {value}" for name, value in parts.items()]
    lines += [f"  section {name}: {length} bytes" for name, length in sections.items()]
    return CacheAnswer(data, [head, *lines])


def _why(store: DiskStore, options: Any) -> CacheAnswer:
    """Run a program, and name the part of the key that made each miss one."""
    before = entries_of(store)
    with events.collect() as heard, contextlib.suppress(SystemExit):
        runpy.run_path(options.what, run_name="__main__")
    counts = [e for e in heard.events if isinstance(e, events.Count)]
    hits = sum(e.counter == "cache.hit" for e in counts)
    rows = []
    for event in counts:
        if event.counter == "cache.bypass":
            rows.append({"what": "bypass", "why": event.detail})
        elif event.counter == "cache.miss":
            kind, key, why = (*event.detail.split(": ", 2), "")[:3]
            name = key[:12] if len(key) == 40 else key  # captures that do not fit tell the function
            why = why or reason(kind, about(store, key), before)
            rows.append({"what": "miss", "kind": kind, "key": name, "why": why})
    lines = [
        f"bypass  {row['why']}"
        if row["what"] == "bypass"
        else f"miss    {row['kind']} {row['key']}: {row['why']}"
        for row in rows
    ]
    return CacheAnswer({"hits": hits, "misses": rows}, [*lines, f"{hits} hits"])


def _secret(options: Any) -> bytes:
    return options.key_file.read_bytes() if options.key_file else b""


def _export(store: DiskStore, options: Any) -> CacheAnswer:
    data = save_cache_artifacts(key=_secret(options), directory=options.directory)
    Path(options.what).write_bytes(data)
    return CacheAnswer(
        {"file": options.what, "bytes": len(data)}, [f"{options.what}: {len(data) / 2**20:.1f} MiB"]
    )


def _import(store: DiskStore, options: Any) -> CacheAnswer:
    data = Path(options.what).read_bytes()
    taken = load_cache_artifacts(data, key=_secret(options), directory=options.directory)
    return CacheAnswer({"taken": taken}, [f"{taken} entries taken"])


def _removed(count: int) -> CacheAnswer:
    return CacheAnswer({"removed": count}, [f"{count} entries removed"])


_ACTIONS: Final[Mapping[str, Callable[[DiskStore, Any], CacheAnswer]]] = {
    "ls": _ls,
    "info": _info,
    "why": _why,
    "export": _export,
    "import": _import,
    "gc": lambda store, options: _removed(store.collect_garbage(options.max_size)),
    "clear": lambda store, _: _removed(store.clear()),
    "dir": lambda store, _: CacheAnswer(
        {"directory": str(store.directory)}, [str(store.directory)]
    ),
}
