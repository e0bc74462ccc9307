"""Stories of users end in compiled code as they end in eager."""

import pytest

import tests.strangers.stories  # noqa: F401
from tests.strangers.sessions import SESSIONS, tell

OPEN = {"weak_references": "an object is kept alive by what was compiled for it"}
MARKS = {name: pytest.mark.xfail(reason=reason, strict=False) for name, reason in OPEN.items()}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=MARKS.get(name, ())) for name in SESSIONS]
)
def test_session(name):
    assert tell(name, "argand") is None
