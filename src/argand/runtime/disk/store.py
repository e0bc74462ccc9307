"""runtime.disk.store: cache entries as files of the user's own directory.

In: keys (hex) and sections. Out: sections, or None for a miss. Nothing here ever fails the caller: what
cannot be read or written is a miss with one warning, and a damaged entry is set aside. Errors that pass
(no file handles, no memory, a network disk that is away) leave the entry where it is. Files are
written to a temporary name and renamed, so readers see whole files only.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import stat
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple, final

from argand.runtime.disk.format import FORMAT, Damaged, decode, encode
from argand.support import events
from argand.support.locks import make_lock
from argand.support.options import Options, read_environment
from argand.support.platform import user_folder

MAX_FILE_SIZE: Final = 1 << 30  # a larger one is not ours
DEFAULT_LIMIT: Final = 4 << 30  # bytes kept by collect_garbage unless another limit is given
SHOWN_FROM_DISK: Final = frozenset(("cache", "stages", "recompiles"))  # logs that need no compile
SHOWN_BESIDES: Final = "report"
COLLECT_EVERY: Final = 64  # entries written between two looks at the size


class CacheWarning(UserWarning):
    """The disk cache could not be used; the program continues without it."""


class EntryInfo(NamedTuple):
    """One file of the cache."""

    key: str
    path: Path
    size: int
    used: float  # time of the last hit


def default_directory() -> Path:
    """``$XDG_CACHE_HOME/argand``, or ``~/.cache/argand``; without a home, a directory of this user in ``/tmp``."""
    home = read_environment().cache_home
    if home:
        return Path(home) / "argand"
    try:
        return Path.home() / ".cache" / "argand"
    except RuntimeError:  # a container whose user has no name: no HOME, no line in /etc/passwd
        return user_folder()  # Store takes it only when it is this user's alone


@functools.cache
def _store_at(directory: str, blind: bool = False) -> DiskStore:
    return DiskStore(Path(directory) if directory else default_directory(), blind=blind)


def open_store(options: Options) -> DiskStore | None:
    """The cache the options name, one object per directory.

    None when they turn it off, and while the user wants to be shown what only a compile makes. A report is about both
    (``SHOWN_BESIDES``): what is there is counted, but not used.
    """
    if not options.cache:
        return None
    shown = events.shown()
    if SHOWN_BESIDES in shown:
        return _store_at(options.cache_dir, True)
    return _store_at(options.cache_dir) if shown <= SHOWN_FROM_DISK else None


@final
class DiskStore:
    """A directory of cache entries, private to the user."""

    def __init__(self, directory: Path, *, warn: bool = True, blind: bool = False) -> None:
        self._blind = blind  # what is found is counted and not given
        self.directory = directory / f"v{FORMAT}"
        self._lock = make_lock()
        self._warned: set[str] = set()
        self._silent = not warn
        self._unread: set[str] = set()  # could not be read, may be good: not written over
        self._written = 0
        self._usable = self._prepare()

    # --- reading and writing ---------------------------------------------------------------------

    def get(self, key: str, kind: str = "entry") -> dict[str, bytes] | None:
        """The sections stored under a key; ``kind`` for the counters."""
        if not self._usable:
            return None
        path = self._path(key)
        try:
            data = _read_own_file(path)
            sections = decode(data)
        except FileNotFoundError:
            self._unread.discard(key)
            events.count("cache.miss", detail=f"{kind}: {key}")
            return None
        except (Damaged, OSError, MemoryError) as error:
            if _is_the_files_fault(error):
                self.set_aside(key, error)
            else:
                self._unread.add(key)
                self._warn("read", f"cannot read the cache: {error}")
            events.count("cache.miss", detail=f"{kind}: {key}: {error}")
            return None
        self._unread.discard(key)
        with contextlib.suppress(OSError):
            os.utime(path)
        events.count("cache.hit", detail=f"{kind}: {key}")
        return None if self._blind else sections

    def peek(self, key: str) -> dict[str, bytes]:
        """The same for a look from outside: nothing is counted, nothing counts as used."""
        with contextlib.suppress(Damaged, OSError, ValueError):
            return decode(_read_own_file(self._path(key)))
        return {}

    def put(self, key: str, sections: Mapping[str, bytes]) -> bool:
        """Store sections under a key; False when it could not be done."""
        if not self._usable or key in self._unread:
            return False
        path = self._path(key)
        temporary = ""
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(prefix=".writing-", dir=path.parent)
            with os.fdopen(handle, "wb") as file:
                # no fsync: it takes longer than many a compile, and the digest tells what a power cut has left
                file.write(encode(sections))
            os.replace(temporary, path)
        except OSError as error:
            if temporary:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
            self._warn("write", f"cannot write to the cache: {error}")
            return False
        events.count("cache.saved", detail=key)
        self._collect_now_and_then()
        return True

    def remove(self, key: str) -> None:
        """Forget an entry, if it is there."""
        with contextlib.suppress(OSError):
            self._path(key).unlink()

    # --- housekeeping ----------------------------------------------------------------------------

    def entries(self) -> Iterator[EntryInfo]:
        """Every entry, in no order."""
        for path in self.directory.glob("??/*"):
            try:
                facts = path.stat()
            except OSError:
                continue
            if not path.name.startswith(".") and path.suffix == "":
                yield EntryInfo(path.name, path, facts.st_size, facts.st_mtime)

    def collect_garbage(self, limit: int = DEFAULT_LIMIT) -> int:
        """Remove the least recently used entries beyond ``limit`` bytes; how many went.

        What killed writers left behind, and what was set aside, goes after an hour.
        """
        kept = removed = 0
        for path in (*self.directory.glob("??/.writing-*"), *self.directory.glob("??/*.damaged")):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < time.time() - 3600:
                    path.unlink()
        for entry in sorted(self.entries(), key=lambda e: e.used, reverse=True):
            kept += entry.size
            if kept > limit:
                with contextlib.suppress(OSError):
                    entry.path.unlink()
                    removed += 1
        return removed

    def _collect_now_and_then(self) -> None:
        """Keep to the limit: once per process that writes, and again every so many entries."""
        with self._lock:
            due = self._written % COLLECT_EVERY == 0
            self._written += 1
        if due:
            self.collect_garbage()

    def clear(self) -> int:
        """Remove every entry, what was set aside and what writers left behind; entries removed."""
        removed = 0
        for path in self.directory.glob("??/*"):
            with contextlib.suppress(OSError):
                path.unlink()
                removed += path.suffix == "" and not path.name.startswith(".")
        return removed

    # --- trust -----------------------------------------------------------------------------------

    def _prepare(self) -> bool:
        """Make the directory; refuse one that others can write or that is not ours."""
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            for directory in (self.directory.parent, self.directory):
                facts = directory.lstat()
                if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid():
                    self._warn("owner", f"the cache directory {directory} is not the user's own")
                    return False
                if facts.st_mode & 0o022:
                    self._warn("mode", f"others may write to the cache directory {directory}")
                    return False
        except OSError as error:
            self._warn("directory", f"no cache directory: {error}")
            return False
        return True

    def _path(self, key: str) -> Path:
        if not key or not all(c in "0123456789abcdef" for c in key):
            raise ValueError(f"a cache key is hexadecimal, got {key!r}")
        return self.directory / key[:2] / key

    def set_aside(self, key: str, error: Exception) -> None:
        """Put an entry that cannot be used out of the way."""
        path = self._path(key)
        with contextlib.suppress(OSError):
            os.replace(path, path.with_suffix(".damaged"))
        self._warn("damaged", f"a cache entry was set aside: {error} ({path.name})")

    def _warn(self, kind: str, text: str) -> None:
        with self._lock:
            first = kind not in self._warned and not self._silent
            self._warned.add(kind)
        events.artifact("cache", lambda: text)
        if first:
            warnings.warn(f"argand: {text}", CacheWarning, stacklevel=3)


# What opening a file says of the file itself: a link, a directory, somebody else's.
_OF_THE_FILE: Final = frozenset((errno.ELOOP, errno.EISDIR, errno.EACCES, errno.EPERM))


def _is_the_files_fault(error: Exception) -> bool:
    """Whether the next attempt to read would fail as this one did."""
    return isinstance(error, Damaged) or (
        isinstance(error, OSError) and error.errno in _OF_THE_FILE
    )


def _read_own_file(path: Path) -> bytes:
    """The bytes of a regular file of this user, opened without following links."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        facts = os.fstat(file.fileno())
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.getuid():
            raise Damaged("not a file of this user")
        if facts.st_mode & 0o022:
            raise Damaged("others may write to it")
        if facts.st_size > MAX_FILE_SIZE:
            raise Damaged(f"{facts.st_size} bytes is too large")
        return file.read()
