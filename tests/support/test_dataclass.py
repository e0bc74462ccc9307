"""Our dataclass does what the library's does, and defines a class without compiling anything."""

import copy
import dataclasses
import inspect

import pytest

from argand.support.dataclass import dataclass, fields_of, replace


def both(define):
    """The same class by the library and by us."""
    return [define(dataclasses.dataclass), define(dataclass)]


def point(make, **keywords):
    @make(slots=True, **keywords)
    class Point:
        """A place."""

        x: float
        y: float = 2.0
        names: list[str] = dataclasses.field(default_factory=list, compare=False)
        note: str = dataclasses.field(default="", kw_only=True)

        def __str__(self):
            return f"{self.x}/{self.y}"

        def far(self):
            return self.x + self.y

    return Point


KINDS = [
    {"frozen": frozen, "eq": eq, "kw_only": kw_only}
    for frozen in (False, True)
    for eq in (False, True)
    for kw_only in (False, True)
]


def outcome(call):
    """A result, or what was raised."""
    try:
        return call()
    except Exception as error:
        return type(error), str(error).replace("<locals>.", "")


@pytest.mark.parametrize("keywords", KINDS, ids=str)
def test_the_same_as_the_librarys(keywords):
    answers = []
    for cls in both(lambda make: point(make, **keywords)):
        one, same, other = cls(x=1.0), cls(x=1.0, names=["a"]), cls(x=2.0, note="n")
        answers.append(
            [
                repr(other),
                str(one),
                one.far(),
                one == same,
                one == other,
                one == 3,
                one != same,
                len({one, same}) if keywords["frozen"] or not keywords["eq"] else cls.__hash__,
                hash(one) == hash(same) if cls.__hash__ else None,
                one.names is not cls(x=1.0).names,
                copy.copy(other).note,
                copy.deepcopy(same).names,
                dataclasses.asdict(other),
                dataclasses.replace(other, y=5.0).y,
                [
                    (f.name, f.default is dataclasses.MISSING, f.type)
                    for f in dataclasses.fields(cls)
                ],
                dataclasses.is_dataclass(one),
                cls.__match_args__,
                cls.__qualname__.rsplit(".")[-1],
                outcome(lambda: cls()),
                outcome(lambda: cls(1.0, 2.0, [], "n")),
                outcome(lambda: cls(1.0).y),
                outcome(lambda: cls(x=1.0, wrong=2)),
                outcome(lambda: setattr(one, "x", 7.0)),
                outcome(lambda: delattr(one, "x")),
                outcome(lambda: setattr(one, "other", 7.0))[0] is not None
                if keywords["frozen"]
                else outcome(lambda: setattr(one, "other", 7.0))[0],
                outcome(lambda: one.x),
                inspect.signature(cls).parameters.keys(),
            ]
        )
    library, ours = answers
    assert ours == library


def test_values_are_compared_as_in_a_tuple():
    @dataclass(slots=True, frozen=True)
    class One:
        value: float

    nan = float("nan")
    assert One(nan) == One(nan)
    assert One(nan) != One(float("nan"))
    assert hash(One(3)) == hash((3,))


def test_an_object_that_holds_itself_is_printed():
    @dataclass(slots=True)
    class Holder:
        inside: object = None

    one = Holder()
    one.inside = one
    assert repr(one).endswith("Holder(inside=...)")


def test_own_methods_are_kept():
    @dataclass(slots=True, frozen=True)
    class Own:
        value: int

        def __eq__(self, other):
            return True

        def __hash__(self):
            return 7

        def __repr__(self):
            return "own"

    assert (Own(1) == Own(2), hash(Own(1)), repr(Own(1))) == (True, 7, "own")


def test_replace_keeps_the_rest():
    cls = point(dataclass, frozen=True)
    old = cls(1.0, 3.0, ["a"], note="n")
    new = replace(old, y=4.0)
    assert (new.x, new.y, new.names, new.note) == (1.0, 4.0, ["a"], "n")
    with pytest.raises(TypeError, match="wrong"):
        replace(old, wrong=1)


def test_base_classes_are_refused():
    with pytest.raises(TypeError, match="no base classes"):

        @dataclass(slots=True)
        class Derived(dict):
            value: int


def test_defining_a_class_compiles_nothing(monkeypatch):
    compiled = []
    monkeypatch.setattr(
        "builtins.compile", lambda text, *a, **k: compiled.append(text) or original(text, *a, **k)
    )
    cls = point(dataclass, frozen=True)
    assert not compiled
    assert cls(1.0) == cls(1.0)
    assert [text.split("(")[0] for text in compiled] == ["def __init__", "def __eq__"]
    assert cls(2.0) != cls(1.0)
    assert len(compiled) == 2
    assert [field.name for field in fields_of(cls)] == ["x", "y", "names", "note"]


original = compile
