"""Stories of users end in compiled code as they end in eager."""

import pytest

import tests.strangers.stories  # noqa: F401
from tests.strangers.sessions import SESSIONS, tell


@pytest.mark.parametrize("name", SESSIONS)
def test_session(name):
    assert tell(name, "argand") is None
