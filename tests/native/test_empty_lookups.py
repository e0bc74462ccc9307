"""A lookup where nothing is: torch's own error, and no read of memory that is not there."""

import pytest
import torch
import torch.nn.functional as F

import argand

INDEX = torch.zeros(3, dtype=torch.int64)
PROGRAMS = {
    "embedding": lambda x, i: F.embedding(i, x) + 1,
    "index": lambda x, i: x[i] + 1,
    "index_select": lambda x, i: x.index_select(0, i) + 1,
    "gather": lambda x, i: x.gather(0, i[:, None]) + 1,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_to_look_up(name):
    program, table = PROGRAMS[name], torch.empty(0, 4)
    with pytest.raises((IndexError, RuntimeError)) as expected:
        program(table, INDEX)
    with pytest.raises(expected.type) as found:
        argand.compile(program)(table, INDEX)
    assert str(found.value) == str(expected.value)
