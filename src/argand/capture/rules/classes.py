"""capture.rules.classes: what is asked of classes, and classes that are made.

In: arguments of `isinstance`, `type`, `super` and the like. Out: the result, with guards on what it depends on.
"""

from __future__ import annotations

import abc
import types
import weakref
from typing import Any

from argand.capture.markers import Args, Kwargs
from argand.capture.objects import operate
from argand.capture.objects.methods import lookup, python_method
from argand.capture.objects.parts import Caller
from argand.capture.objects.tracer import Tracer
from argand.capture.outside import real
from argand.capture.outside.arrays import ArrayNumber
from argand.capture.outside.kinds import is_trusted_module
from argand.capture.outside.state import Outside
from argand.capture.record.pending import Pending
from argand.capture.rules.harmless import call_harmless
from argand.capture.sizes.floats import Float
from argand.capture.sizes.values import Claim, OpenSize
from argand.support.errors import Break, CaptureBreak


def is_instance(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """`isinstance`."""
    value, kind = args
    if isinstance(kind, type):
        check = lookup(tracer, type(kind), "__instancecheck__")
        if type(check) is types.FunctionType and not is_trusted_module(check.__module__):
            return operate.truth(tracer, tracer.call(check, (kind, value), {}))
    _note_registries(tracer, type(value), kind)
    return real.apply(isinstance, value, kind)


def is_subclass(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """`issubclass`."""
    _note_registries(tracer, *args)
    return call_harmless(tracer, issubclass, args, kwargs)


def subclasses_of(reference: weakref.ref[type]) -> list[weakref.ref[type]]:
    """The classes below a class now; asked for at each call that relied on them."""
    kind = reference()
    return (
        []
        if kind is None
        else [weakref.ref(below) for below in list[type](type.__subclasses__(kind))]
    )


def subclasses(outside: Outside, args: Args, kwargs: Kwargs) -> Any:
    """`cls.__subclasses__()`."""
    found = real.call(type.__subclasses__, args, kwargs)
    outside.world.ask(subclasses_of, (weakref.ref(args[0]),))
    outside.world.keep_off_disk("which classes are below another is in nobody's code")
    return found


def _note_registries(outside: Outside, of: Any, kind: Any) -> None:
    """What users register with abstract classes is in nobody's code, so another process may have other answers."""
    if isinstance(of, type) and any(
        id(base) in outside.journal.attributes for base in of.__mro__ or ()
    ):
        raise CaptureBreak(
            Break.B013, None, what="a question about a class that was just written to"
        )

    def is_ours(kind: type) -> bool:
        return is_trusted_module(kind.__module__)

    if isinstance(of, type):
        lookup(outside, of, "__class__")  # whatever it is asked for, its bases matter
    for abstract in kind if isinstance(kind, tuple) else (kind,):
        if (
            isinstance(abstract, abc.ABCMeta)
            and isinstance(of, type)
            and abstract not in of.__mro__
        ):
            known = is_ours(abstract) and any(
                is_ours(base) and issubclass(base, abstract) for base in of.__mro__
            )
            if not known and not (is_ours(abstract) and is_ours(of)):
                outside.world.questions.append((of, abstract, issubclass(of, abstract)))
                outside.world.keep_off_disk(
                    f"{abstract.__qualname__} may have {of.__qualname__} registered"
                )


def build_class(caller: Caller, args: Args, kwargs: Kwargs) -> Any:
    """`class`: the body is interpreted, the class is made for real if that calls no Python code of users."""
    body, name, *bases = args
    known = all(isinstance(base, type) and _makes_quietly(caller, base) for base in bases)
    if not known or kwargs:
        raise CaptureBreak(
            Break.B013, None, what=f"class {name} with a metaclass or __init_subclass__"
        )
    caller.world.keep_off_disk("a class is made in the trace")
    namespace = caller.class_body(body)
    for value in namespace.values():
        found = python_method(caller, value, "__set_name__")
        if found is not None and not is_trusted_module(found.__module__):
            broken = CaptureBreak(Break.B013, None, what=f"class {name} with __set_name__")
            broken.native = True  # the body has been run
            raise broken
    kind, _, _ = types.prepare_class(name, tuple(bases))
    return caller.mark_made(real.call(kind, (name, tuple(bases), namespace), {}))


def _makes_quietly(outside: Outside, base: type) -> bool:
    if type(lookup(outside, type(base), "__prepare__")) is not types.ClassMethodDescriptorType:
        return False
    start = lookup(outside, base, "__init_subclass__")
    return all(
        is_trusted_module(getattr(part, "__module__", "torch")) for part in (type(base), start)
    )


def make_type(outside: Outside, args: Args, kwargs: Kwargs) -> Any:
    """`type`, of an object or a class that is made."""
    if len(args) == 1:
        return (
            args[0].__class__
            if type(args[0]) in (Claim, Float, ArrayNumber, Pending, OpenSize)
            else type(args[0])
        )
    raise CaptureBreak(Break.B013, None, what="type() making a class")


def find_super(caller: Caller, args: Args, kwargs: Kwargs) -> Any:
    """`super`, with or without arguments."""
    if args:
        return real.apply(super, *args)
    frame = caller.frames[-1]
    cell, names = frame.cells.get("__class__"), frame.code.co_varnames
    if not frame.code.co_argcount:
        real.raise_(RuntimeError("super(): no arguments"))
    if cell is None:
        real.raise_(RuntimeError("super(): __class__ cell not found"))
    holder = frame.cells.get(names[0])
    if names[0] not in frame.locals and (holder is None or not is_set(holder)):
        real.raise_(RuntimeError("super(): arg[0] deleted"))
    if not is_set(cell):
        real.raise_(RuntimeError("super(): empty __class__ cell"))
    owner = (
        frame.locals[names[0]]
        if holder is None or names[0] in frame.locals
        else holder.cell_contents
    )
    return real.apply(super, cell.cell_contents, owner)


def is_set(cell: types.CellType) -> bool:
    """Whether a cell holds anything."""
    try:
        cell.cell_contents  # noqa: B018 - it raises when there is nothing
    except ValueError:
        return False
    return True
