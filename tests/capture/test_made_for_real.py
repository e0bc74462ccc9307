"""Classes, modules and functions that library code makes inside a trace are new at each call, and know who asked."""

import collections
import enum
import types
import typing

import pytest
import torch

import argand


def _simple():
    @enum._simple_enum(enum.Enum)
    class Color:
        CYAN = 1
        MAGENTA = 2

    return Color


_MAKERS = {
    "Enum": lambda: enum.Enum("Color", "CYAN MAGENTA"),
    "IntFlag": lambda: enum.IntFlag("Flags", {"A": 1, "B": 2}, module="elsewhere"),
    "_simple_enum": _simple,
    "decorator": lambda: enum._simple_enum(enum.Enum),
    "NamedTuple": lambda: typing.NamedTuple("Pair", [("a", int)]),
    "TypedDict": lambda: typing.TypedDict("Row", {"a": int}),
    "NewType": lambda: typing.NewType("Length", int),
    "TypeVar": lambda: typing.TypeVar("T"),
    "namedtuple": lambda: collections.namedtuple("Pair", "a b"),
    "ModuleType": lambda: types.ModuleType("made"),
    "type": lambda: type("Made", (), {}),
    "type.__new__": lambda: type.__new__(type, "Made", (), {}),
}


@pytest.mark.parametrize("name", _MAKERS)
def test_what_a_library_makes_is_new_at_each_call(name):
    """The class of the first call was every call's, and `__module__` of many named the compiler."""
    make = _MAKERS[name]

    def program(x):
        y = x * 2
        made = make()
        found = (
            vars(made).pop("mark", None)
            if isinstance(made, types.ModuleType)
            else getattr(made, "mark", None)
        )
        made.mark = "left by an earlier call"
        return y + x, found, made

    compiled = argand.compile(program, backend="eager", options={"strict": True})
    _, _, wanted = program(torch.ones(2))
    made = []
    for _ in range(3):
        result, found, one = compiled(torch.ones(2))
        assert result.tolist() == [3.0, 3.0]
        assert found is None
        assert getattr(one, "__module__", None) == getattr(wanted, "__module__", None)
        made.append(one)
    assert len({*map(id, made)}) == 3


def test_members_of_an_enumeration_made_in_a_trace_are_written_for_one_call():
    """`_value_` of the second call was what the first one wrote."""

    def program(x):
        color = _simple()
        before = color.MAGENTA._value_
        color.MAGENTA._value_ = 9
        return x + before, before

    compiled = argand.compile(program, backend="eager")
    assert [compiled(torch.ones(1))[1] for _ in range(3)] == [2, 2, 2]


def test_what_is_there_needs_no_break():
    """Members, and classes that functions of libraries are given or find, stay where they were."""
    level = enum.IntEnum("level", "LOW HIGH")

    def program(x):
        return (
            x * level(2).value,
            typing.final(level),
            typing.get_origin(list[int]),
            enum.unique(level),
        )

    compiled = argand.compile(program, backend="eager", fullgraph=True)
    assert compiled(torch.ones(1))[0].item() == 2
    assert compiled(torch.ones(1))[1:] == (level, list, level)


class _Wanting(list):
    """A list whose `__new__` wants arguments."""

    def __new__(cls, a, b):
        return super().__new__(cls)

    def __init__(self, a, b):
        super().__init__((a, b))


def test_lists_of_classes_whose_new_wants_arguments_are_read():
    """The copy that a trace works on was made by the class's own `__new__`, without arguments: an internal error."""
    outside = _Wanting(1, 2)

    def program(x):
        outside.append(len(outside))
        return x * sum(outside)

    compiled = argand.compile(program, backend="eager", options={"strict": True})
    assert [compiled(torch.ones(1)).item() for _ in range(2)] == [5.0, 8.0]
    assert outside == [1, 2, 2, 3]


def test_a_class_method_of_what_cannot_be_called():
    """Such a method is no `MethodType(function, owner)`: the compiled function could not make it."""

    def program(x):
        return x + 1, classmethod(1).__get__(1)

    compiled = argand.compile(program, backend="eager", options={"strict": True})
    for _ in range(2):
        method = compiled(torch.ones(1))[1]
        assert (method.__func__, method.__self__) == (1, int)
        with pytest.raises(TypeError, match="'int' object is not callable"):
            method()


def test_a_metaclass_whose_mro_deletes_itself():
    """`type.__new__` ran the user's `mro` while the frame was traced, so it was gone when Python came to it."""

    class Meta(type):
        def __new__(cls, name, bases, attributes):
            return type.__new__(cls, name, bases, attributes)

    def program(x):
        asked = []

        class Once(Meta):
            def mro(cls):
                asked.append(cls.__name__)
                del Once.mro
                return type.mro(cls)

        class Made(metaclass=Once):
            pass

        return x + 1, asked, "mro" in vars(Once)

    compiled = argand.compile(program, backend="eager", options={"strict": True})
    for _ in range(2):
        assert compiled(torch.ones(1))[1:] == program(torch.ones(1))[1:] == (["Made"], False)


@pytest.mark.parametrize(
    "owner, name", [(enum.Enum, "name"), (torch.nn.Module, "__dir__"), (torch.Size, "numel")]
)
def test_what_the_dict_of_a_class_of_a_library_holds_is_itself(owner, name):
    """`Enum.__dict__["name"]` came out of a compiled function as a copy."""

    def program(x):
        found = owner.__dict__[name]
        return x + 1, found, found is owner.__dict__[name]

    compiled = argand.compile(program, backend="eager", options={"strict": True})
    for _ in range(2):
        assert compiled(torch.ones(1))[1] is owner.__dict__[name]
        assert compiled(torch.ones(1))[2]
