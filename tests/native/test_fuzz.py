"""200 random programs, seeded."""

import pytest

from tests.native.fuzz import CHECKED, check, check_typed


@pytest.mark.parametrize("kind", [check, check_typed])
@pytest.mark.parametrize("seed", range(0, 100, 10))
def test_random_programs(seed, kind):
    for offset in range(10):
        reason = kind(seed + offset)
        assert reason is None, f"seed {seed + offset}: {reason}"


@pytest.mark.parametrize("kind", [check, check_typed])
def test_random_programs_with_checked_kernels(kind):
    for seed in range(200, 210):
        reason = kind(seed, CHECKED)
        assert reason is None, f"seed {seed}: {reason}"


@pytest.mark.parametrize(
    "seed",
    [
        5016,  # a short row kept for a loop over a longer one
        1966,  # a result with the holes of a view of a value that is not kept
    ],
)
def test_programs_that_failed_once(seed):
    reason = check(seed)
    assert reason is None, reason


@pytest.mark.parametrize(
    "seed",
    [
        961,  # one value returned twice, with other strides of a dimension of size 1
        756,  # a float minus unsigned bytes
        307,  # select_scatter of a view with holes keeps them
    ],
)
def test_typed_programs_that_failed_once(seed):
    reason = check_typed(seed)
    assert reason is None, reason
