"""Every Python block of the docs runs; the blocks of one page share their names, top to bottom."""

import pathlib
import re

import pytest

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = sorted(p for p in DOCS.glob("*.md") if BLOCK.search(p.read_text()))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
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
    assert PAGES


def test_breaks_page_is_up_to_date():
    from tools import breaks

    assert breaks.PAGE.read_text() == breaks.render()
