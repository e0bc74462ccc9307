"""capture.stored.rows: what `save` and `restore` agree on. Imports no more than a warm start needs."""

from __future__ import annotations

from typing import Final

import torch

from argand.runtime import state
from argand.runtime.disk.keys import state_part
from argand.runtime.guards import GuardKind, Source

KINDS: Final[tuple[type, ...]] = Source.__args__  # by number, in this Argand
TENSORS: Final = (torch.Tensor, torch.nn.Parameter)
BY_TOKEN: Final = frozenset((GuardKind.TYPE_IS, GuardKind.ID_IS))


def state_text() -> list[str]:
    """torch's global state as text: what guards ask for, and what decides how torch takes operators apart."""
    return [*map(repr, state.snapshot()[1::2]), state_part()]
