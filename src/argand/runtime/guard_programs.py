"""runtime.guard_programs: guard rows become a C guard program.

In: the guards and the sources to collect, as capture found them, and the code object of the frame.
Out: a ``GuardProgram``. The sources are put into one tree, so that each path is walked once; below a
dict (or class) the leaves whose checks can only change with it come first, where the C code skips
them as long as the dict is unchanged. Fails with ``InternalError`` for a row that makes no sense.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, final

import torch

from argand.runtime import _native, sources, state, tensors
from argand.runtime.constants import SCALARS, is_constant
from argand.runtime.guards import Guard, GuardKind, Relation, Sum, SumFactor, TensorSpec
from argand.runtime.sources import Source
from argand.support.errors import InternalError


@final
class Op:
    """How a node gets its value from its parent. The C code knows the numbers."""

    LOCAL, GLOBALS, BUILTINS, FUNCTION, CONST, ATTR, DICT_OF, ITEM = range(8)
    CLOSURE_CELL, CONTENTS, DEFAULTS, KW_DEFAULTS, TYPE_OF, TYPE_ATTR, SIZE_OF, QUOTIENT = range(
        8, 16
    )
    KEYED, MADE = 16, 17


# The steps from the base of a source (or from the frame) to it, each with the field it takes.
_STEPS_TO: Final[dict[type, tuple[tuple[int, str], ...]]] = {
    sources.Global: ((Op.GLOBALS, ""), (Op.ITEM, "name")),
    sources.Builtin: ((Op.BUILTINS, ""), (Op.ITEM, "name")),
    sources.FrameFunction: ((Op.FUNCTION, ""),),
    sources.Const: ((Op.CONST, "value"),),
    sources.Attr: ((Op.ATTR, "name"),),
    sources.DictAttr: ((Op.DICT_OF, ""), (Op.ITEM, "name")),
    sources.DictOf: ((Op.DICT_OF, ""),),
    sources.Item: ((Op.ITEM, "key"),),
    sources.Keyed: ((Op.KEYED, "reference"),),
    sources.ClosureCell: ((Op.CLOSURE_CELL, "index"),),
    sources.Closure: ((Op.CLOSURE_CELL, "index"), (Op.CONTENTS, "")),
    sources.Defaults: ((Op.DEFAULTS, "index"),),
    sources.KwDefaults: ((Op.KW_DEFAULTS, ""), (Op.ITEM, "name")),
    sources.TypeOf: ((Op.TYPE_OF, ""),),
    sources.TypeAttr: ((Op.TYPE_ATTR, "name"),),
    sources.SizeOf: ((Op.SIZE_OF, "index"),),
    sources.StrideOf: ((Op.SIZE_OF, "index"),),
    sources.OffsetOf: ((Op.SIZE_OF, "index"),),
    sources.Quotient: ((Op.QUOTIENT, "divisor"),),
    sources.MadeFrom: ((Op.MADE, "function"),),
}
_PLAIN_KEYS: Final = frozenset({str, int, bool, float, bytes, type(None)})
_PLAIN_TENSORS: Final = frozenset({torch.Tensor, torch.nn.Parameter})
# Numbers, not members: hashing a member of an enumeration runs Python code.
_APPLY: Final = ("//", "%", "min", "max")  # of relations; the C code knows the places
_OF_DICT: Final = frozenset(
    map(
        int,
        (GuardKind.LENGTH, GuardKind.DICT_KEYS, GuardKind.DICT_CONTAINS, GuardKind.DICT_MISSING),
    )
) | {int(GuardKind.OBJECT_KEYS)}
# what an unchanged dict or class answers
_OF_VERSION: Final = frozenset({Op.ITEM, Op.KEYED, Op.TYPE_ATTR})
_BY_IDENTITY: Final = frozenset(
    map(int, (GuardKind.TYPE_IS, GuardKind.ID_IS, GuardKind.WEAK_ALIVE))
)
_HEAP_TYPE: Final = 1 << 9  # Py_TPFLAGS_HEAPTYPE: only instances of such can change their class


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


@final
class _Node:
    """A place on the way to some sources, and what is checked there."""

    __slots__ = ("checks", "children", "expected_type", "number", "op", "operand", "parent", "size")

    def __init__(self, op: int, operand: Any, parent: _Node | None) -> None:
        self.op, self.operand, self.parent = op, operand, parent
        self.children: dict[tuple[int, Any], _Node] = {}
        self.checks: list[tuple[int, int, Any]] = []  # kind, row, expected
        self.expected_type: type | None = None
        self.number = -1
        self.size = 1  # nodes below and including this one; 0: a stable leaf

    def is_stable(self) -> bool:
        """A leaf under a dict or class that can only change together with it."""
        if self.children or self.op not in _OF_VERSION:
            return False
        return all(_is_stable(kind, expected) for kind, _, expected in self.checks)

    def is_versioned(self) -> bool:
        return any(check[0] in _OF_DICT for check in self.checks) or any(
            child.op in _OF_VERSION for child in self.children.values()
        )

    def arranged(self) -> list[_Node]:
        """Its children: stable leaves first, then the cheap ones."""
        children = list(self.children.values())
        return children if len(children) < 2 else sorted(children, key=_size)


def _size(node: _Node) -> int:
    return node.size


def _is_stable(kind: int, expected: object) -> bool:
    if kind == GuardKind.EQUALS:
        return is_constant(expected)
    if kind == GuardKind.TYPE_IS:
        return isinstance(expected, type) and not expected.__flags__ & _HEAP_TYPE
    return kind in _BY_IDENTITY or kind == GuardKind.MISSING


@final
class _Builder:
    """Puts sources into a tree and lays it out."""

    def __init__(self, code: types.CodeType) -> None:
        self.root = _Node(Op.CONST, None, None)  # not laid out; its children are the roots
        self.nodes: list[_Node] = []
        self.memo: dict[int, _Node] = {}
        self.slots: dict[str, int] = {}
        self.free = {name: i for i, name in enumerate(code.co_freevars)}
        cells = [name for name in code.co_cellvars if name not in code.co_varnames]
        for i, name in enumerate((*code.co_varnames, *cells)):  # CPython's order of fast locals
            self.slots[name] = i
        self.held: list[object] = []
        self.watched: dict[int, object] = {}
        self.owning = False

    def child(self, parent: _Node, op: int, operand: Any = None) -> _Node:
        key = (op, id(operand) if op == Op.CONST else operand)
        node = parent.children.get(key)
        if node is None:
            node = parent.children[key] = _Node(op, operand, parent)
            self.nodes.append(node)
            exotic = op == Op.ITEM and type(operand) not in _PLAIN_KEYS
            self.owning |= exotic or op in (Op.ATTR, Op.SIZE_OF, Op.QUOTIENT, Op.KEYED, Op.MADE)
        return node

    def node(self, source: Source) -> _Node:
        found = self.memo.get(id(source))
        if found is None:
            found = self.memo[id(source)] = self._place(source)
        return found

    def _place(self, source: Any) -> _Node:
        kind = type(source)
        if kind is sources.Local or kind is sources.Cell:
            return self._variable(source.name)
        if kind is sources.Const:
            self.held.append(source.value)
        if kind is sources.Object:
            self.watched[id(source.reference())] = source.reference()
            return self.child(self.root, Op.CONST, source.reference())
        node = self.root if source.base is None else self.node(source.base)
        if kind is sources.TypeOf and node.expected_type is not None:
            # Where a guard fixes the class, it is that class, shared by all such values.
            self.watched[id(node.expected_type)] = node.expected_type
            return self.child(self.root, Op.CONST, node.expected_type)
        for op, field in _STEPS_TO[kind]:
            node = self.child(node, op, getattr(source, field) if field else None)
        return node

    def _variable(self, name: str) -> _Node:
        if name in self.free:
            function = self.child(self.root, Op.FUNCTION)
            return self.child(self.child(function, Op.CLOSURE_CELL, self.free[name]), Op.CONTENTS)
        if name not in self.slots:
            raise InternalError("guards", f"the frame has no variable {name!r}")
        return self.child(self.root, Op.LOCAL, self.slots[name])

    def lay_out(self) -> list[_Node]:
        """All nodes, parents first, stable leaves right behind their parent, cheap roots first."""
        for node in reversed(self.nodes):  # children are younger than their parents
            if node.is_stable():
                node.size = 0
            elif node.parent is not None:
                node.parent.size += node.size
        order: list[_Node] = []
        stack = self.root.arranged()[::-1]
        while stack:
            node = stack.pop()
            node.number = len(order)
            order.append(node)
            if node.children:
                stack += node.arranged()[::-1]
        return order


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
        (kind, node.number, number, kind in _OF_DICT, expected)
        for node in layout
        for kind, number, expected in node.checks
    ]
    checks += [
        (int(rows[number].kind), -1, number, False, _numbered(found))
        for number, found in enumerate(loose)
        if found is not None
    ]
    program = GuardProgram(
        [_node_row(node) for node in layout],
        checks,
        [node.number for node in collected],
        builder.held,
        list(builder.watched.values()),
        builder.owning,
    )
    program.guards = tuple(_weakly(row) for row in rows)
    program.collect = tuple(collect)
    return program


def _node_row(node: _Node) -> tuple[int, int, int, bool, Any]:
    parent = node.parent.number if node.parent is not None else -1
    if not node.children:
        return (node.op, parent, node.number + 1, node.is_versioned(), node.operand)
    stable = sum(child.size == 0 for child in node.children.values())
    return (node.op, parent, node.number + 1 + stable, node.is_versioned(), node.operand)


def _attach(builder: _Builder, number: int, row: Guard) -> object | None:
    """Hang a row on its node; a row of several nodes is returned with nodes for sources."""
    kind, expected = row.kind, row.expected
    if kind is GuardKind.GLOBAL_STATE:
        rows = state.snapshot() if expected is None else expected
        builder.owning |= expected is not None or len(rows) > 2 * len(state.READERS)
        return rows
    if kind is GuardKind.TABLES:
        return expected
    if row.source is None:
        raise InternalError("guards", f"{kind.name} needs a source")
    node = builder.node(row.source)
    place = _OF_MANY.get(int(kind))
    if place is not None:
        return place(builder, node, expected)
    node.checks.append((int(kind), number, _payload(builder, node, kind, expected)))
    return None


def _several(builder: _Builder, node: _Node, sources: Iterable[Source]) -> object:
    return (node, *(builder.node(source) for source in sources))


def _relation(builder: _Builder, node: _Node, relation: Relation) -> object:
    return (relation.operator, *[_side(builder, s) for s in (relation.left, relation.right)])


def _side(builder: _Builder, side: Sum) -> object:
    return tuple(
        (times, tuple(_factor(builder, factor) for factor in product)) for times, product in side
    )


def _factor(builder: _Builder, factor: SumFactor) -> object:
    if not isinstance(factor, tuple):
        return builder.node(factor)
    name, left, right = factor
    return (_APPLY.index(name), _side(builder, left), _side(builder, right))


_OF_MANY: Final[dict[int, Callable[[_Builder, _Node, Any], object]]] = {
    int(GuardKind.NOT_ALIASED): _several,
    int(GuardKind.NO_OVERLAP): _several,
    int(GuardKind.SAME_OBJECT): lambda builder, node, other: (node, builder.node(other)),
    int(GuardKind.RELATION): _relation,
}


def _payload(builder: _Builder, node: _Node, kind: GuardKind, expected: Any) -> Any:
    """The expected value as the C code wants it."""
    number = int(kind)
    if number in _BY_IDENTITY:
        builder.watched[id(expected)] = expected
        return None if kind is GuardKind.WEAK_ALIVE else expected
    if number in _OF_DICT:
        builder.owning |= _asks_python(node, kind, expected)
        return expected
    if kind is GuardKind.TENSOR:
        return _tensor_row(builder, expected)
    if kind is GuardKind.EQUALS:
        if type(expected) in SCALARS:
            return expected
        builder.owning |= not _compares_in_c(expected)
        return _private(expected)
    builder.owning |= kind is GuardKind.HAS_ATTR or kind is GuardKind.NO_ATTR
    return expected


def _asks_python(node: _Node, kind: GuardKind, expected: object) -> bool:
    """Whether a check of a container may run code of the user's classes."""
    if kind is not GuardKind.LENGTH:
        return (
            kind not in (GuardKind.DICT_KEYS, GuardKind.OBJECT_KEYS)
            and type(expected) not in _PLAIN_KEYS
        )
    held = node.expected_type
    return bool(
        held is not None
        and held.__flags__ & _HEAP_TYPE
        and not issubclass(held, list | tuple | dict)
    )


def _tensor_row(builder: _Builder, spec: TensorSpec) -> tuple[object, ...]:
    kind, header = spec.python_type, tensors.header_of(spec.dtype, spec.device)
    builder.watched[id(kind)] = kind
    builder.owning |= kind not in _PLAIN_TENSORS
    return (kind, spec.keys, header, spec.requires_grad, spec.sizes, spec.strides, spec)


def _numbered(found: object) -> object:
    """Nodes in nested tuples become their numbers."""
    if isinstance(found, _Node):
        return found.number
    return tuple(_numbered(item) for item in found) if isinstance(found, tuple) else found


def _weakly(row: Guard) -> Guard:
    """The row as kept for explanations, which must not keep the user's objects alive."""
    if int(row.kind) not in _BY_IDENTITY:
        return row
    try:
        return Guard(row.kind, row.source, weakref.ref(row.expected), row.where)
    except TypeError:
        return row
