"""Documents say what the tree says: the walk through all stages, the contracts between rooms, the reasons for breaks."""

import importlib
import pathlib
import pkgutil
import re

import pytest
import torch

import argand
from argand.support.errors import Break
from tools import follow

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "argand"
OF_THE_MACHINE = "output_code"  # LLVM text has the vectors of the machine it was made on


def sections(text):
    """The walk by the names of the logs that its parts are from."""
    parts = re.split(r"\*\*[^*]+\*\* \(`ARGAND_LOGS=(\w+)`\)\n", text)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def differing(document, walk):
    """The stages whose text is another one in the document."""
    written, made = sections(document), sections(walk)
    assert list(written) == list(made) == [name for name, _ in follow.STAGES]
    return [
        name
        for name in made
        if name != OF_THE_MACHINE and written[name].strip() != made[name].strip()
    ]


def test_the_walk_in_the_architecture_is_what_the_compiler_does():
    torch.manual_seed(0)
    document, walk = follow.DOCUMENT.read_text(), follow.render()
    document = document[document.index(follow.BEGIN) : document.index(follow.END)]
    assert differing(document, walk) == [], "python -m tools.follow --write"
    assert differing(document.replace("softmax(", "softmin("), walk) == ["graph_code"]


def test_every_reason_for_a_break_is_given_somewhere():
    texts = [path.read_text() for path in SOURCE.rglob("*.py") if path.name != "errors.py"]
    raised = {name for text in texts for name in re.findall(r"\bBreak\.(B\d+)\b", text)}
    assert {row.name for row in Break} - raised == set()


def rooms():
    return {module.name for module in pkgutil.iter_modules([str(SOURCE)])}


def named():
    """What the contracts name by a dotted path that begins with a room."""
    text = (ROOT / "docs" / "contracts.md").read_text()
    found = re.findall(r"`([a-z_]+(?:\.[A-Za-z_]+)+)", text)
    return sorted({name for name in found if name.partition(".")[0] in rooms()})


def exists(name):
    """Whether a path leads to a module, or to something in one."""
    parts = f"argand.{name}".split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            if not hasattr(found, part):
                return part in ("c", "py", "h")  # a file
            found = getattr(found, part)
        return True
    return False


@pytest.mark.parametrize("name", named())
def test_what_the_contracts_name_is_there(name):
    assert exists(name)


def test_names_that_are_gone_are_found():
    assert argand.__name__ == "argand" and len(named()) > 20
    assert not exists("ops.fakes.gone") and not exists("gone.fakes")
