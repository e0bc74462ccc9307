"""Facts about modules, classes and functions: they hold until somebody changes what they are about."""

import abc
import gc
import types
import weakref

import pytest
import torch

from argand.runtime import _native
from argand.runtime.guard_programs import compile_guards
from argand.runtime.guards import Guard, GuardKind
from argand.runtime.tables import make_tables


def helper(a, b=2, *, c=3):
    return a + b + c


def other(a, b=2, *, c=3):
    return a - b


class Base:
    def method(self):
        return 1


class Child(Base):
    value = 1


class Unused:
    pass


def module_names(**values):
    module = types.ModuleType("made")
    vars(module).update(values)
    return module, {
        (id(vars(module)), name): (vars(module), value) for name, value in values.items()
    }


def test_names_of_modules():
    module, names = module_names(f=helper, kind=Base, __version__="1")
    names[id(vars(module)), "absent"] = (vars(module), _native.NULL)
    tables = make_tables(names, {}, {}, ())
    assert tables.changed() is None
    module.unrelated = 1
    assert tables.changed() is None
    module.f = other
    assert tables.changed() == "`made.f` was replaced"
    module.f = helper
    assert tables.changed() is None
    module.__version__ = "".join(["1"])
    assert tables.changed() is None
    module.absent = 1
    assert tables.changed() == "`made.absent` was replaced"
    del module.absent, module.kind
    assert tables.changed() == "`made.kind` was replaced"


def lookups(kind, **names):
    return {(kind, name): found for name, found in names.items()}


def test_classes():
    class Grandchild(Child):
        pass

    own = lookups(Child, method=_native.NULL)
    facts = lookups(Grandchild, method=Base.method, value=1, __len__=_native.NULL)
    tables = make_tables({}, facts, own, ())
    assert tables.changed() is None
    Child.value = 5  # an int before and after: no descriptor
    assert tables.changed() is None
    Child.value = property(lambda self: 1)
    assert "value" in tables.changed()
    Child.value = 1
    Child.__len__ = lambda self: 1
    assert "Grandchild.__len__" in tables.changed()
    del Child.__len__
    assert tables.changed() is None
    Child.method = Base.method  # the same from everywhere, but for super()
    assert "Child.method" in tables.changed()
    del Child.method
    Grandchild.__bases__ = (Unused, Child)
    assert "other bases" in tables.changed()


@pytest.mark.parametrize(
    "change",
    [
        lambda f: setattr(f, "__code__", other.__code__),
        lambda f: setattr(f, "__defaults__", (5,)),
        lambda f: setattr(f, "__defaults__", None),
        lambda f: setattr(f, "__kwdefaults__", {"c": 4}),
        lambda f: setattr(f, "__kwdefaults__", None),
        lambda f: f.__kwdefaults__.update(c=4),
    ],
)
def test_functions(change):
    function = types.FunctionType(helper.__code__, globals(), "helper", (2,))
    function.__kwdefaults__ = {"c": 3}
    tables = make_tables({}, {}, {}, [function])
    function.__defaults__ = (2,)
    function.__kwdefaults__ = {"c": 3}
    assert tables.changed() is None
    change(function)
    assert "new code or defaults" in tables.changed()


def test_defaults_that_are_no_constants_are_left_to_their_guards():
    function = types.FunctionType(helper.__code__, globals(), "helper", ([],))
    tables = make_tables({}, {}, {}, [function])
    function.__defaults__ = ([1],)
    assert tables.changed() is None
    function.__defaults__ = ([1], 2)
    assert tables.changed() is not None


def test_registered_classes():
    class Abstract(abc.ABC):
        pass

    tables = make_tables({}, {}, {}, (), [(Unused, Abstract, False), (Child, Base, True)])
    assert tables.changed() is None
    abc.ABC.register(type("Other", (), {}))
    assert tables.changed() is None
    Abstract.register(Unused)
    assert "abstract" in tables.changed()


def test_nothing_of_the_user_is_kept_alive():
    class Kind:
        def method(self):
            return __class__

        value = property(lambda self: 1)

    def function(a, b=Kind()):
        return a

    alive = [
        weakref.ref(value) for value in (Kind, Kind.method, function, function.__defaults__[0])
    ]
    facts = lookups(Kind, method=Kind.method, value=vars(Kind)["value"])
    tables = make_tables({}, facts, {}, [function, Kind.method])
    del Kind, function, facts
    gc.collect()
    assert [reference() for reference in alive] == [None] * 4
    assert tables.changed() is None


def test_a_program_asks_its_tables_first():
    module, names = module_names(f=helper)
    rows = [Guard(GuardKind.TABLES, None, make_tables(names, {}, {}, ()))]
    program = compile_guards(rows, [], helper.__code__)
    view = _native.FrameView((helper.__code__, helper, globals(), {}, (1, 2, 3)))
    assert program.check(view) == ()
    module.f = other
    assert program.check(view) == 0
    module.f = helper
    assert program.check(view) == ()


@pytest.mark.parametrize(
    "rows",
    [
        (((1, ()),), (), (), ()),
        ((({}, (("a", 9, None),)),), (), (), ()),
        ((), ((Base, False, (("a", 2, 1),)),), (), ()),
        ((), (), ((helper, 1, None),), ()),
        ((), (), (), ((Base, 1, True),)),
    ],
)
def test_malformed_facts_are_refused(rows):
    with pytest.raises((TypeError, ValueError)):
        _native.Tables(*rows)
    with pytest.raises(ValueError, match="tables"):
        compile_guards([Guard(GuardKind.TABLES, None, torch)], [], helper.__code__)


def test_a_class_whose_order_is_being_made():
    """It has no bases yet: `mro` may call compiled code with it."""
    heard = []

    class Meta(type):
        def mro(cls):
            tables = _native.Tables((), ((cls, False, (("name", 0, None),)),), (), ())
            heard.append((cls.__mro__, tables.changed(), tables))
            return type.mro(cls)

    class Kind(metaclass=Meta):
        pass

    ((order, before, tables),) = heard
    assert not order
    assert before is None
    assert "other bases" in tables.changed()
    assert Kind.__mro__


def test_a_class_of_c_code_itself():
    tables = _native.Tables(
        (), ((int, True, (("bit_length", 1, int.__dict__["bit_length"]),)),), (), ()
    )
    assert tables.changed() is None
