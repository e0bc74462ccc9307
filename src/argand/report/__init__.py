"""report: what the compiler did and how well, for people to read.

``argand.report("out.html")`` calls this module: the room and the function that users type have one name.
"""

from __future__ import annotations

import sys
import types
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from argand.report.session import ReportInTheMaking


class _Callable(types.ModuleType):
    """A module that can be called."""

    def __call__(self, *args: Any, **kwargs: Any) -> AbstractContextManager[ReportInTheMaking]:
        """``report.session.report``."""
        from argand.report.session import report as make  # noqa: PLC0415  # most users of this room need none of it

        return make(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
report: Final = sys.modules[__name__]
