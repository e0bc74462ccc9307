"""Read, run and rewrite files of text cases."""

import difflib
import pathlib
import re
from typing import NamedTuple

FOLDER = pathlib.Path(__file__).parent
# others are inputs of programs
OPTION = re.compile(r"^(pass|fusion|max_fusion|show|sizes|target): (.*)$")
SAME = "(unchanged)"


class Case(NamedTuple):
    """One case: where it stands, what it is run with, and what should come out."""

    file: str
    stage: str
    name: str
    remarks: tuple[str, ...]
    options: dict[str, str]
    body: str
    expected: str

    def text(self) -> str:
        """The case as it stands in a file."""
        head = [
            f"[case {self.name}]",
            *self.remarks,
            *(f"{k}: {v}" for k, v in self.options.items()),
        ]
        return "\n".join([*head, self.body, "---", self.expected])


class File(NamedTuple):
    """A file: the lines before its first case, and its cases."""

    name: str
    head: str
    cases: tuple[Case, ...]

    def text(self) -> str:
        """The file as it stands on disk."""
        return "\n\n".join([self.head, *(case.text() for case in self.cases)]) + "\n"


def parse_case(file: str, stage: str, block: str) -> Case:
    name, _, rest = block.partition("]\n")
    body, found, expected = (
        rest.partition("\n---\n") if "\n---\n" in rest else rest.partition("\n---")
    )
    assert found, f"{file}: case {name} has no line ---"
    lines = body.split("\n")
    remarks: list[str] = []
    options: dict[str, str] = {}
    while lines and (lines[0].startswith("#") or OPTION.match(lines[0])):
        line = lines.pop(0)
        option = OPTION.match(line)
        if option is None:
            remarks.append(line)
        else:
            options[option[1]] = option[2]
    return Case(
        file,
        stage,
        name,
        tuple(remarks),
        options,
        "\n".join(lines).strip("\n"),
        expected.strip("\n"),
    )


def read(path: pathlib.Path) -> File:
    """The cases of a file; names are unique in it."""
    head, *blocks = re.split(r"^\[case ", path.read_text(), flags=re.M)
    stage = head.split("\n")[0].removeprefix("stage: ")
    cases = tuple(parse_case(path.name, stage, block) for block in blocks)
    assert len({case.name for case in cases}) == len(cases), f"{path.name}: two cases have one name"
    return File(path.name, head.rstrip("\n"), cases)


def read_all(folder: pathlib.Path = FOLDER) -> list[File]:
    """Every file of cases."""
    return [read(path) for path in sorted(folder.glob("*.txt"))]


def answer(case: Case, made: str) -> str:
    """What belongs under the line of a case: an answer equal to the program is not written twice."""
    return SAME if made == case.body else made


def difference(case: Case, made: str) -> str:
    """A diff of what is expected and what came out; empty when they are equal."""
    sides = (case.body if case.expected == SAME else case.expected), made
    lines = difflib.unified_diff(
        *(side.split("\n") for side in sides), "expected", "made", lineterm="", n=3
    )
    return "\n".join(lines)
