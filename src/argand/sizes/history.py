"""sizes.history: which sizes and numbers of a frame have had several values.

In: names of places (`x.shape[0]`, `self.length`) in which a frame differed from earlier ones. Out: the
same for capture, which leaves them open the next time (`dynamic=None`).
"""

from __future__ import annotations

import types
import weakref
from dataclasses import field
from typing import final

from argand.support.dataclass import dataclass


@final
@dataclass(slots=True)
class SizeHistory:
    """What is known of the sizes of one code object."""

    varied: set[str] = field(default_factory=set)
    fixed: set[str] = field(default_factory=set)  # a trace could not leave them open


@final
class SizeHistories:
    """The histories of all code objects of a region."""

    def __init__(self) -> None:
        self._of: weakref.WeakKeyDictionary[types.CodeType, SizeHistory]
        self._of = weakref.WeakKeyDictionary()

    def of(self, code: types.CodeType) -> SizeHistory:
        """The history of a code object."""
        return self._of.setdefault(code, SizeHistory())

    def clear(self) -> None:
        """Forget everything."""
        self._of.clear()
