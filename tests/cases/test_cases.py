"""Every text case is what its stage makes today (``python -m tests.cases --update`` rewrites them)."""

import pytest

from tests.cases.harness import File, answer, difference, parse_case, read, read_all
from tests.cases.stages import STAGES

FILES = read_all()
CASES = [case for file in FILES for case in file.cases]


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=f"{case.file}::{case.name}") for case in CASES]
)
def test_case(case):
    shown = difference(case, STAGES[case.stage](case))
    assert not shown, f"{case.file}::{case.name}\n{shown}"


def test_every_stage_has_cases_and_every_file_a_stage():
    assert {file.cases[0].stage for file in FILES} == set(STAGES)


def test_files_are_written_as_they_are_read(tmp_path):
    for file in FILES:
        path = tmp_path / file.name
        path.write_text(file.text())
        assert read(path) == file


def test_a_difference_is_shown_and_becomes_the_new_answer():
    case = parse_case("x.txt", "pass", "name]\n# why\npass: simplify\none\ntwo\n---\none\nthree")
    assert (case.remarks, case.options, case.body) == (("# why",), {"pass": "simplify"}, "one\ntwo")
    assert "-three\n+two" in difference(case, "one\ntwo")
    assert answer(case, "one\ntwo") == "(unchanged)" and answer(case, "four") == "four"
    assert difference(case._replace(expected="(unchanged)"), "one\ntwo") == ""
    assert File("x.txt", "stage: pass", (case,)).text().endswith("one\ntwo\n---\none\nthree\n")
