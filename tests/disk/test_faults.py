"""The short form of ``tests.disk.faults`` and ``tests.disk.fuzz``."""

from tests.disk.faults import table
from tests.disk.fuzz import fuzz


def test_every_fault_is_survived_with_right_results():
    rows = list(table(step=2048, processes=0))
    assert len(rows) == 8
    for name, count, right, _, _ in rows:
        assert count and count == right, name


def test_hostile_files():
    refused, damaged, read = fuzz(400, seed=1)
    assert refused >= 190 and damaged + read == 200 and damaged > 50
