"""``python -m tests.cases [--update] [part of a file's or case's name ...]``: run text cases, or rewrite them."""

import sys

import tests.conftest  # noqa: F401  # the cache of the user is not ours
from tests.cases.harness import FOLDER, Case, File, answer, difference, read_all
from tests.cases.stages import STAGES


def chosen(case: Case, parts: list[str]) -> bool:
    return not parts or any(part in f"{case.file}::{case.name}" for part in parts)


def updated(file: File, parts: list[str], update: bool) -> tuple[File, int]:
    """The file with new answers, and how many cases differ; prints the diff of each."""
    cases, differing = [], 0
    for case in file.cases:
        if chosen(case, parts):
            made = STAGES[case.stage](case)
            shown = difference(case, made)
            differing += bool(shown)
            if shown:
                print(f"== {case.file}::{case.name}\n{shown}\n")
                case = case._replace(expected=answer(case, made) if update else case.expected)
        cases.append(case)
    return file._replace(cases=tuple(cases)), differing


def main() -> int:
    parts = [part for part in sys.argv[1:] if part != "--update"]
    update = "--update" in sys.argv
    count = differing = 0
    for file in read_all():
        new, wrong = updated(file, parts, update)
        count += sum(chosen(case, parts) for case in file.cases)
        differing += wrong
        if update and wrong:
            (FOLDER / file.name).write_text(new.text())
    print(f"{count} cases, {differing} {'rewritten' if update else 'differ'}")
    return 1 if differing and not update else 0


if __name__ == "__main__":
    sys.exit(main())
