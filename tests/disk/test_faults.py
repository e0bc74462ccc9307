"""The short form of ``tests.disk.faults`` and ``tests.disk.fuzz``."""

import pytest

from tests.disk.faults import table
from tests.disk.fuzz import fuzz


@pytest.mark.parametrize("dynamic", [False, True])
def test_every_fault_is_survived_with_right_results(dynamic):
    rows = list(table(step=4096 if dynamic else 2048, processes=0, dynamic=dynamic))
    assert len(rows) == 8
    for name, count, right, _, _ in rows:
        assert count and count == right, name


def test_hostile_files():
    refused, damaged, read = fuzz(400, seed=1)
    assert refused >= 190 and damaged + read == 200 and damaged > 50
