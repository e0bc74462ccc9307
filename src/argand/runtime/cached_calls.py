"""runtime.cached_calls: the call of a function with a cache, as guards make it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import torch

from argand.runtime import _native


@final
@dataclass(frozen=True, slots=True)
class CallWith:
    """Calls a function with constants; `kinds` keeps 1 and 1.0 apart."""

    args: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...]
    kinds: str

    __name__ = "cached"

    def __call__(self, function: Any) -> Any:
        """What the function gives. Dispatch is off: what a cache keeps must be no fake."""
        with torch._C._DisableTorchDispatch():
            return _native.disabled(function)(*self.args, **dict(self.keywords))
