"""After a change of anything a program could have read, the next call is right."""

import pytest

from tests.stale import rows_classes, rows_constants, rows_functions, rows_state, rows_tensors  # noqa: F401, they enter rows
from tests.stale.machine import ROWS, check, check_random

_MIXTURES = 40


@pytest.mark.parametrize("name", ROWS)
def test_a_change_is_seen(name):
    check(name)


@pytest.mark.parametrize("seed", range(_MIXTURES))
def test_changes_that_come_and_go(seed):
    check_random(seed)


def test_there_are_many_kinds_of_change():
    assert len(ROWS) >= 900
