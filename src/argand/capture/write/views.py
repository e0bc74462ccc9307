"""capture.write.views: how views of dicts are made again: of the dict they are views of, not of what it held."""

from __future__ import annotations

import collections
import gc
from typing import Any, Final

_NAMES: Final = ("keys", "values", "items")
VIEWS: Final[dict[type, Any]] = {
    **{type(getattr({}, name)()): getattr(dict, name) for name in _NAMES},
    **{
        type(getattr(collections.OrderedDict(), name)()): getattr(collections.OrderedDict, name)
        for name in _NAMES
    },
}


def view_of(view: Any) -> tuple[Any, Any]:
    """What makes such a view, and the dict itself: `view.mapping` is a proxy of it."""
    (mapping,) = gc.get_referents(view)
    return VIEWS[type(view)], mapping
