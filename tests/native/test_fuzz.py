"""200 random programs, seeded."""

import pytest

from tests.native.fuzz import check


@pytest.mark.parametrize("seed", range(0, 200, 10))
def test_random_programs(seed):
    for offset in range(10):
        reason = check(seed + offset)
        assert reason is None, f"seed {seed + offset}: {reason}"


@pytest.mark.parametrize("seed", [5016])  # a short row kept for a loop over a longer one
def test_programs_that_failed_once(seed):
    reason = check(seed)
    assert reason is None, reason
