"""runtime.disk.stage: a stage of the compiler whose results are kept on disk.

In: a ``Stage``. Out: its result and the key of its entry, or why there is none. Every cache of Argand is asked and
filled here, the same way: the key, the file, its decoding, else the work itself, its encoding, the file.

A stage that has no key, or whose result has no data form, raises ``Unstorable``: that is counted (``cache.bypass``), once.
One that returns a ``Bypass`` says a reason that was counted before or that is no news (the caller's own compiler).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar, Final, Generic, NamedTuple, TypeAlias, TypeVar

from argand.protocol import Bypass
from argand.runtime.disk.format import Damaged
from argand.runtime.disk.store import DiskStore, open_store
from argand.runtime.disk.values import Unstorable
from argand.support import events
from argand.support.options import Options

Sections: TypeAlias = Mapping[str, bytes]
Built = TypeVar("Built")
OFF: Final = Bypass("the cache is off")


class Stage(ABC, Generic[Built]):
    """One piece of work for one input. Methods are called in the order they stand here, each at most once."""

    kind: ClassVar[str]  # of its entries: capture, autograd, graph, object

    @abstractmethod
    def key(self) -> str | Bypass:
        """The key of the file: everything the result depends on. May raise ``Unstorable``."""

    @abstractmethod
    def decode(self, sections: Sections) -> Built | None:
        """The result from a file; None when it is for another case. ``Damaged``: the file is set aside."""

    @abstractmethod
    def build(self) -> Built:
        """The work itself."""

    @abstractmethod
    def encode(self, value: Built) -> Mapping[str, Sections] | Bypass:
        """The files to write, by their keys; the first is the entry, others lead to it. May raise ``Unstorable``."""


class Result(NamedTuple, Generic[Built]):
    """What came out of a stage, and the key of its entry."""

    value: Built
    key: str | Bypass


def run_stage(stage: Stage[Built], options: Options) -> Result[Built]:
    """The result of a stage: from disk when it is there, else built and written."""
    store = open_store(options)
    if store is None:
        return Result(stage.build(), OFF)
    key = or_bypass(stage.kind, stage.key)
    if isinstance(key, Bypass):
        return Result(stage.build(), key)
    found = look_up(store, stage.kind, key, stage.decode)
    if found is not None:
        return Result(found, key)
    value = stage.build()
    files = or_bypass(stage.kind, lambda: stage.encode(value))
    return Result(value, files if isinstance(files, Bypass) else _write(store, files))


def look_up(
    store: DiskStore, kind: str, key: str, decode: Callable[[Sections], Built | None]
) -> Built | None:
    """What a file holds; None when there is none, or none that can be used here."""
    sections = store.get(key, kind=kind)
    if sections is None:
        return None
    try:
        return decode(sections)
    except Damaged as error:
        store.set_aside(key, error)
        return None


def or_bypass(kind: str, ask: Callable[[], Built]) -> Built | Bypass:
    """What is asked for, or the reason it has no data form, which is counted."""
    try:
        return ask()
    except Unstorable as reason:
        events.count("cache.bypass", detail=f"{kind}: {reason}")
        return Bypass(str(reason))


def _write(store: DiskStore, files: Mapping[str, Sections]) -> str | Bypass:
    written = [store.put(key, sections) for key, sections in files.items()]
    return next(iter(files)) if all(written) else Bypass("it could not be written")
