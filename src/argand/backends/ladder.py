"""backends.ladder: the debugging ladder. Each rung adds one stage, so the first that fails is guilty.

What each isolates: docs/backends.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch

from argand.support.errors import ArgandError

_logger = logging.getLogger("argand.backends")


def note_ignored(name: str, keywords: dict[str, Any]) -> None:
    """Tell the user that a debugging backend has no such options."""
    if keywords:
        _logger.warning("backend %r ignores %s", name, ", ".join(sorted(keywords)))


def eager(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **keywords: Any
) -> Callable[..., Any]:
    """Run the captured graph as it is."""
    note_ignored("eager", keywords)
    return gm.forward


def eager_noexcept(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **keywords: Any
) -> Callable[..., Any]:
    """Run the captured graph; an exception in it is reported as unexpected."""
    note_ignored("eager_noexcept", keywords)

    def run(*inputs: Any) -> Any:
        try:
            return gm.forward(*inputs)
        except Exception as error:
            raise ArgandError("unexpected exception while running a captured graph") from error

    return run


def eager_debug(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **keywords: Any
) -> Callable[..., Any]:
    """Run the captured graph under torch's schema checks."""
    note_ignored("eager_debug", keywords)
    # Imported when chosen: it loads torch's fake tensors.
    from torch._subclasses.schema_check_mode import SchemaCheckMode  # noqa: PLC0415

    def run(*inputs: Any) -> Any:
        with SchemaCheckMode():
            return gm.forward(*inputs)

    return run
