"""Every Python block of the docs and the README runs; the blocks of one page share their names, top to bottom."""

import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [path for path in FILES if BLOCK.search(path.read_text())]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    # Frames are captured from real files only: source positions must exist.
    for number, match in enumerate(BLOCK.finditer(text)):
        if number == 0:
            names = {"__name__": f"docs_{page.stem.replace('-', '_')}"}
        line = text[: match.start()].count("\n") + 1
        exec(compile("\n" * line + match.group(1), str(page), "exec"), names)


def test_there_are_pages():
    assert len(PAGES) > 5


def test_the_reference_is_up_to_date():
    from tools import reference

    for name, render in reference.PAGES.items():
        written, now = (reference.FOLDER / name).read_text(), render()
        # signatures and help texts look a little different elsewhere
        if sys.version_info[:2] == (3, 11):
            assert written == now, f"docs/reference/{name}: run python -m tools.reference --write"
        else:
            assert re.findall("^##+ .*$", written, re.MULTILINE) == re.findall(
                "^##+ .*$", now, re.MULTILINE
            )
