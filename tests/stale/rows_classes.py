"""Rows: what classes and metaclasses hold: special methods, bases, registrations."""

import abc
import dataclasses

import torch

from tests.stale.machine import World, row, rows


def _set(owner, name, value):
    """A change of a class and its undoing."""
    missing = object()
    before = owner.__dict__.get(name, missing)

    def undo():
        if before is missing:
            delattr(owner, name)
        else:
            setattr(owner, name, before)

    return (lambda: setattr(owner, name, value)), undo


class Thing:
    """Every special method a program may meet."""

    def __call__(self, t):
        return t * 2  # noqa: E704

    def __len__(self):
        return 2  # noqa: E704

    def __bool__(self):
        return True  # noqa: E704

    def __getattr__(self, name):
        return 2  # noqa: E704

    def __eq__(self, other):
        return True  # noqa: E704

    def __ne__(self, other):
        return False  # noqa: E704

    def __lt__(self, other):
        return True  # noqa: E704

    def __hash__(self):
        return 2  # noqa: E704

    def __iter__(self):
        return iter([1, 2])  # noqa: E704

    def __contains__(self, key):
        return True  # noqa: E704

    def __getitem__(self, key):
        return 2  # noqa: E704

    def __add__(self, other):
        return 2  # noqa: E704

    def __radd__(self, other):
        return 2  # noqa: E704

    def __iadd__(self, other):
        return self  # noqa: E704

    def __neg__(self):
        return 2  # noqa: E704

    def __index__(self):
        return 1  # noqa: E704

    def __int__(self):
        return 2  # noqa: E704

    def __float__(self):
        return 2.0  # noqa: E704

    def __abs__(self):
        return 2  # noqa: E704

    def __str__(self):
        return "a"  # noqa: E704

    def __repr__(self):
        return "a"  # noqa: E704

    def __format__(self, spec):
        return "a"  # noqa: E704

    def __enter__(self):
        return 2  # noqa: E704

    def __exit__(self, *error):
        return None  # noqa: E704, PLE0302

    def __round__(self, digits=None):
        return 2  # noqa: E704

    def __reversed__(self):
        return iter([2, 1])  # noqa: E704


def entered(thing):
    with thing as value:
        return value


METHODS = {
    "__call__": (lambda self, t: t * 5, lambda x: x(torch.ones(2))),
    "__len__": (lambda self: 5, lambda x: len(x)),
    "__bool__": (lambda self: False, lambda x: 1 if x else 2),
    "__getattr__": (lambda self, name: 5, lambda x: x.anything),
    "__eq__": (lambda self, other: False, lambda x: x == 3),
    "__ne__": (lambda self, other: True, lambda x: x != 3),
    "__lt__": (lambda self, other: False, lambda x: x < 3),
    "__hash__": (lambda self: 5, lambda x: hash(x)),
    "__iter__": (lambda self: iter([5]), lambda x: [*x]),
    "__contains__": (lambda self, key: False, lambda x: 3 in x),
    "__getitem__": (lambda self, key: 5, lambda x: x[0]),
    "__add__": (lambda self, other: 5, lambda x: x + 1),
    "__radd__": (lambda self, other: 5, lambda x: 1 + x),
    "__iadd__": (lambda self, other: 5, lambda x: __import__("operator").iadd(x, 1) == 5),
    "__neg__": (lambda self: 5, lambda x: -x),
    "__index__": (lambda self: 0, lambda x: [10, 20][x]),
    "__int__": (lambda self: 5, lambda x: int(x)),
    "__float__": (lambda self: 5.0, lambda x: float(x)),
    "__abs__": (lambda self: 5, lambda x: abs(x)),
    "__str__": (lambda self: "b", lambda x: str(x)),
    "__repr__": (lambda self: "b", lambda x: repr(x)),
    "__format__": (lambda self, spec: "b", lambda x: f"{x}"),
    "__enter__": (lambda self: 5, entered),
    "__round__": (lambda self, digits=None: 5, lambda x: round(x)),
    "__reversed__": (lambda self: iter([5]), lambda x: list(reversed(x))),
}


def copied():
    """A class of its own with all these methods."""
    return type(
        "Kind",
        (),
        {
            name: value
            for name, value in vars(Thing).items()
            if name not in ("__dict__", "__weakref__")
        },
    )


def fresh(*bases):
    return type("Fresh", bases, {})


@rows("special", {name.strip("_"): (name, *rest) for name, rest in METHODS.items()})
def _special(name, new, use):
    kind = copied()
    thing = kind()
    return World(lambda t: (t * 2, use(thing)), *_set(kind, name, new))


@rows("special_of_a_base", {name.strip("_"): (name, *rest) for name, rest in METHODS.items()})
def _special_of_a_base(name, new, use):
    kind = copied()
    thing = fresh(fresh(kind))()
    return World(lambda t: (t * 2, use(thing)), *_set(kind, name, new))


@rows(
    "gained",
    {
        "bool": ("__bool__", lambda self: False, lambda x: 1 if x else 2),
        "len": ("__len__", lambda self: 0, lambda x: 1 if x else 2),
        "getattribute": ("__getattribute__", lambda self, name: 5, lambda x: x.value),
        "getattr": ("__getattr__", lambda self, name: 5, lambda x: getattr(x, "missing", 2)),
        "setattr": (
            "__setattr__",
            lambda self, name, value: None,
            lambda x: (setattr(x, "value", 3), x.value),
        ),
        "property": ("value", property(lambda self: 5), lambda x: x.value),
        "eq": ("__eq__", lambda self, other: True, lambda x: x == 1),
        "str": ("__str__", lambda self: "s", lambda x: str(x) == "s"),
        "init": (
            "__init__",
            lambda self: setattr(self, "value", 9),
            lambda x: type(x)().__dict__.get("value"),
        ),
        "attribute": ("extra", 5, lambda x: hasattr(x, "extra")),
        "method": ("extra", lambda self: 5, lambda x: x.extra() if hasattr(x, "extra") else 2),
        "contains": (
            "__contains__",
            lambda self, key: True,
            lambda x: 1 in x if hasattr(type(x), "__contains__") else 2,
        ),
    },
)
def _gained(name, new, use):
    class Kind:
        pass

    thing = Kind()
    thing.__dict__["value"] = 2
    return World(lambda t: (t * 2, use(thing)), *_set(Kind, name, new))


@rows(
    "about_a_class",
    {
        "name": ("__name__", "Other", lambda k: k.__name__),
        "qualname": ("__qualname__", "Other", lambda k: k.__qualname__),
        "doc": ("__doc__", "other", lambda k: k.__doc__),
        "module": ("__module__", "other", lambda k: k.__module__),
        "name_of_an_object": ("__name__", "Other", lambda k: type(k()).__name__),
    },
)
def _about_a_class(name, value, read):
    class Kind:
        """Text."""

    before = getattr(Kind, name)
    return World(
        lambda t: (t * 2, read(Kind)),
        lambda: setattr(Kind, name, value),
        lambda: setattr(Kind, name, before),
    )


class One:
    def scale(self):
        return 2


class Two:
    def scale(self):
        return 5


@rows(
    "bases",
    {
        "method": (lambda x: x.scale(),),
        "isinstance": (lambda x: isinstance(x, One),),
        "issubclass": (lambda x: issubclass(type(x), Two),),
        "mro": (lambda x: [k.__name__ for k in type(x).__mro__],),
    },
)
def _bases(read):
    class Kind(One):
        pass

    thing = Kind()
    return World(
        lambda t: (t * 2, read(thing)),
        lambda: setattr(Kind, "__bases__", (Two,)),
        lambda: setattr(Kind, "__bases__", (One,)),
    )


@row
def the_class_of_an_object():
    class A:
        k = 2

    class B:
        k = 5

    thing = A()
    return World(
        lambda t: t * thing.k,
        lambda: setattr(thing, "__class__", B),
        lambda: setattr(thing, "__class__", A),
    )


@row
def a_method_between_super_and_its_target():
    class Low:
        def k(self):
            return 2

    class Middle(Low):
        pass

    class High(Middle):
        def k(self):
            return super().k()

    thing = High()
    return World(lambda t: t * thing.k(), *_set(Middle, "k", lambda self: 5))


@row
def a_new_subclass():
    class Base:
        pass

    class Child(Base):
        k = 2

    kept = []
    return World(
        lambda t: t * sum(kind.k for kind in Base.__subclasses__()),
        lambda: kept.append(type("Other", (Base,), {"k": 5})),
        state=lambda: Child.k,
    )


@row
def a_registered_class():
    class Abstract(abc.ABC):
        pass

    class Kind:
        pass

    thing = Kind()
    return World(
        lambda t: t * (2 if isinstance(thing, Abstract) else 1), lambda: Abstract.register(Kind)
    )


@row
def an_instance_check():
    class Meta(type):
        def __instancecheck__(cls, thing):
            return cls.yes

    class Kind(metaclass=Meta):
        yes = False

    return World(lambda t: t * (2 if isinstance(3, Kind) else 1), *_set(Kind, "yes", True))


@row
def the_call_of_a_metaclass():
    class Meta(type):
        def __call__(cls):
            return 2

    class Kind(metaclass=Meta):
        pass

    return World(lambda t: t * Kind(), *_set(Meta, "__call__", lambda cls: 5))


@row
def a_length_of_a_class():
    class Meta(type):
        def __len__(cls):
            return 2

    class Kind(metaclass=Meta):
        pass

    return World(lambda t: t * len(Kind), *_set(Meta, "__len__", lambda cls: 5))


@row
def the_new_of_a_class():
    class Kind:
        def __new__(cls):
            made = object.__new__(cls)
            made.k = 2
            return made

    def other(cls):
        made = object.__new__(cls)
        made.k = 5
        return made

    return World(lambda t: t * Kind().k, *_set(Kind, "__new__", staticmethod(other)))


@row
def the_init_of_a_class():
    class Kind:
        def __init__(self):
            self.k = 2

    return World(
        lambda t: t * Kind().k, *_set(Kind, "__init__", lambda self: setattr(self, "k", 5))
    )


@row
def a_static_method():
    class Kind:
        @staticmethod
        def k():
            return 2

    return World(lambda t: t * Kind.k() + Kind().k(), *_set(Kind, "k", staticmethod(lambda: 5)))


@row
def a_class_method():
    class Kind:
        @classmethod
        def k(cls):
            return 2

    return World(lambda t: t * Kind.k() + Kind().k(), *_set(Kind, "k", classmethod(lambda cls: 5)))


@row
def a_descriptor_with_state():
    class Field:
        k = 2

        def __get__(self, owner, kind=None):
            return self.k

    field = Field()

    class Kind:
        k = field

    thing = Kind()
    return World(
        lambda t: t * thing.k + Kind.k,
        lambda: setattr(field, "k", 5),
        lambda: setattr(field, "k", 2),
    )


@row
def a_descriptor_that_counts():
    class Counting:
        n = 0

        def __get__(self, owner, kind=None):
            self.n += 1
            return self.n

    counting = Counting()

    class Kind:
        k = counting

    thing = Kind()
    return World(
        lambda t: t * thing.k, lambda: setattr(counting, "n", 10), state=lambda: counting.n
    )


@row
def a_descriptor_becomes_a_data_descriptor():
    class Field:
        def __get__(self, owner, kind=None):
            return 5

    class Kind:
        k = Field()

    thing = Kind()
    thing.__dict__["k"] = 2
    return World(lambda t: t * thing.k, *_set(Field, "__set__", lambda self, owner, value: None))


@row
def a_record_field():
    @dataclasses.dataclass
    class Record:
        a: int = 2

    return World(
        lambda t: t * Record().a,
        lambda: setattr(Record.__init__, "__defaults__", (5,)),
        lambda: setattr(Record.__init__, "__defaults__", (2,)),
    )


@row
def a_forward_of_an_instance():
    net = torch.nn.ReLU()
    return World(
        lambda t: net(t),
        lambda: setattr(net, "forward", lambda t: t * 5),
        lambda: delattr(net, "forward"),
    )


@rows(
    "module_of_torch",
    {
        "training": (lambda net: net.eval(), lambda net: net.train(), lambda net, t: net.training),
        "hook": (
            lambda net: setattr(net, "h", net.register_forward_hook(lambda m, i, o: o * 5)),
            lambda net: net.h.remove(),
            lambda net, t: net(t),
        ),
        "pre_hook": (
            lambda net: setattr(net, "h", net.register_forward_pre_hook(lambda m, i: (i[0] * 5,))),
            lambda net: net.h.remove(),
            lambda net, t: net(t),
        ),
        "parameter": (
            lambda net: setattr(net, "weight", torch.nn.Parameter(torch.full((3, 3), 5.0))),
            lambda net: setattr(net, "weight", torch.nn.Parameter(torch.ones(3, 3))),
            lambda net, t: net(t),
        ),
        "parameter_data": (
            lambda net: net.weight.data.fill_(5),
            lambda net: net.weight.data.fill_(1),
            lambda net, t: net(t),
        ),
        "frozen": (
            lambda net: net.requires_grad_(False),
            lambda net: net.requires_grad_(True),
            lambda net, t: net(t),
        ),
        "buffer": (
            lambda net: net.register_buffer("b", torch.full((3,), 5.0)),
            lambda net: net.register_buffer("b", None),
            lambda net, t: t * 2 if getattr(net, "b", None) is None else t * net.b,
        ),
        "child": (
            lambda net: net.add_module("c", torch.nn.ReLU()),
            lambda net: net._modules.pop("c"),
            lambda net, t: len(list(net.children())),
        ),
        "double": (
            lambda net: net.double(),
            lambda net: net.float(),
            lambda net, t: net.weight * 2,
        ),
        "bias": (
            lambda net: setattr(net, "bias", torch.nn.Parameter(torch.ones(3))),
            lambda net: setattr(net, "bias", None),
            lambda net, t: net(t),
        ),
    },
)
def _module_of_torch(change, undo, read):
    net = torch.nn.Linear(3, 3, bias=False)
    torch.nn.init.ones_(net.weight)
    return World(lambda t: (t * 2, read(net, t)), lambda: change(net), lambda: undo(net))
