"""runtime.marks: what a kernel writes when it meets an index out of range; launch.c makes eager's error of it.

tests/ops/test_value_errors.py sees that the two agree on each row.
"""

from __future__ import annotations

import enum
from typing import Final

# Words of a call (run.h): 1 + the mark, the index, the size of its dimension.
PLACES: Final = (0, 4, 5)


class OutOfRange(enum.IntEnum):
    """What eager says of an index out of range; a kernel marks it as ``64 * this + dim``.

    The dimension is that of the tensor, or for INDEX the place among the indices.
    """

    SELF = 0  # embedding, index_select
    INDEX = 1  # x[index]: a negative one counts from the end
    GATHER = 2
    TARGET = 3  # classes of a loss
    AXIS = 4  # index_select along dimension 1
