"""Events: spans, counters and artefacts, and what they cost when nobody listens."""

import threading

import pytest

from argand.support import events


def test_nobody_listens_nothing_is_made():
    assert not events._subscriptions
    events.artifact("guards", lambda: pytest.fail("rendered for nobody"))
    events.count("capture.graphs")
    with events.stage("capture"):
        pass


def test_a_stage_is_timed_with_its_nested_stages():
    with events.collect() as heard:
        with events.stage("autograd", "graph 1"):
            with events.stage("autograd.partition"):
                pass
            with events.stage("autograd.partition"):
                pass
    kinds = [type(event).__name__ for event in heard.events]
    assert kinds == ["StageStart", "StageStart", "StageEnd", "StageStart", "StageEnd", "StageEnd"]
    table = heard.seconds()
    assert set(table) == {"autograd", "autograd.partition"}
    assert table["autograd"] >= table["autograd.partition"] >= 0
    assert heard.events[0] == events.StageStart("autograd", "graph 1")


def test_a_failing_stage_ends_and_says_so():
    with events.collect() as heard, pytest.raises(ValueError):
        with events.stage("native"):
            raise ValueError
    assert heard.events[-1].failed


def test_counters_add_up():
    with events.collect() as heard:
        events.count("capture.graphs")
        events.count("capture.graphs", 2, "two more")
        events.count("cache.hit")
    assert heard.total("capture.graphs") == 3
    assert heard.total("unknown") == 0


def test_artefacts_are_rendered_when_asked_for():
    made = []
    with events.collect() as heard:
        events.artifact("graph_code", lambda: made.append(1) or "code")
    assert not made
    assert heard.texts("graph_code") == ["code"]
    assert heard.texts("guards") == []


def test_unsubscribing():
    heard = []
    stop = events.subscribe(heard.append)
    events.count("one")
    stop()
    stop()
    events.count("two")
    assert [event.counter for event in heard] == ["one"]
    assert not events._subscriptions


def test_collectors_nest_and_hear_other_threads():
    with events.collect() as outer, events.collect() as inner:
        thread = threading.Thread(target=lambda: events.count("there"))
        thread.start()
        thread.join()
    assert outer.total("there") == inner.total("there") == 1


def test_many_threads_subscribe_at_once():
    def work():
        for _ in range(200):
            with events.collect() as heard:
                events.count("mine", detail=threading.current_thread().name)
            names = [event.detail for event in heard.events]
            assert threading.current_thread().name in names

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not events._subscriptions
