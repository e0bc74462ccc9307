"""Rows: values of all kinds in holders of all kinds."""

import array
import collections
import dataclasses
import decimal
import enum
import fractions
import functools
import pathlib
import re
import sys
import types
import typing

import numpy as np
import torch

from tests.stale.machine import ROWS, World, ramp, row, rows


class Thing:
    """Attributes, nothing else."""

    fixed = 1

    def __init__(self, value=None):
        self.value = value


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


class Grown(int):
    """A number with a name."""


class Text(str):
    pass


class Weight(float):
    def __eq__(self, other):
        return True

    def __hash__(self):
        return 1


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Bits(enum.Flag):
    A = 1
    B = 2


@dataclasses.dataclass
class Record:
    value: typing.Any


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: typing.Any


class Pair(typing.NamedTuple):
    value: typing.Any
    other: int = 0


# name -> before, after
VALUES = {
    "int": (1, 2),
    "float": (0.5, 0.25),
    "bool": (True, False),
    "bool_to_int": (True, 1),
    "int_to_float": (1, 1.0),
    "negative_zero": (0.0, -0.0),
    "nan": (1.0, float("nan")),
    "none": (None, 3),
    "string": ("a", "b"),
    "bytes": (b"a", b"b"),
    "complex": (1j, 2j),
    "tuple": ((1, 2), (1, 3)),
    "tuple_type": ((1, 2), (1.0, 2)),
    "list": ([1, 2], [1, 3]),
    "long_list": (list(range(20)), [*range(19), 0]),
    "dict": ({"a": 1}, {"a": 2}),
    "dict_order": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "dict_none_key": ({None: 1}, {None: 2}),
    "set": ({1, 2}, {1, 3}),
    "frozenset": (frozenset({1}), frozenset({2})),
    "frozenset_of_functions": (frozenset({torch.add}), frozenset({torch.mul})),
    "set_of_types": ({int, float}, {int, str}),
    "deque": (collections.deque([1, 2]), collections.deque([1, 3])),
    "deque_maxlen": (collections.deque([1], 3), collections.deque([1], 4)),
    "ordered": (collections.OrderedDict(a=1, b=2), collections.OrderedDict(b=2, a=1)),
    "counter": (collections.Counter("aab"), collections.Counter("abb")),
    "range": (range(2), range(3)),
    "slice": (slice(1), slice(2)),
    "size": (torch.Size([1]), torch.Size([2])),
    "dtype": (torch.float32, torch.float64),
    "device": (torch.device("cpu"), torch.device("meta")),
    "layout": (torch.strided, torch.sparse_coo),
    "type": (int, float),
    "enum": (Colour.RED, Colour.BLUE),
    "int_enum": (Level.LOW, Level.HIGH),
    "flag": (Bits.A, Bits.A | Bits.B),
    "int_subclass": (Grown(3), Grown(4)),
    "str_subclass": (Text("a"), Text("b")),
    "float_subclass": (Weight(1.0), Weight(2.0)),
    "int_to_subclass": (3, Grown(3)),
    "numpy_int": (np.int64(3), np.int64(4)),
    "numpy_int_type": (np.int64(3), np.int32(3)),
    "numpy_float": (np.float64(1.5), np.float64(2.5)),
    "numpy_float32": (np.float32(1.5), np.float32(2.5)),
    "numpy_bool": (np.bool_(True), np.bool_(False)),
    "numpy_nan": (np.float32(1.5), np.float32("nan")),
    "numpy_dtype": (np.dtype("int32"), np.dtype("int64")),
    "decimal": (decimal.Decimal(1), decimal.Decimal(2)),
    "fraction": (fractions.Fraction(1, 2), fractions.Fraction(1, 3)),
    "path": (pathlib.PurePosixPath("a"), pathlib.PurePosixPath("b")),
    "pattern": (re.compile("a"), re.compile("b")),
    "generic_alias": (list[int], list[str]),
    "named_tuple": (Pair(1), Pair(2)),
    "ellipsis": (..., None),
}


@rows("attribute", VALUES)
def _attribute(before, after):
    thing = Thing(before)
    return World(
        lambda t: (t * 2, thing.value),
        lambda: setattr(thing, "value", after),
        lambda: setattr(thing, "value", before),
    )


def use(value):
    """Something computed of a value in Python."""
    return f"{value!r} {isinstance(value, int)} {type(value).__name__} {bool(value) if value is not None else 0}"


@rows("used", VALUES)
def _used(before, after):
    thing = Thing(before)

    def change(value):
        thing.value = value

    return World(lambda t: (t * 2, use(thing.value)), lambda: change(after), lambda: change(before))


@rows("argument", VALUES)
def _argument(before, after):
    box = [before]
    return World(
        lambda t, v: (t * 2, use(v), v),
        lambda: box.__setitem__(0, after),
        lambda: box.__setitem__(0, before),
        arguments=lambda: (ramp(), box[0]),
    )


def _attribute_of(owner, name="value"):
    return lambda value: setattr(owner, name, value)


def holder(make):
    """A holder: (read, write) of one value; entered with a few kinds of values."""
    for kind in ("int", "float", "string", "tuple", "list", "none", "int_subclass", "numpy_int"):
        before, after = VALUES[kind]

        def world(make=make, before=before, after=after):
            read, write = make(before)
            return World(lambda t: (t * 2, read()), lambda: write(after), lambda: write(before))

        ROWS[f"in_{make.__name__}_{kind}"] = world
    return make


GLOBAL = None


@holder
def global_(value):
    globals()["GLOBAL"] = value
    return (lambda: GLOBAL), lambda new: globals().__setitem__("GLOBAL", new)


@holder
def cell(value):
    def write(new):
        nonlocal value
        value = new

    return (lambda: value), write


@holder
def slot(value):
    thing = Slotted(value)
    return (lambda: thing.value), _attribute_of(thing)


@holder
def class_attribute(value):
    class Kind:
        pass

    Kind.value = value
    return (lambda: Kind.value), _attribute_of(Kind)


@holder
def class_attribute_of_instance(value):
    class Kind:
        pass

    class Below(Kind):
        pass

    Kind.value = value
    thing = Below()
    return (lambda: thing.value), _attribute_of(Kind)


@holder
def metaclass_attribute(value):
    class Meta(type):
        pass

    class Kind(metaclass=Meta):
        pass

    Meta.value = value
    return (lambda: Kind.value), _attribute_of(Meta)


@holder
def shadowed_class_attribute(value):
    """An instance without the attribute gains it."""

    class Kind:
        pass

    Kind.value = value
    thing = Kind()
    first = value

    def write(new):
        if new is first:
            thing.__dict__.pop("value", None)
        else:
            thing.value = new

    return (lambda: thing.value), write


@holder
def list_item(value):
    held = [0, value, 0]
    return (lambda: held[1]), lambda new: held.__setitem__(1, new)


@holder
def dict_item(value):
    held = {"a": 0, "b": value}
    return (lambda: held["b"]), lambda new: held.__setitem__("b", new)


@holder
def dict_item_under_a_tuple(value):
    held = {(1, "a"): value, 2.5: 0}
    return (lambda: held[1, "a"]), lambda new: held.__setitem__((1, "a"), new)


@holder
def dict_item_under_a_type(value):
    held = {int: value, str: 0}
    return (lambda: held[int]), lambda new: held.__setitem__(int, new)


@holder
def default_dict_item(value):
    held = collections.defaultdict(int, a=value)
    return (lambda: held["a"]), lambda new: held.__setitem__("a", new)


@holder
def nested_item(value):
    held = {"a": [(0, {"b": value})]}
    return (lambda: held["a"][0][1]["b"]), lambda new: held["a"][0][1].__setitem__("b", new)


@holder
def deque_item(value):
    held = collections.deque([0, value])
    return (lambda: held[1]), lambda new: held.__setitem__(1, new)


@holder
def user_list_item(value):
    class Own(list):
        pass

    held = Own([value])
    return (lambda: held[0]), lambda new: held.__setitem__(0, new)


@holder
def user_dict_attribute(value):
    class Own(dict):
        pass

    held = Own(a=1)
    held.value = value
    return (lambda: held.value), _attribute_of(held)


@holder
def record(value):
    held = Record(value)
    return (lambda: held.value), _attribute_of(held)


@holder
def frozen_record(value):
    box = [Frozen(value)]
    return (lambda: box[0].value), lambda new: box.__setitem__(0, Frozen(new))


@holder
def named_tuple_in_a_list(value):
    box = [Pair(value)]
    return (lambda: box[0].value), lambda new: box.__setitem__(0, Pair(new))


@holder
def namespace(value):
    held = types.SimpleNamespace(value=value)
    return (lambda: held.value), _attribute_of(held)


@holder
def module(value):
    held = types.ModuleType("held")
    held.value = value
    return (lambda: held.value), _attribute_of(held)


@holder
def imported_module(value):
    held = types.ModuleType("stale_held")
    held.value = value

    def read():
        import stale_held  # noqa: PLC0415, the import is what is tested

        return stale_held.value

    def write(new):
        sys.modules["stale_held"] = held
        held.value = new

    write(value)
    return read, write


@holder
def replaced_module(value):
    def read():
        import stale_replaced  # noqa: PLC0415, the import is what is tested

        return stale_replaced.value

    def write(new):
        sys.modules["stale_replaced"] = types.ModuleType("stale_replaced")
        sys.modules["stale_replaced"].value = new

    write(value)
    return read, write


@holder
def module_of_the_library(value):
    functools.stale_value = value
    return (lambda: functools.stale_value), _attribute_of(functools, "stale_value")


@holder
def module_of_torch(value):
    torch.nn.functional.stale_value = value
    return (lambda: torch.nn.functional.stale_value), _attribute_of(
        torch.nn.functional, "stale_value"
    )


@holder
def function_attribute(value):
    def held():
        return 1

    held.value = value
    return (lambda: held.value), _attribute_of(held)


@holder
def method_attribute(value):
    class Kind:
        def method(self):
            return 1

    Kind.method.value = value
    thing = Kind()
    return (lambda: thing.method.value), _attribute_of(Kind.method)


@holder
def partial_argument(value):
    box = [functools.partial(lambda v: v, value)]
    return (lambda: box[0]()), lambda new: box.__setitem__(0, functools.partial(box[0].func, new))


@holder
def partial_keyword(value):
    held = functools.partial(lambda v: v, v=value)
    return (lambda: held()), lambda new: held.keywords.__setitem__("v", new)


@holder
def bound_method_owner(value):
    class Kind:
        def __init__(self, v):
            self.v = v

        def get(self):
            return self.v

    box = [Kind(value).get]
    return (lambda: box[0]()), lambda new: box.__setitem__(0, Kind(new).get)


@holder
def closure_of_a_closure(value):
    def outer(v):
        def inner():
            return v

        return inner

    box = [outer(value)]
    return (lambda: box[0]()), lambda new: box.__setitem__(0, outer(new))


@holder
def cell_contents(value):
    def outer(v):
        def inner():
            return v

        return inner

    held = outer(value)
    return (lambda: held()), _attribute_of(held.__closure__[0], "cell_contents")


@holder
def cell_contents_read_through_the_function(value):
    def outer(v):
        def inner():
            return v

        return inner

    held = outer(value)
    return (lambda: held.__closure__[0].cell_contents), _attribute_of(
        held.__closure__[0], "cell_contents"
    )


@holder
def property_(value):
    class Kind:
        hidden = value

        @property
        def shown(self):
            return self.hidden

    thing = Kind()
    return (lambda: thing.shown), _attribute_of(thing, "hidden")


@holder
def vars_of_an_object(value):
    thing = Thing(value)
    return (lambda: vars(thing)["value"]), _attribute_of(thing)


@holder
def vars_of_a_module(value):
    held = types.ModuleType("held")
    held.value = value
    return (lambda: vars(held)["value"]), _attribute_of(held)


@holder
def vars_of_a_class(value):
    class Kind:
        pass

    Kind.value = value
    return (lambda: vars(Kind)["value"]), _attribute_of(Kind)


@holder
def globals_call(value):
    globals()["STALE_GLOBAL"] = value
    return (lambda: globals()["STALE_GLOBAL"]), lambda new: globals().__setitem__(
        "STALE_GLOBAL", new
    )


@holder
def getattr_default(value):
    thing = Thing()
    first = value

    def write(new):
        if new is first:
            thing.__dict__.pop("optional", None)
        else:
            thing.optional = new

    return (lambda: getattr(thing, "optional", 7)), write


@holder
def hasattr_(value):
    thing = Thing()
    first = value

    def write(new):
        if new is first:
            thing.__dict__.pop("optional", None)
        else:
            thing.optional = new

    return (lambda: hasattr(thing, "optional")), write


@holder
def attribute_of_a_module_of_torch(value):
    class Net(torch.nn.Module):
        def forward(self):
            return self.value

    net = Net()
    net.value = value
    return (lambda: net()), _attribute_of(net)


@rows(
    "container",
    {
        "append": ([1], list.append, (5,), lambda c: sum(c)),
        "insert": ([1, 2], list.insert, (0, 5), lambda c: c[0]),
        "pop": ([1, 2], list.pop, (), lambda c: len(c)),
        "reverse": ([1, 2], list.reverse, (), lambda c: c[0]),
        "clear": ([1, 2], list.clear, (), lambda c: bool(c)),
        "contains": ([1, 2], list.remove, (2,), lambda c: 2 in c),
        "index": ([1, 2, 3], list.insert, (0, 9), lambda c: c.index(2)),
        "dict_new_key": ({"a": 1}, dict.update, ({"b": 2},), lambda c: sum(c.values())),
        "dict_get": ({"a": 1}, dict.update, ({"b": 2},), lambda c: c.get("b", 7)),
        "dict_in": ({"a": 1}, dict.update, ({"b": 2},), lambda c: "b" in c),
        "dict_pop": ({"a": 1, "b": 2}, dict.pop, ("a",), lambda c: len(c)),
        "dict_loop": ({"a": 1, "b": 2}, dict.pop, ("a",), lambda c: list(c)),
        "dict_order": ({"a": 1, "b": 2}, lambda d: d.update(a=d.pop("a")), (), lambda c: list(c)),
        "set_add": ({1}, set.add, (5,), lambda c: 5 in c),
        "set_loop": ({1}, set.add, (5,), lambda c: sum(c)),
        "set_of_strings": ({"a"}, set.add, ("b",), lambda c: len(c)),
        "deque_append": (collections.deque([1]), collections.deque.append, (5,), lambda c: c[-1]),
        "deque_rotate": (collections.deque([1, 2]), collections.deque.rotate, (1,), lambda c: c[0]),
        "ordered_move": (
            collections.OrderedDict(a=1, b=2),
            collections.OrderedDict.move_to_end,
            ("a",),
            lambda c: list(c),
        ),
        "counter": (
            collections.Counter("aab"),
            collections.Counter.update,
            ("bbb",),
            lambda c: c.most_common(1),
        ),
        "chain_map": (
            collections.ChainMap({"a": 1}),
            collections.ChainMap.update,
            ({"a": 5},),
            lambda c: c["a"],
        ),
        "user_list": (
            collections.UserList([1]),
            collections.UserList.append,
            (5,),
            lambda c: len(c),
        ),
        "user_dict": (
            collections.UserDict(a=1),
            collections.UserDict.update,
            ({"a": 5},),
            lambda c: c["a"],
        ),
        "array": (array.array("i", [1, 2]), array.array.__setitem__, (0, 5), lambda c: c[0]),
        "array_length": (array.array("i", [1, 2]), array.array.append, (5,), lambda c: len(c)),
        "array_loop": (array.array("i", [1, 2]), array.array.append, (5,), lambda c: sum(c)),
        "bytearray": (bytearray(b"ab"), bytearray.__setitem__, (0, 5), lambda c: c[0]),
        "bytearray_as_bytes": (bytearray(b"ab"), bytearray.__setitem__, (0, 5), lambda c: bytes(c)),
        "bytearray_in": (bytearray(b"ab"), bytearray.__setitem__, (0, 5), lambda c: 5 in c),
        "memoryview": (
            memoryview(bytearray(b"ab")),
            memoryview.__setitem__,
            (0, 5),
            lambda c: c[0],
        ),
        "ndarray": (np.array([1, 2]), np.ndarray.__setitem__, (0, 5), lambda c: c[0]),
        "ndarray_as_index": (
            np.array([0, 2]),
            np.ndarray.__setitem__,
            (0, 1),
            lambda c: [10, 20][c[0]],
        ),
        "ndarray_sum": (np.array([1, 2]), np.ndarray.__setitem__, (0, 5), lambda c: int(c.sum())),
        "ndarray_length": (
            np.array([1, 2]),
            lambda a: a.resize(3, refcheck=False),
            (),
            lambda c: len(c),
        ),
        "ndarray_shape": (
            np.zeros((2, 3)),
            lambda a: setattr(a, "shape", (3, 2)),
            (),
            lambda c: c.shape,
        ),
        "ndarray_loop": (
            np.array([1, 2]),
            np.ndarray.__setitem__,
            (0, 5),
            lambda c: [int(v) for v in c],
        ),
        "ndarray_truth": (np.array([1]), np.ndarray.__setitem__, (0, 0), lambda c: bool(c)),
        "ndarray_item": (np.array([1, 2]), np.ndarray.__setitem__, (0, 5), lambda c: c.item(0)),
        "ndarray_as_key": (
            np.array([1, 2]),
            np.ndarray.__setitem__,
            (0, 5),
            lambda c: {1: "one"}.get(c[0], "other"),
        ),
        "iterator": (iter([1, 2, 3]), next, (), lambda c: next(c)),
        "bytes_io": (__import__("io").BytesIO(b"ab"), lambda b: b.seek(1), (), lambda c: c.tell()),
        "namespace": (
            types.SimpleNamespace(a=1),
            lambda n: setattr(n, "a", 5),
            (),
            lambda c: repr(c),
        ),
    },
)
def _container(make, change, arguments, read):
    import copy  # noqa: PLC0415, an iterator or buffer is shared by the worlds otherwise

    held = memoryview(bytearray(make)) if isinstance(make, memoryview) else copy.deepcopy(make)
    return World(lambda t: (t * 2, read(held)), lambda: change(held, *arguments))


@row
def a_list_is_replaced_by_an_equal_one_and_written():
    thing = Thing([1])

    def program(t):
        thing.value.append(2)
        return t * len(thing.value)

    return World(program, lambda: setattr(thing, "value", [1]), state=lambda: thing.value)


@row
def two_names_become_one_object():
    one, two = [1], [1]
    thing = Thing((one, two))

    def program(t):
        first, second = thing.value
        first.append(5)
        return t * len(second)

    return World(
        program,
        lambda: setattr(thing, "value", (one, one)),
        lambda: setattr(thing, "value", (one, two)),
        state=lambda: (one, two),
    )


@row
def one_object_becomes_two():
    one, two = [1], [1]
    thing = Thing((one, one))

    def program(t):
        first, second = thing.value
        first.append(5)
        return t * len(second)

    return World(program, lambda: setattr(thing, "value", (one, two)), state=lambda: (one, two))


@row
def identity_of_two_lists():
    one, two = [1], [1]
    thing = Thing((one, two))
    return World(
        lambda t: t * 2 if thing.value[0] is thing.value[1] else t,
        lambda: setattr(thing, "value", (one, one)),
        lambda: setattr(thing, "value", (one, two)),
    )


@row
def an_enum_member_gets_another_value():
    class Mode(enum.Enum):
        A = 1

    return World(
        lambda t: t * Mode.A.value,
        lambda: setattr(Mode.A, "_value_", 5),
        lambda: setattr(Mode.A, "_value_", 1),
    )


@row
def an_attribute_of_an_enum_member():
    class Mode(enum.Enum):
        A = 1

        @property
        def scale(self):
            return self.extra

    Mode.A.extra = 2
    return World(
        lambda t: t * Mode.A.scale,
        lambda: setattr(Mode.A, "extra", 5),
        lambda: setattr(Mode.A, "extra", 2),
    )


@row
def a_number_with_attributes():
    number = Grown(3)
    number.unit = "m"
    return World(
        lambda t: (t * number, number.unit),
        lambda: setattr(number, "unit", "s"),
        lambda: setattr(number, "unit", "m"),
    )


@row
def an_object_as_index():
    class Index:
        def __init__(self, at):
            self.at = at

        def __index__(self):
            return self.at

    index = Index(0)
    return World(
        lambda t: t * [10, 20][index],
        lambda: setattr(index, "at", 1),
        lambda: setattr(index, "at", 0),
    )


@row
def an_object_in_a_slice():
    class Index:
        at = 1

        def __index__(self):
            return self.at

    index = Index()
    return World(
        lambda t: t * sum([1, 2, 4][:index]),
        lambda: setattr(index, "at", 2),
        lambda: setattr(index, "at", 1),
    )


@row
def an_object_as_key():
    class Key:
        def __init__(self, name):
            self.name = name

        def __hash__(self):
            return hash(self.name)

        def __eq__(self, other):
            return self.name == other.name

    key, table = Key("a"), {Key("a"): 1, Key("b"): 5}
    return World(
        lambda t: t * table[key],
        lambda: setattr(key, "name", "b"),
        lambda: setattr(key, "name", "a"),
    )


@row
def a_frozen_record_as_key():
    box, table = [Frozen(1)], {Frozen(1): 2, Frozen(2): 5}
    return World(
        lambda t: t * table[box[0]],
        lambda: box.__setitem__(0, Frozen(2)),
        lambda: box.__setitem__(0, Frozen(1)),
    )


@row
def an_object_in_a_list():
    class Same:
        def __init__(self, name):
            self.name = name

        def __eq__(self, other):
            return self.name == other.name

        __hash__ = None

    one, held = Same("a"), [Same("b"), Same("c")]
    return World(
        lambda t: t * (2 if one in held else 1),
        lambda: setattr(one, "name", "b"),
        lambda: setattr(one, "name", "a"),
    )


@row
def sorted_by_an_attribute():
    things = [Thing(1), Thing(2)]
    return World(
        lambda t: t * sorted(things, key=lambda thing: -thing.value)[0].value,
        lambda: setattr(things[0], "value", 5),
        lambda: setattr(things[0], "value", 1),
    )


@row
def max_of_objects():
    @functools.total_ordering
    class Ranked:
        def __init__(self, rank):
            self.rank = rank

        def __lt__(self, other):
            return self.rank < other.rank

        def __eq__(self, other):
            return self.rank == other.rank

        __hash__ = None

    ranked = [Ranked(1), Ranked(2)]
    return World(
        lambda t: t * max(ranked).rank,
        lambda: setattr(ranked[0], "rank", 5),
        lambda: setattr(ranked[0], "rank", 1),
    )


@row
def a_number_like_object():
    class Number:
        value = 2

        def __float__(self):
            return float(self.value)

        def __int__(self):
            return self.value

        def __round__(self, digits=None):
            return self.value

    number = Number()
    return World(
        lambda t: t * float(number) + int(number) + round(number),
        lambda: setattr(number, "value", 5),
        lambda: setattr(number, "value", 2),
    )


@row
def a_formatted_object():
    class Shown:
        value = 2

        def __str__(self):
            return f"<{self.value}>"

        def __format__(self, spec):
            return f"[{self.value}{spec}]"

    shown = Shown()
    return World(
        lambda t: (t * 2, f"{shown}", str(shown), f"{shown:>3}"),
        lambda: setattr(shown, "value", 5),
        lambda: setattr(shown, "value", 2),
    )


@row
def joined_strings():
    held = ["a", "b"]
    return World(
        lambda t: (t * 2, ",".join(held)),
        lambda: held.__setitem__(0, "z"),
        lambda: held.__setitem__(0, "a"),
    )


@row
def text_of_a_list_of_objects():
    class Shown:
        value = 2

        def __repr__(self):
            return f"<{self.value}>"

    held = [Shown()]
    return World(
        lambda t: (t * 2, str(held)),
        lambda: setattr(held[0], "value", 5),
        lambda: setattr(held[0], "value", 2),
    )


@row
def equal_lists_of_objects():
    class Same:
        def __init__(self, name):
            self.name = name

        def __eq__(self, other):
            return self.name == other.name

        __hash__ = None

    one, two = [Same("a")], [Same("a")]
    return World(
        lambda t: t * (2 if one == two else 1),
        lambda: setattr(one[0], "name", "b"),
        lambda: setattr(one[0], "name", "a"),
    )


@row
def a_hash_of_a_record():
    box = [Frozen(1)]
    return World(
        lambda t: t * (hash(box[0]) == hash(Frozen(1))),
        lambda: box.__setitem__(0, Frozen(2)),
        lambda: box.__setitem__(0, Frozen(1)),
    )


@row
def unpacked_objects():
    class Parts:
        parts = (1, 2)

        def __iter__(self):
            return iter(self.parts)

    parts = Parts()

    def program(t):
        first, second = parts
        return t * first + second, [*parts], max(parts), sum(parts), tuple(parts)

    return World(
        program, lambda: setattr(parts, "parts", (3, 4)), lambda: setattr(parts, "parts", (1, 2))
    )


@row
def a_mapping_unpacked():
    class Options:
        scale = 2

        def keys(self):
            return ["scale"]

        def __getitem__(self, key):
            return getattr(self, key)

    options = Options()

    def scaled(t, scale):
        return t * scale

    return World(
        lambda t: scaled(t, **options),
        lambda: setattr(options, "scale", 5),
        lambda: setattr(options, "scale", 2),
    )


@row
def a_weak_reference():
    import weakref  # noqa: PLC0415

    thing = Thing(2)
    reference = weakref.ref(thing)
    return World(
        lambda t: t * reference().value,
        lambda: setattr(thing, "value", 5),
        lambda: setattr(thing, "value", 2),
    )


@row
def deep_copies():
    import copy  # noqa: PLC0415

    thing = Thing([1])
    return World(
        lambda t: t * len(copy.deepcopy(thing).value),
        lambda: thing.value.append(2),
        lambda: thing.value.pop(),
    )


@row
def a_json_text():
    import json  # noqa: PLC0415

    held = {"a": [1]}
    return World(
        lambda t: (t * 2, json.dumps(held)), lambda: held["a"].append(2), lambda: held["a"].pop()
    )
