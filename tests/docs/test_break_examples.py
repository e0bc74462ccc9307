"""Every reason of docs/breaks.md has an example that breaks for that reason, and a rewrite that does not."""

import importlib.util

import pytest

import argand
from argand.support.errors import Break
from tools import breaks
from tools.break_examples import EXAMPLES, WITHOUT


def load(source, folder, name):
    path = folder / f"{name}.py"
    path.write_text(f"import torch\n{source}")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def reasons(module):
    """The ids that a run with graph breaks meets."""
    explained = argand.explain(module.program)(*module.inputs)
    found = {broken.row.name for broken in explained.breaks}
    return found | {text[:4] for text in explained.left_to_python}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_breaks_for_its_reason(name, tmp_path, capsys):
    module = load(EXAMPLES[name].breaks, tmp_path, f"breaks_{name}")
    if name in ("B017", "B021"):  # reasons of fullgraph, and of whole functions
        with pytest.raises(argand.CaptureError, match=name):
            argand.compile(module.program, fullgraph=True)(*module.inputs)
    else:
        assert name in reasons(module)


@pytest.mark.parametrize("name", [name for name, example in EXAMPLES.items() if example.rewrite])
def test_the_rewrite_is_one_graph(name, tmp_path):
    module = load(EXAMPLES[name].rewrite, tmp_path, f"rewritten_{name}")
    argand.compile(module.program, fullgraph=True, backend="eager")(*module.inputs)


def test_every_reason_has_an_example_or_a_word_why_not():
    assert {row.name for row in Break} == EXAMPLES.keys() | WITHOUT.keys()
    assert not EXAMPLES.keys() & WITHOUT.keys()


def test_the_page_is_up_to_date():
    assert breaks.PAGE.read_text() == breaks.render()
