"""capture.stored.rows: what `save` and `restore` agree on. Imports no more than a warm start needs."""

from __future__ import annotations

from typing import Final

import torch

from argand.runtime import state
from argand.runtime.guards import GuardKind, Source

KINDS: Final[tuple[type, ...]] = Source.__args__  # by number, in this Argand
TENSORS: Final = (torch.Tensor, torch.nn.Parameter)
BY_TOKEN: Final = frozenset((GuardKind.TYPE_IS, GuardKind.ID_IS))
OF_SOURCES: Final = frozenset((GuardKind.NOT_ALIASED, GuardKind.NO_OVERLAP))


def state_text() -> list[str]:
    """torch's global state as text: what guards ask for, and what decides how torch takes operators apart."""
    c = torch._C
    more = (c._get_flash_sdp_enabled(), c._get_mem_efficient_sdp_enabled(), c._get_mkldnn_enabled())
    rest = (c._get_math_sdp_enabled(), torch.get_float32_matmul_precision())
    return [repr(value) for value in (*state.snapshot()[1::2], *more, *rest)]
