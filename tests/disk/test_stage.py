"""A stage whose results are kept on disk: asked, built, written, each once, and every bypass with its reason."""

import pytest

from argand.protocol import Bypass
from argand.runtime.disk.format import Damaged
from argand.runtime.disk.stage import OFF, Stage, run_stage
from argand.runtime.disk.store import CacheWarning
from argand.runtime.disk.values import Unstorable
from argand.support import events
from argand.support.options import Options

KEY, OTHER = "ab" * 20, "cd" * 20


class Upper(Stage):
    """Upper case, remembered."""

    kind = "graph"

    def __init__(self, text, key=KEY):
        self.text, self.given, self.calls = text, key, []

    def key(self):
        self.calls.append("key")
        if isinstance(self.given, Exception):
            raise self.given
        return self.given

    def decode(self, sections):
        self.calls.append("decode")
        if "broken" in sections:
            raise Damaged("broken")
        return sections["text"].decode() if "text" in sections else None

    def build(self):
        self.calls.append("build")
        return self.text.upper()

    def encode(self, value):
        self.calls.append("encode")
        if value == "NEVER":
            raise Unstorable("the word never")
        if value == "SILENT":
            return Bypass("told before")
        section = "broken" if value == "BROKEN" else "other" if value == "OTHER" else "text"
        return {KEY: {section: value.encode()}, OTHER: {"leads": KEY.encode()}}


@pytest.fixture
def run(tmp_path):
    options = Options(cache_dir=str(tmp_path))

    def run_once(stage, **changes):
        with events.collect() as seen:
            value, key = run_stage(stage, Options(**{"cache_dir": options.cache_dir, **changes}))
        bypasses = [
            e.detail
            for e in seen.events
            if isinstance(e, events.Count) and e.counter == "cache.bypass"
        ]
        return value, key, stage.calls, bypasses

    return run_once


def test_a_result_is_built_once(run):
    assert run(Upper("a")) == ("A", KEY, ["key", "build", "encode"], [])
    assert run(Upper("b")) == ("A", KEY, ["key", "decode"], [])


def test_without_the_cache_there_is_only_the_work(run):
    assert run(Upper("a"), cache=False) == ("A", OFF, ["build"], [])


def test_a_stage_without_a_key_is_counted(run):
    assert run(Upper("a", Unstorable("no name"))) == (
        "A",
        Bypass("no name"),
        ["key", "build"],
        ["graph: no name"],
    )


def test_a_stage_that_knows_it_has_no_key_is_not(run):
    assert run(Upper("a", Bypass("the user's"))) == (
        "A",
        Bypass("the user's"),
        ["key", "build"],
        [],
    )


@pytest.mark.parametrize(
    ("text", "reason", "counted"),
    [("never", "the word never", ["graph: the word never"]), ("silent", "told before", [])],
)
def test_a_result_without_a_data_form_is_no_entry(run, text, reason, counted):
    for _ in range(2):
        assert run(Upper(text)) == (
            text.upper(),
            Bypass(reason),
            ["key", "build", "encode"],
            counted,
        )


def test_what_does_not_fit_is_built_again(run):
    run(Upper("other"))
    assert run(Upper("a")) == ("A", KEY, ["key", "decode", "build", "encode"], [])
    assert run(Upper("b"))[0] == "A"


def test_what_cannot_be_read_is_set_aside(run):
    run(Upper("broken"))
    with pytest.warns(CacheWarning, match="set aside: broken"):
        assert run(Upper("a")) == ("A", KEY, ["key", "decode", "build", "encode"], [])
    assert run(Upper("b"))[0] == "A"


def test_errors_of_the_work_come_out(run):
    class Failing(Upper):
        def build(self):
            raise ValueError("the work")

    with pytest.raises(ValueError, match="the work"):
        run(Failing("a"))
