"""capture.opcodes.table: every instruction of the normal form and its handler."""

from __future__ import annotations

from typing import Any, Final

from argand.capture.opcodes import calling, containers, control, loads

HANDLED: Final[dict[str, Any]] = {**loads.TABLE, **containers.TABLE, **control.TABLE, **calling.TABLE}
REFUSED: Final[dict[str, Any]] = {**loads.REFUSED, **calling.REFUSED}
HANDLERS: Final[dict[str, Any]] = {**HANDLED, **REFUSED}
