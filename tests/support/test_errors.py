"""The error tree: who may catch what, and what the messages say."""

import string

import pytest

from argand.support.errors import (
    ArgandError,
    BackendCompilerFailed,
    Break,
    CaptureBreak,
    CaptureError,
    InternalError,
    InvalidBackend,
    Location,
    OptionError,
    RecompileLimitExceeded,
    UserError,
)

PLACE = Location("model.py", 12, "forward")


def test_the_tree():
    for kind in (OptionError, InvalidBackend, RecompileLimitExceeded, CaptureError):
        assert issubclass(kind, UserError)
    for kind in (UserError, InternalError, BackendCompilerFailed, CaptureBreak):
        assert issubclass(kind, ArgandError)
    assert issubclass(ArgandError, RuntimeError)  # what users of the peer catch


def test_user_error_says_what_where_and_how_to_fix():
    error = UserError("no such thing", where=PLACE, hint="use another")
    assert str(error) == "no such thing\n  at model.py:12 in forward\n  hint: use another"
    assert (error.what, error.where, error.hint) == ("no such thing", PLACE, "use another")
    assert str(UserError("plain")) == "plain"


def test_internal_error_names_the_stage_and_keeps_the_dump():
    error = InternalError("native.fuse", "node used before it is defined", dump="%1 = exp(%7)")
    assert str(error) == "in stage 'native.fuse': node used before it is defined\n%1 = exp(%7)"
    assert error.stage == "native.fuse"
    assert error.dump == "%1 = exp(%7)"


def test_backend_failure_keeps_the_inner_exception():
    inner = ValueError("bad graph")
    error = BackendCompilerFailed("mine", inner)
    assert error.inner_exception is inner
    assert error.backend_name == "mine"
    assert "ValueError: bad graph" in str(error)


def test_break_reason_holds_id_text_and_place():
    stop = CaptureBreak(Break.B004, PLACE, method="Tensor.item")
    assert stop.reason == "B004: Tensor.item reads the value of a tensor"
    assert str(stop).endswith("[model.py:12 in forward]")


def test_fullgraph_error_shows_the_users_stack_and_the_hint():
    outer = Location("train.py", 3, "main")
    error = CaptureError(CaptureBreak(Break.B003, PLACE), (outer, PLACE))
    text = str(error)
    assert text.index("B003") < text.index("train.py:3") < text.index("model.py:12")
    assert Break.B003.hint in text
    assert error.row is Break.B003
    assert "model.py:12" in str(CaptureError(CaptureBreak(Break.B003, PLACE)))


@pytest.mark.parametrize("row", list(Break))
def test_every_row_has_a_text_and_a_hint_and_formats(row):
    assert row.name[0] == "B" and len(row.name) == 4 and row.name[1:].isdigit()
    assert row.text and row.hint
    names = [name for _, name, _, _ in string.Formatter().parse(row.text) if name]
    reason = CaptureBreak(row, **{name: f"the-{name}" for name in names}).reason
    assert all(f"the-{name}" in reason for name in names)
    assert "{" not in reason


def test_rows_are_unique():
    assert len({row.text for row in Break}) == len(Break.__members__)


def test_a_detail_that_was_forgotten_does_not_crash_the_break():
    assert CaptureBreak(Break.B001, opname="NOP").reason.endswith("Python <version>")
