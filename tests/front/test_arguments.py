"""The newer arguments of torch.compile, and the version."""

import importlib.metadata

import pytest
import torch

import argand
from argand.cli.main import main
from argand.support import events


def test_version(capsys):
    assert argand.__version__ == importlib.metadata.version("argand")
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"argand {argand.__version__}\n"


def test_a_name_is_what_events_call_the_region():
    def program(x):
        return x + 1

    with events.collect() as seen:
        argand.compile(program, name="encoder")(torch.ones(2))
        argand.compile(program)(torch.ones(2))
    named = [
        e.detail for e in seen.events if isinstance(e, events.StageStart) and e.stage == "compile"
    ]
    assert [detail.partition(": ")[0] == "encoder" for detail in named] == [True, False]


def test_recompile_limit_is_an_argument_too():
    program = argand.compile(
        lambda x, n: x + n, recompile_limit=2, dynamic=False, isolate_recompiles=True
    )
    with pytest.warns(argand.ArgandWarning, match=r"compiled 2 times"):
        for width in (1, 2, 3):
            assert program(torch.ones(width), 1).tolist() == [2.0] * width


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"recompile_limit": "many"}, "recompile_limit"),
        ({"name": 3}, "name"),
        ({"isolate_recompiles": 1}, "isolate_recompiles"),
        ({"shapes_spec": object()}, "mark_dynamic"),
    ],
)
def test_wrong_arguments_are_refused_at_once(keywords, message):
    with pytest.raises(argand.ArgandError, match=message):
        argand.compile(lambda x: x, **keywords)
