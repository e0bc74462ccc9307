"""runtime.programs: guard rows become a C guard program.

In: the guards and the sources to collect, as capture found them, and the code object of the frame.
Out: a ``GuardProgram``. The sources are put into one tree, so that each path is walked once; below a
dict (or class) the leaves whose checks can only change with it come first, where the C code skips
them as long as the dict is unchanged. Fails with ``InternalError`` for a row that makes no sense.
"""

from __future__ import annotations

import enum
import types
import weakref
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, final

import torch

from argand.runtime import _native, guards, state, tensors
from argand.runtime.guards import Guard, GuardKind, Source, TensorSpec
from argand.support.errors import InternalError


@final
class Op(enum.IntEnum):
    """How a node gets its value from its parent. The C code knows the numbers."""

    LOCAL = 0
    GLOBALS = 1
    BUILTINS = 2
    FUNCTION = 3
    CONST = 4
    ATTR = 5
    DICT_OF = 6
    ITEM = 7
    CLOSURE_CELL = 8
    CONTENTS = 9
    DEFAULTS = 10
    KW_DEFAULTS = 11
    TYPE_OF = 12
    TYPE_ATTR = 13
    SIZE_OF = 14


_SCALARS: Final = frozenset(
    {type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented)}
    | {torch.dtype, torch.layout, torch.memory_format}
)
_PLAIN_KEYS: Final = frozenset({str, int, bool, float, bytes, type(None)})
_PLAIN_TENSORS: Final = (torch.Tensor, torch.nn.Parameter)
_OF_DICT: Final = frozenset(
    {GuardKind.LENGTH, GuardKind.DICT_KEYS, GuardKind.DICT_CONTAINS, GuardKind.DICT_MISSING}
)
_OF_MANY: Final = frozenset(
    {
        GuardKind.GLOBAL_STATE,
        GuardKind.NOT_ALIASED,
        GuardKind.NO_OVERLAP,
        GuardKind.SAME_OBJECT,
        GuardKind.RELATION,
    }
)
_HEAP_TYPE: Final = 1 << 9  # Py_TPFLAGS_HEAPTYPE: only instances of such can change their class


def is_constant(value: object) -> bool:
    """Whether a value and all in it can never change."""
    if type(value) in _SCALARS or isinstance(value, enum.Enum | types.BuiltinFunctionType):
        return True
    if type(value) in {tuple, frozenset, torch.Size}:
        return all(is_constant(item) for item in value)  # type: ignore[attr-defined]
    return type(value) in {range, slice, torch.device}


def _compares_in_c(value: object) -> bool:
    """Whether comparing with the value runs no Python code."""
    if type(value) in {list, tuple, set, frozenset, torch.Size}:
        return all(_compares_in_c(item) for item in value)  # type: ignore[attr-defined]
    if type(value) is dict:
        return all(_compares_in_c(item) for pair in value.items() for item in pair)
    return is_constant(value)


def _private(value: Any) -> Any:
    """A copy of containers the user could change behind the guard's back."""
    if type(value) in {list, tuple, set, frozenset}:
        return type(value)(_private(item) for item in value)
    if type(value) is dict:
        return {key: _private(item) for key, item in value.items()}
    return value


@dataclass(slots=True, eq=False)
class _Node:
    op: Op
    operand: Any
    children: dict[Hashable, _Node] = field(default_factory=dict)
    checks: list[tuple[GuardKind, int, Any]] = field(default_factory=list)  # kind, row, expected
    number: int = -1
    size: int = 1
    expected_type: type | None = None

    def is_stable(self) -> bool:
        """A leaf under a dict or class that can only change together with it."""
        if self.children or self.op not in {Op.ITEM, Op.TYPE_ATTR}:
            return False
        return all(_is_stable(kind, expected) for kind, _, expected in self.checks)

    def is_versioned(self) -> bool:
        return any(kind in _OF_DICT for kind, _, _ in self.checks) or any(
            child.op in {Op.ITEM, Op.TYPE_ATTR} for child in self.children.values()
        )


def _is_stable(kind: GuardKind, expected: object) -> bool:
    if kind is GuardKind.EQUALS:
        return is_constant(expected)
    if kind is GuardKind.TYPE_IS:
        return isinstance(expected, type) and not expected.__flags__ & _HEAP_TYPE
    return kind in {GuardKind.ID_IS, GuardKind.MISSING, GuardKind.WEAK_ALIVE}


@final
class _Builder:
    """Puts sources into a tree and lays it out."""

    def __init__(self, code: types.CodeType) -> None:
        self.root = _Node(Op.CONST, None)  # not laid out; its children are the roots
        self.memo: dict[int, _Node] = {}
        count = len(code.co_varnames) + len(code.co_cellvars) + len(code.co_freevars)
        self.slots: dict[str, int] = {}
        self.free = {name: i for i, name in enumerate(code.co_freevars)}
        for i in range(count):
            try:
                self.slots.setdefault(code._varname_from_oparg(i), i)  # type: ignore[attr-defined]
            except IndexError:
                break  # arguments that are cells are counted twice above
        self.held: list[object] = []
        self.watched: dict[int, object] = {}
        self.owning = False

    def child(self, parent: _Node, op: Op, operand: Any = None) -> _Node:
        key = (op, id(operand) if op is Op.CONST else operand)
        node = parent.children.get(key)
        if node is None:
            node = parent.children[key] = _Node(op, operand)
            self.owning |= op in {Op.ATTR, Op.SIZE_OF}
            self.owning |= op is Op.ITEM and type(operand) not in _PLAIN_KEYS
        return node

    def node(self, source: Source) -> _Node:
        found = self.memo.get(id(source))
        if found is None:
            found = self.memo[id(source)] = self._place(source)
        return found

    def _place(self, source: Source) -> _Node:  # noqa: C901, one row per kind of source
        child, node, root = self.child, self.node, self.root
        match source:
            case guards.Local(name):
                return child(root, Op.LOCAL, self._slot(name))
            case guards.Cell(name) if name in self.free:
                cell = child(child(root, Op.FUNCTION), Op.CLOSURE_CELL, self.free[name])
                return child(cell, Op.CONTENTS)
            case guards.Cell(name):
                return child(root, Op.LOCAL, self._slot(name))
            case guards.Global(name):
                return child(child(root, Op.GLOBALS), Op.ITEM, name)
            case guards.Builtin(name):
                return child(child(root, Op.BUILTINS), Op.ITEM, name)
            case guards.FrameFunction():
                return child(root, Op.FUNCTION)
            case guards.Const(value):
                self.held.append(value)
                return child(root, Op.CONST, value)
            case guards.Attr(base, name):
                return child(node(base), Op.ATTR, name)
            case guards.DictAttr(base, name):
                return child(child(node(base), Op.DICT_OF), Op.ITEM, name)
            case guards.DictOf(base):
                return child(node(base), Op.DICT_OF)
            case guards.Item(base, key):
                return child(node(base), Op.ITEM, key)
            case guards.ClosureCell(base, index):
                return child(node(base), Op.CLOSURE_CELL, index)
            case guards.Contents(base):
                return child(node(base), Op.CONTENTS)
            case guards.Closure(base, index):
                return child(child(node(base), Op.CLOSURE_CELL, index), Op.CONTENTS)
            case guards.Defaults(base, index):
                return child(node(base), Op.DEFAULTS, index)
            case guards.KwDefaults(base, name):
                return child(child(node(base), Op.KW_DEFAULTS), Op.ITEM, name)
            case guards.TypeOf(base):
                return self._type_of(node(base))
            case guards.TypeAttr(base, name):
                return child(node(base), Op.TYPE_ATTR, name)
            case guards.SizeOf(base, dim):
                return child(node(base), Op.SIZE_OF, dim)

    def _slot(self, name: str) -> int:
        slot = self.slots.get(name)
        if slot is None:
            raise InternalError("guards", f"the frame has no variable {name!r}")
        return slot

    def _type_of(self, base: _Node) -> _Node:
        """The class of a value; where a guard fixes it, that class, shared by all such values."""
        if base.expected_type is None:
            return self.child(base, Op.TYPE_OF)
        self.watch(base.expected_type)
        return self.child(self.root, Op.CONST, base.expected_type)

    def watch(self, value: object) -> None:
        self.watched[id(value)] = value

    def lay_out(self) -> list[_Node]:
        """All nodes, parents first, stable leaves right behind their parent, cheap roots first."""
        order: list[_Node] = []
        _measure(self.root)
        stack = _arranged(self.root)[::-1]
        while stack:
            node = stack.pop()
            node.number = len(order)
            order.append(node)
            stack += _arranged(node)[::-1]
        return order


def _measure(root: _Node) -> None:
    """Sizes of all subtrees, without recursion: chains can be long."""
    order, stack = [], [root]
    while stack:
        order.append(node := stack.pop())
        stack += node.children.values()
    for node in reversed(order):
        node.size = 1 + sum(child.size for child in node.children.values())


def _arranged(node: _Node) -> list[_Node]:
    return sorted(node.children.values(), key=lambda child: (not child.is_stable(), child.size))


@final
class GuardProgram(_native.Program):
    """A compiled set of guards; ``check(view)`` gives the collected values or the failing row."""

    guards: tuple[Guard, ...]  # what ID_IS rows expect is a weak reference here
    collect: tuple[Source, ...]


def compile_guards(
    rows: Iterable[Guard], collect: Sequence[Source], code: types.CodeType
) -> GuardProgram:
    """The program of these guards for frames of ``code``."""
    tensors.prepare()
    rows = tuple(rows)
    builder = _Builder(code)
    for row in rows:  # first, so that TypeOf sources find what is already known
        if row.kind is GuardKind.TYPE_IS and row.source is not None:
            builder.node(row.source).expected_type = row.expected
    loose = [_attach(builder, number, row) for number, row in enumerate(rows)]
    collected = [builder.node(source) for source in collect]
    layout = builder.lay_out()
    checks = [
        (int(kind), node.number, number, kind in _OF_DICT, expected)
        for node in layout
        for kind, number, expected in node.checks
    ]
    checks += [
        (int(row.kind), -1, number, False, _numbered(found))
        for number, (row, found) in enumerate(zip(rows, loose, strict=True))
        if found is not None
    ]
    program = GuardProgram(
        _node_rows(layout),
        checks,
        [node.number for node in collected],
        builder.held,
        list(builder.watched.values()),
        builder.owning,
    )
    program.guards = tuple(_weakly(row) for row in rows)
    program.collect = tuple(collect)
    return program


def _node_rows(layout: list[_Node]) -> list[tuple[int, int, int, bool, Any]]:
    parents = {id(child): node.number for node in layout for child in node.children.values()}
    found = []
    for node in layout:
        stable = sum(child.is_stable() for child in node.children.values())
        live = node.number + 1 + stable
        parent = parents.get(id(node), -1)
        found.append((int(node.op), parent, live, node.is_versioned(), node.operand))
    return found


def _attach(builder: _Builder, number: int, row: Guard) -> object | None:
    """Hang a row on its node; a row of several nodes is returned with nodes for sources."""
    kind, expected = row.kind, row.expected
    if kind is GuardKind.GLOBAL_STATE:
        rows = state.snapshot() if expected is None else expected
        builder.owning |= len(rows) > 2 * len(state.READERS)
        return rows
    if row.source is None:
        raise InternalError("guards", f"{kind.name} needs a source")
    node = builder.node(row.source)
    if kind in {GuardKind.NOT_ALIASED, GuardKind.NO_OVERLAP}:
        return (node, *(builder.node(source) for source in expected))
    if kind is GuardKind.SAME_OBJECT:
        return (node, builder.node(expected))
    if kind is GuardKind.RELATION:
        sides = [
            tuple((factor, tuple(builder.node(s) for s in product)) for factor, product in side)
            for side in (expected.left, expected.right)
        ]
        return (expected.operator, *sides)
    node.checks.append((kind, number, _payload(builder, node, kind, expected)))
    return None


def _payload(builder: _Builder, node: _Node, kind: GuardKind, expected: Any) -> Any:
    """The expected value as the C code wants it."""
    if kind in {GuardKind.TYPE_IS, GuardKind.ID_IS, GuardKind.WEAK_ALIVE}:
        builder.watch(expected)
        return None if kind is GuardKind.WEAK_ALIVE else expected
    if kind is GuardKind.EQUALS:
        builder.owning |= not _compares_in_c(expected)
        return _private(expected)
    if kind is GuardKind.TENSOR:
        builder.watch(expected.python_type)
        builder.owning |= expected.python_type not in _PLAIN_TENSORS
        return _tensor_row(expected)
    if kind in {GuardKind.HAS_ATTR, GuardKind.NO_ATTR}:
        builder.owning = True
    if kind is GuardKind.LENGTH:  # __len__ of a class of the user is Python code
        builder.owning |= bool(
            node.expected_type is not None
            and node.expected_type.__flags__ & _HEAP_TYPE
            and not issubclass(node.expected_type, list | tuple | dict)
        )
    if kind in {GuardKind.DICT_CONTAINS, GuardKind.DICT_MISSING}:
        builder.owning |= type(expected) not in _PLAIN_KEYS
    return expected


def _tensor_row(spec: TensorSpec) -> tuple[object, ...]:
    header = tensors.header_of(spec.dtype, spec.device)
    return (
        spec.python_type,
        spec.keys,
        header,
        spec.requires_grad,
        spec.sizes,
        spec.strides,
        spec,
    )


def _numbered(found: object) -> object:
    """Nodes in nested tuples become their numbers."""
    if isinstance(found, _Node):
        return found.number
    return tuple(_numbered(item) for item in found) if isinstance(found, tuple) else found


def _weakly(row: Guard) -> Guard:
    """The row as kept for explanations, which must not keep the user's objects alive."""
    if row.kind not in {GuardKind.ID_IS, GuardKind.WEAK_ALIVE, GuardKind.TYPE_IS}:
        return row
    try:
        return replace(row, expected=weakref.ref(row.expected))
    except TypeError:
        return row
