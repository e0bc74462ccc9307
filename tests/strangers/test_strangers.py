"""What strangers write does in compiled code what it does in eager."""

import pytest

import tests.strangers.programs  # noqa: F401
from tests.strangers.harness import PROGRAMS, check


@pytest.mark.parametrize("name", PROGRAMS)
def test_stranger(name):
    assert check(PROGRAMS[name]) is None
