"""Numbers that Python and C share: the headers and the Python classes name the same things in the same order."""

import re
from pathlib import Path

import pytest

from argand.runtime import guard_programs, guards, launch, marks, plan_rows, plans, tables

FOLDER = Path(launch.__file__).parent


def of_c(file, first):
    """The names of an enumeration of C, from its first one on; the last, if it counts them, is left out."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", (FOLDER / file).read_text(), flags=re.DOTALL)
    (names,) = re.findall(rf"enum\s*\w*\s*{{\s*({first}\b[^}}]*)}}", text)
    listed = [name.strip() for name in names.split(",") if name.strip()]
    assert not any("=" in name for name in listed)
    return listed[:-1] if listed[-1].endswith("_COUNT") else listed


def of_python(kind):
    """The same of a class of Python: an enumeration, or constants."""
    rows = {
        name: int(value)
        for name, value in vars(kind).items()
        if name.isupper() and not name.startswith("_")
    }
    assert sorted(rows.values()) == list(range(len(rows)))
    return sorted(rows, key=rows.__getitem__)


@pytest.mark.parametrize(
    ("file", "prefix", "kind"),
    [
        ("guards.h", "OP_", guard_programs.Op),
        ("guards.h", "", guards.GuardKind),
        ("plan.h", "BUFFER_", plans.BufferKind),
        ("plan.h", "STEP_", plans.StepKind),
        ("plan.h", "ARGUMENT_", plans.ArgumentKind),
        ("plan.h", "NESTED_", launch.NestedKind),
        ("plan.h", "PLACE_", launch.PlaceKind),
        ("launch.c", "OF_", marks.OutOfRange),
    ],
)
def test_both_sides_have_the_same_numbers(file, prefix, kind):
    here = of_python(kind)
    assert of_c(file, prefix + here[0]) == [prefix + name for name in here]


def test_constants_of_tables_and_numbers():
    assert of_c("tables.c", "ABSENT") == sorted(
        ["ABSENT", "THE_OBJECT", "OF_CLASS", "EQUAL"], key=vars(tables).get
    )
    spelled = {"sub": "subtract", "mul": "multiply", "floordiv": "floor_divide", "mod": "modulo"}
    spelled |= {"min": "minimum", "max": "maximum"}
    names = [f"NUMBER_{spelled.get(name, name)}".upper() for name in plan_rows._NUMBER_KINDS]
    assert of_c("plan.h", "NUMBER_SIZE") == names
