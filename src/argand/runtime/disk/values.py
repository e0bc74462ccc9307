"""runtime.disk.values: Python values as data: JSON, and the raw bytes of tensors. No pickle, no eval.

In: values of the kinds listed in ``Writer``, and records (classes the caller names). Out: two sections,
"data" and "tensors", and the same values read back. ``Unstorable`` says what cannot be written down;
reading gives ``Damaged`` for anything unexpected, and never calls anything that was not allowed.

Plain values are themselves, everything else is a list whose first item says what it is.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch.fx.immutable_collections import immutable_dict, immutable_list

from argand.customops.registry import version_of
from argand.ops.layout import extent
from argand.runtime.disk.format import Damaged
from argand.sizes.expressions import Apply, Expr, SizeInt, Symbol

# Operators of these namespaces come with torch and change only with its version.
TORCH_NAMESPACES: Final = frozenset(
    ("aten", "prim", "prims", "mkl", "mkldnn", "onednn", "quantized", "inductor", "higher_order")
)
FUNCTION_ROOTS: Final = frozenset(("torch", "operator", "_operator", "math"))
MAX_CONSTANTS: Final = 256 << 20  # bytes of tensors in one entry: more belongs into the weights
_PLAIN: Final = frozenset((type(None), bool, int, float, str))
_SEQUENCES: Final[Mapping[type, str]] = {tuple: "(", list: "[", immutable_list: "["}
_NAMED: Final = (torch.dtype, torch.layout, torch.memory_format)
_RARE: Final[
    Mapping[type, tuple[str, Callable[[Any], tuple[Any, ...]]]]
] = {  # name, what is written of it
    torch.device: ("device", lambda value: (str(value),)),
    torch.Size: ("size", tuple),
    type(...): ("...", lambda _: ()),
    complex: ("complex", lambda value: (value.real, value.imag)),
    bytes: ("bytes", lambda value: (value.hex(),)),
    slice: ("slice", lambda value: (value.start, value.stop, value.step)),
    range: ("range", lambda value: (value.start, value.stop, value.step)),
    SizeInt: ("open", lambda value: (value.expr,)),  # its sample is of this process
}
# Where functions without a true module live.
_HOMES: Final = (
    *("torch", "torch._C._nn", "torch.functional", "torch.nn.functional", "torch.Tensor"),
    *("torch._C._linalg", "torch._C._fft", "torch._C._special"),
)
Records = tuple[Callable[..., Any], ...]  # classes and functions that data may name
_ATOMS: Final = (Symbol, Apply)
# What reading wrong data can raise.
_WRONG_DATA: Final = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    RuntimeError,
    ArithmeticError,
    AssertionError,
)


class Unstorable(Exception):
    """This value cannot be written to a cache; the text says why."""


class Writer:
    """Values to data; the tensors met are kept in ``blobs``."""

    limit = MAX_CONSTANTS

    def __init__(self, records: Records = ()) -> None:
        self.blobs: list[bytes] = []
        self.size = 0
        self._records = (*records, *_ATOMS)
        self._functions: dict[Any, list[Any]] = {}

    def write(self, value: Any) -> Any:
        """The data of a value."""
        kind: Any = type(value)
        if kind in _PLAIN:
            return value
        if kind in _SEQUENCES:
            return [_SEQUENCES[kind], *map(self.write, value)]
        if kind is dict or kind is immutable_dict:
            return ["{", *([self.write(k), self.write(v)] for k, v in value.items())]
        if kind in self._records:
            fields = [self.write(getattr(value, name)) for name in fields_of(kind)]
            return ["@", kind.__name__, *fields]
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, torch._ops.OpOverload):
            return _write_op(value)
        return self._rare(value, kind)

    def _rare(self, value: Any, kind: type) -> Any:
        if isinstance(value, _NAMED):
            return ["torch", str(value).removeprefix("torch.")]
        if kind in _RARE:
            name, parts = _RARE[kind]
            return [name, *map(self.write, parts(value))]
        if kind is Expr:
            return ["sum", *([times, *map(self.write, product)] for product, times in value.terms)]
        if isinstance(value, torch._ops.HigherOrderOperator):
            return ["of graphs", value.name()]
        if kind in (set, frozenset):
            return [kind.__name__, *sorted(map(self.write, value), key=json.dumps)]
        if callable(value):
            if value in self._records:
                return ["known", value.__name__]
            try:
                return self._functions.setdefault(value, []) or self._function(value)
            except TypeError:  # not hashable
                pass
        raise Unstorable(f"a value of type {kind.__module__}.{kind.__qualname__}")

    def _function(self, value: Any) -> list[Any]:
        known = self._functions[value]
        known[:] = ["function", *name_of_function(value)]
        return known

    def _tensor(self, tensor: torch.Tensor) -> Any:
        plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and not tensor.is_meta
        if not plain or tensor.layout is not torch.strided or tensor.device.type != "cpu":
            raise Unstorable(f"a constant tensor of type {type(tensor).__name__}")
        if tensor.is_conj() or tensor.is_neg() or tensor.is_quantized:
            raise Unstorable("a constant tensor that is conjugated, negated or quantized")
        flat = tensor.detach().as_strided((extent(tensor.shape, tensor.stride()),), (1,))
        data = ctypes.string_at(flat.data_ptr(), flat.numel() * flat.itemsize)
        place, padding = self.size, -len(data) % 64
        self.blobs += (data, bytes(padding))
        self.size += len(data) + padding
        if self.size > self.limit:
            raise Unstorable(f"constants of more than {self.limit >> 20} MiB")
        kind = str(tensor.dtype).removeprefix("torch.")
        layout = [list(tensor.shape), list(tensor.stride())]
        return ["tensor", place, len(data), kind, *layout, tensor.requires_grad]


@functools.cache
def fields_of(kind: Any) -> tuple[str, ...]:
    """The fields a record is built from, in order."""
    named: Any = getattr(kind, "__match_args__", None) or getattr(kind, "__slots__", ())
    return tuple(named)


def _write_op(op: Any) -> list[Any]:
    name = op._schema.name
    version = "" if name.split("::")[0] in TORCH_NAMESPACES else version_of(name)
    if version is None:
        raise Unstorable(f"the custom operator {name}, which has no version")
    return ["op", name, op._overloadname, version]


def name_of_function(function: Any) -> tuple[str, str]:
    """(module, qualified name) under which one of torch's functions or classes is found again."""
    own, name = str(getattr(function, "__module__", "")), str(getattr(function, "__name__", ""))
    path = str(getattr(function, "__qualname__", name))
    for place in ((own, path), (own, name), *((home, name) for home in _HOMES)):
        with contextlib.suppress(Damaged):
            if find_function(*place) is function:
                return place
    raise Unstorable(f"the function {own}.{path}, whose source may change")


def find_function(module: str, path: str) -> Any:
    """A function or class by name, from packages that only change with their version."""
    if module.split(".")[0] not in FUNCTION_ROOTS:
        raise Damaged(f"a function of {module}")
    if module == "torch.Tensor":
        found: Any = torch.Tensor
    elif module not in sys.modules:
        raise Damaged(f"no module {module}")
    else:
        found = sys.modules[module]
    for part in path.split("."):
        found = getattr(found, part, None)
        if isinstance(found, types.ModuleType):  # torch.os.system
            raise Damaged(f"the module {module}.{path}")
    if not callable(found):
        raise Damaged(f"no function {module}.{path}")
    return found


class Reader:
    """Data back to values; ``sizes`` is the table of symbols in them."""

    def __init__(self, tensors: bytes = b"", records: Records = (), sizes: Any = None) -> None:
        self._tensors = tensors
        self._records = {kind.__name__: kind for kind in (*records, *_ATOMS)}
        self._read: Mapping[str, Callable[[list[Any]], Any]] = {
            "(": lambda item: tuple([self.read(x) for x in item[1:]]),
            "[": lambda item: [self.read(x) for x in item[1:]],
            "{": lambda item: {self.read(k): self.read(v) for k, v in item[1:]},
            "@": self._record,
            "known": lambda item: self._records[item[1]],
            "tensor": self._tensor,
            "op": lambda item: read_op(*item[1:4]),
            "of graphs": lambda item: _read_operator_of_graphs(item[1]),
            "function": lambda item: find_function(item[1], item[2]),
            "torch": lambda item: _of_kind(getattr(torch, item[1], None), _NAMED),
            "device": lambda item: torch.device(item[1]),
            "size": lambda item: torch.Size(item[1:]),
            "sum": lambda item: Expr(
                {tuple(map(self.read, product)): int(times) for times, *product in item[1:]}
            ),
            "open": lambda item: sizes.size(self.read(item[1])),
            "...": lambda _: ...,
            "complex": lambda item: complex(item[1], item[2]),
            "bytes": lambda item: bytes.fromhex(item[1]),
            "set": lambda item: set(map(self.read, item[1:])),
            "frozenset": lambda item: frozenset(map(self.read, item[1:])),
            "slice": lambda item: slice(*map(self.read, item[1:4])),
            "range": lambda item: range(item[1], item[2], item[3]),
        }

    def read(self, item: Any) -> Any:
        """The value of data."""
        if type(item) is not list:
            return item
        return self._read[item[0]](item)

    def _record(self, item: list[Any]) -> Any:
        kind = self._records[item[1]]
        if len(item) - 2 != len(fields_of(kind)):
            raise Damaged(f"a {item[1]} with {len(item) - 2} fields")
        return kind(*[self.read(x) for x in item[2:]])

    def _tensor(self, item: list[Any]) -> torch.Tensor:
        _, place, length, kind, shape, strides, requires_grad = item
        dtype = _of_kind(getattr(torch, kind, None), torch.dtype)
        count = extent(tuple(shape), tuple(strides))
        if (
            min((place, length, *shape, *strides), default=0) < 0
            or count * dtype.itemsize != length
        ):
            raise Damaged("a tensor that does not fit its bytes")
        if place + length > len(self._tensors):
            raise Damaged("a tensor outside of the file")
        if length == 0:
            return torch.empty_strided(shape, strides, dtype=dtype).requires_grad_(requires_grad)
        data = bytearray(self._tensors[place : place + length])
        flat = torch.frombuffer(data, dtype=torch.uint8).clone()
        return flat.view(dtype).as_strided(shape, strides).requires_grad_(requires_grad)


def _of_kind(value: Any, kinds: Any) -> Any:
    if not isinstance(value, kinds):
        raise Damaged(f"{value!r} is of another kind")
    return value


def _read_operator_of_graphs(name: str) -> Any:
    from argand.ops.control_flow import RESULTS  # noqa: PLC0415  # rarely in a graph

    for known in RESULTS:
        if known.name() == name:
            return known
    raise Damaged(f"no operator of graphs {name}")


def read_op(name: str, overload: str, version: str) -> Any:
    """An operator that comes with torch, or one of the user's in the version it had."""
    space, _, rest = name.partition("::")
    if space not in TORCH_NAMESPACES and (not version or version_of(name) != version):
        raise Damaged(f"operator {name} is not here, or of another version")
    found = getattr(getattr(getattr(torch.ops, space), rest, None), overload or "default", None)
    return _of_kind(found, torch._ops.OpOverload)


def dump(value: Any, records: Records = ()) -> dict[str, bytes]:
    """The sections of a value; ``Unstorable`` when something in it has no data form."""
    writer = Writer(records)
    return sections_of(writer, writer.write(value))


def sections_of(writer: Writer, data: Any) -> dict[str, bytes]:
    """Sections from data that a writer made."""
    text = json.dumps(data, separators=(",", ":")).encode()
    return {"data": text, "tensors": b"".join(writer.blobs)}


def load(sections: Mapping[str, bytes], records: Records = ()) -> Any:
    """The value of sections; ``Damaged`` when they do not hold one."""
    return guarded(lambda: Reader(sections["tensors"], records).read(json.loads(sections["data"])))


def guarded(read: Callable[[], Any]) -> Any:
    """The result of ``read``, where whatever wrong data can raise comes out as ``Damaged``."""
    try:
        return read()
    except Damaged:
        raise
    except _WRONG_DATA as error:
        raise Damaged(f"{type(error).__name__}: {error}") from None
