"""capture.interpret.opcodes.loads: variables, globals, cells, constants, attributes and imports."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any, Final

import torch

from argand.bytecode import VERSION, Instruction, original_code
from argand.capture.interpret.frame import Frame
from argand.capture.markers import MISSING, NULL, SavedCell
from argand.capture.objects import attributes
from argand.capture.objects.found import is_trusted
from argand.capture.outside import real
from argand.capture.outside.journal import DELETED
from argand.runtime.guards import GuardKind
from argand.runtime.sources import Builtin, Global, Item
from argand.support.errors import Break, CaptureBreak

_UNSET: Final = "where it is not associated with a value"


def load_const(frame: Frame, ins: Instruction) -> None:
    """Push a constant of the code."""
    frame.stack.append(ins.argval)


def _hides_free(frame: Frame, ins: Instruction) -> bool:
    """Whether a comprehension has a slot of its own for a variable with the name of a free one."""
    code = frame.code
    return ins.argval in code.co_freevars and (ins.arg or 0) < len(code.co_varnames)


def load_fast(frame: Frame, ins: Instruction) -> None:
    """Push a local variable; in a comprehension that made a cell of it, the cell."""
    name: Any = ins.argval
    value = frame.locals.get(name, MISSING)
    if value is MISSING and name in frame.cells and not _hides_free(frame, ins):
        value = frame.cells[name]
    if value is MISSING:
        real.raise_(UnboundLocalError(f"cannot access local variable '{ins.argval}' {_UNSET}"))
    frame.stack.append(value)


def load_fast_and_clear(frame: Frame, ins: Instruction) -> None:
    """A comprehension begins: push the variable it shadows, its cell, or NULL, and unset it."""
    name: Any = ins.argval
    if name in frame.cells and not _hides_free(frame, ins):
        frame.share_cell(name, frame.cells[name])
        source = frame.cell_sources.pop(name, None)
        frame.stack.append(SavedCell(frame.cells.pop(name), source))
    else:
        frame.stack.append(frame.locals.pop(name, NULL))


def store_fast(frame: Frame, ins: Instruction) -> None:
    """Pop into a local variable; at the end of a comprehension, what it shadowed comes back."""
    name: Any = ins.argval
    value = frame.stack.pop()
    if value is NULL or isinstance(value, SavedCell):
        frame.locals.pop(name, None)
        if not _hides_free(frame, ins):
            frame.cells.pop(name, None)
        if isinstance(value, SavedCell):
            frame.cells[name] = value.cell
            if value.source is not None:
                frame.cell_sources[name] = value.source
    else:
        frame.locals[name] = value
        if not _hides_free(frame, ins):
            frame.cells.pop(name, None)


def store_name(frame: Frame, ins: Instruction) -> None:
    """In the body of a class: pop into its namespace."""
    frame.locals[str(ins.argval)] = frame.stack.pop()


def delete_fast(frame: Frame, ins: Instruction) -> None:
    """Unset a local variable."""
    if frame.locals.pop(ins.argval, MISSING) is MISSING:  # type: ignore[call-overload]
        real.raise_(UnboundLocalError(f"cannot access local variable '{ins.argval}' {_UNSET}"))


def make_cell(frame: Frame, ins: Instruction) -> None:
    """Give a variable a cell; an argument moves into it."""
    name: Any = ins.argval
    if name in frame.cells:  # CPython takes one variable for another, and makes a cell of the cell
        raise CaptureBreak(Break.B001, None, opname=f"{ins.op} of a cell", version=VERSION)
    if name in frame.locals:
        frame.cells[name] = types.CellType(frame.locals.pop(name))
    else:
        frame.cells[name] = types.CellType()


def load_closure(frame: Frame, ins: Instruction) -> None:
    """Push the cell itself; in a comprehension that has the slot for a variable of its own, that."""
    name: Any = ins.argval
    if name in frame.cells:
        frame.stack.append(frame.cells[name])
    else:
        load_fast(frame, ins)


def load_deref(frame: Frame, ins: Instruction) -> None:
    """Push the contents of a cell."""
    frame.stack.append(read_cell(frame, ins.argval))


def read_cell(frame: Frame, name: Any) -> Any:
    """The contents of a cell as the trace sees them."""
    cell = frame.cells[name]
    written = frame.tracer.journal.cells.get(id(cell))
    if written is not None:
        value = written.value
        if value is not DELETED:
            return value
    else:
        source = frame.cell_sources.get(name)
        try:
            value = cell.cell_contents
        except ValueError:
            if source is not None:
                frame.tracer.world.guard(GuardKind.MISSING, source)
        else:
            return value if source is None else frame.tracer.world.read(source, value)
    if name in original_code(frame.code).co_cellvars:
        real.raise_(UnboundLocalError(f"cannot access local variable '{name}' {_UNSET}"))
    return real.raise_(
        NameError(f"cannot access free variable '{name}' {_UNSET} in enclosing scope")
    )


def store_deref(frame: Frame, ins: Instruction) -> None:
    """Pop into a cell; an outside cell keeps its value until the end."""
    _write_cell(frame, ins.argval, frame.stack[-1])
    frame.stack.pop()


def delete_deref(frame: Frame, ins: Instruction) -> None:
    """Empty a cell."""
    read_cell(frame, ins.argval)
    if ins.argval in frame.cell_sources:
        _write_cell(frame, ins.argval, DELETED)
    else:
        del frame.cells[ins.argval].cell_contents  # type: ignore[index]


def _write_cell(frame: Frame, name: Any, value: Any) -> None:
    cell = frame.cells[name]
    if name in frame.cell_sources:
        source = frame.tracer.cell_source(frame, name)
        frame.tracer.journal.write_cell(cell, source, value)
    else:
        cell.cell_contents = value


def load_global(frame: Frame, ins: Instruction) -> None:
    """Push a global or builtin."""
    frame.stack.append(read_global(frame, str(ins.argval)))


def read_global(frame: Frame, name: str) -> Any:
    """A global as the trace sees it."""
    tracer, namespace = frame.tracer, frame.globals
    written = tracer.journal.globals.get(id(namespace))
    # what the module held at the start is no matter
    deleted = written is not None and name in written.values
    if written is not None and deleted:
        if written.values[name] is not DELETED:
            return written.values[name]
    elif name in namespace:
        raw = namespace[name]
        if is_trusted(tracer.world, raw, namespace.get("__name__")):
            tracer.world.note(namespace, name, raw)
            return raw
        world = tracer.world
        base = frame.globals_source
        source = world.child(Global, None, name) if base is None else world.child(Item, base, name)
        return world.read(source, raw)
    if name in frame.builtins:
        if deleted:
            pass
        elif frame.globals_source is None:
            tracer.world.guard(GuardKind.MISSING, tracer.world.child(Global, None, name))
        else:
            tracer.world.note(namespace, name)
        raw = frame.builtins[name]
        if getattr(raw, "__module__", None) == "builtins":
            tracer.world.note(frame.builtins, name, raw)
            return raw
        return tracer.world.read(tracer.world.child(Builtin, None, name), raw)
    if not deleted:
        tracer.world.note(namespace, name)
    tracer.world.note(frame.builtins, name)
    return real.raise_(NameError(f"name '{name}' is not defined", name=name))


def load_name(frame: Frame, ins: Instruction) -> None:
    """In the body of a class: what it has set, or a global."""
    name = str(ins.argval)
    frame.stack.append(frame.locals[name] if name in frame.locals else read_global(frame, name))


def load_classderef(frame: Frame, ins: Instruction) -> None:
    """In the body of a class: what it has set, or a variable of the function around it."""
    name = str(ins.argval)
    frame.stack.append(frame.locals[name] if name in frame.locals else read_cell(frame, name))


def load_locals(frame: Frame, ins: Instruction) -> None:
    """In the body of a class: what it has set so far."""
    frame.stack.append(frame.locals)


def load_from_dict_or_deref(frame: Frame, ins: Instruction) -> None:
    """A name that the dictionary on top has, or a variable of the function around."""
    frame.stack[-1] = _from_dict(frame, str(ins.argval), read_cell)


def load_from_dict_or_global(frame: Frame, ins: Instruction) -> None:
    """A name that the dictionary on top has, or a global."""
    frame.stack[-1] = _from_dict(frame, str(ins.argval), read_global)


def _from_dict(frame: Frame, name: str, otherwise: Callable[[Frame, str], Any]) -> Any:
    found = frame.stack[-1]
    return found[name] if name in found else otherwise(frame, name)


def setup_annotations(frame: Frame, ins: Instruction) -> None:
    """In the body of a class: it has annotations."""
    frame.locals.setdefault("__annotations__", {})


def store_global(frame: Frame, ins: Instruction) -> None:
    """Pop into a global, at the end of the trace."""
    frame.tracer.journal.write_global(frame.globals, str(ins.argval), frame.stack.pop())


def delete_global(frame: Frame, ins: Instruction) -> None:
    """Delete a global, at the end of the trace."""
    name, tracer = str(ins.argval), frame.tracer
    written = tracer.journal.globals.get(id(frame.globals))
    value = written.values.get(name, MISSING) if written is not None else MISSING
    if value is DELETED or (value is MISSING and name not in frame.globals):
        tracer.world.note(frame.globals, name)
        real.raise_(NameError(f"name '{name}' is not defined", name=name))
    if value is MISSING:
        read_global(frame, name)
    elif name not in frame.globals:  # the trace made it: whether it was there before is relied on
        tracer.world.note(frame.globals, name)
    tracer.journal.write_global(frame.globals, name, DELETED)


def load_attr(frame: Frame, ins: Instruction) -> None:
    """Replace the top by one of its attributes."""
    frame.stack[-1] = attributes.load(frame.tracer, frame.stack[-1], str(ins.argval))


def load_super_attr(frame: Frame, ins: Instruction) -> None:
    """`super().name`; the stack holds `super`, the class and the object."""
    kind, *args = frame.stack[-3:]
    # another function of that name, called without arguments
    if kind is not super and not (ins.arg or 0) & 2:
        args = []
    made = frame.tracer.sealed(kind, tuple(args), {})
    frame.stack[-3:] = (attributes.load(frame.tracer, made, str(ins.argval)),)


def store_attr(frame: Frame, ins: Instruction) -> None:
    """`owner.name = value`; the stack holds value, owner."""
    attributes.store(frame.tracer, frame.stack[-1], str(ins.argval), frame.stack[-2])
    del frame.stack[-2:]


def delete_attr(frame: Frame, ins: Instruction) -> None:
    """`del owner.name`."""
    attributes.delete(frame.tracer, frame.stack[-1], str(ins.argval))
    del frame.stack[-1:]


def import_name(frame: Frame, ins: Instruction) -> None:
    """Import for real: it changes nothing when the module is there, and eager would do it too."""
    level, names = frame.stack[-2:]
    load = frame.builtins["__import__"]
    args = (str(ins.argval), frame.globals, None, names, level)
    with torch._C._DisableTorchDispatch():  # tensors a module makes stay: they must not be fakes
        module = real.call(load, args, {})
    for name in {str(ins.argval), getattr(module, "__name__", "")}:
        if name in sys.modules:
            frame.tracer.world.note(sys.modules, name, sys.modules[name])
    frame.stack[-2:] = (module,)


def import_from(frame: Frame, ins: Instruction) -> None:
    """Push an attribute of the module on top."""
    module, name = frame.stack[-1], str(ins.argval)
    try:
        value = attributes.load(frame.tracer, module, name)
    except AttributeError:
        with torch._C._DisableTorchDispatch():
            value = real.apply(__import__, f"{module.__name__}.{name}", None, None, [name])
    frame.stack.append(value)


TABLE: Final = {"delete_name": delete_fast}  # others have their instruction's name
# Only modules and the interactive prompt use these; such code is never a captured frame.
REFUSED: Final = "import_star print_expr"
