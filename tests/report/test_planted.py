"""Twelve programs with a problem each: the page names its line, its cause and its fix, and nothing but them."""

import html
import re
import runpy

import pytest

import argand
from argand.report.page import render
from tests.report.planted import PLANTED, visible, write


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_the_page_names_cause_and_fix(planted, tmp_path):
    path = tmp_path / "program1.py"
    write(planted, path)
    with argand.report(None, compare=False) as made:
        runpy.run_path(str(path), run_name="__main__")
    made.data["program"] = "program1.py"
    page = render(made.data)
    cards = re.findall(r'<div class="problem">(.*?)\n</div>\n', page, re.DOTALL)
    texts = [html.unescape(card) for card in cards]
    (card,) = [
        text
        for text in texts
        if f'<span class="tag">{planted.kind}</span>' in text and planted.cause in text
    ]
    assert len(cards) == planted.causes
    assert planted.fix in card.partition('class="fix"')[2] and planted.line in card
    assert re.search(r"program1\.py:\d+", card)
    assert planted.cause in visible(page) and "<" not in visible(page).partition("Problems")[0]
    shown = visible(page).partition("\nProblems, by your lines\n")[2]
    assert planted.cause in shown and "___" not in shown.partition("\nKernels beside")[0]
