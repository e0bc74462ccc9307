"""The listings in docs/capture-resume.md are what the code prints."""

import re
from pathlib import Path

import pytest

from argand.bytecode import decode, live_locals, make_resume
from argand.bytecode.version import DIALECT

TEXT = Path(__file__).parents[2].joinpath("docs", "capture-resume.md").read_text()


@pytest.mark.skipif(
    DIALECT.null_last, reason="the listings show the other order of a call's callable and NULL"
)
def test_listings_are_real():
    source = re.search(r"```python\n(.*?)```", TEXT, re.DOTALL)[1]
    before, after = re.findall(r"```\n(   0 .*?)\n```", TEXT, re.DOTALL)
    namespace = {}
    exec(compile(source, "step.py", "exec"), namespace)
    code = namespace["step"].__code__
    assert str(decode(code)) == before
    assert live_locals(code, 13) == ("y", "x")
    resume = make_resume(code, 13, stack=(True, True), bound=("y", "x"))
    assert str(decode(resume)) == after
    assert f"a function `{resume.co_name}(" in TEXT
