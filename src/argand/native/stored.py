"""native.stored: compiled graphs, from the disk cache when they were compiled before.

In: an aten graph, example inputs, options. Out: a ``CompiledGraph``. A hit reads rows and machine code and
imports nothing of the code generator; a miss compiles (``native.compile``) and stores. The key is the
graph with the metadata of all its values, its constants, the options and all versions; the machine is
a second part, so that entries built for one can be given to another that can do at least as much.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, final

import llvmlite
import torch
from torch.fx import GraphModule

from argand.native.codegen.elf import load
from argand.native.codegen.target import machine_key, machine_parts
from argand.protocol import Bypass, CompiledGraph
from argand.runtime.convolution import PackedConvolution
from argand.runtime.disk import values
from argand.runtime.disk.format import Damaged
from argand.runtime.disk.graphs import GraphWriter, constants_of, spec_of, write_graph
from argand.runtime.disk.keys import about, environment, hexdigest, make_key, options_part, state_part
from argand.runtime.disk.store import open_store
from argand.runtime.plans import Detached, Rows, check_flag, link
from argand.support import events
from argand.support.options import Options


class Named(NamedTuple):
    """A constant of the graph: its attribute there, and its value when the graph was compiled."""

    name: str
    tensor: torch.Tensor


_KNOWN: Final = (Named, Rows, Detached, check_flag, PackedConvolution)


@final
class Compiled(NamedTuple):
    """Machine code and plan of one graph."""

    code: bytes
    code_key: str  # the entry of the object code; empty: no kernels
    functions: tuple[str, ...]
    rows: Rows


class GraphText(NamedTuple):
    """An aten graph as data, and its key without the machine."""

    rows: list[Any]
    tensors: bytes
    parts: dict[str, str]
    key: str


@final
class GraphCompiler:
    """``compile_graph`` with its options, and what the autograd cache asks of a compiler."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def __call__(self, module: GraphModule, example_inputs: Sequence[Any]) -> CompiledGraph:
        """Compile an aten graph, or load it."""
        text = self.text(module, example_inputs)
        constants = constants_of(module)
        if text is not None:
            found = self.load(text.key, constants)
            if found is not None:
                return found
        from argand.native.compile import build, interpreted  # noqa: PLC0415  # only on a miss

        if (other := interpreted(module)) is not None:
            return CompiledGraph(other, boxed=True, key=Bypass("it is not functional"))
        compiled = build(module, example_inputs, self.options)
        if text is not None:
            self._store(text, compiled, constants)
        with events.stage("native.load"):
            return _linked(compiled, text.key if text else Bypass("the graph is not cached"))

    def text(self, module: GraphModule, example_inputs: Sequence[Any]) -> GraphText | None:
        """The graph as data; None, with a count of why, when it cannot be cached."""
        if not self.options.cache:
            return None
        try:
            return _text(module, example_inputs, self.options)
        except values.Unstorable as reason:
            events.count("cache.bypass", detail=f"graph: {reason}")
            return None

    def load(self, key: str, constants: Mapping[str, Any] | None = None) -> CompiledGraph | None:
        """The graph of a key; ``constants``: the tensors to use, instead of copies."""
        store = open_store(self.options)
        found = store and store.get(machine_key(key), kind="graph")
        if store is None or found is None:
            return None
        try:
            with events.stage("native.load"):
                compiled = _read(found, constants or {})
                if compiled.code_key:
                    code = store.get(machine_key(compiled.code_key), kind="object")
                    if code is None:
                        return None
                    compiled = compiled._replace(code=code["code"])
                return _linked(compiled, key)
        except (Damaged, KeyError) as error:
            store.set_aside(machine_key(key), error)
            return None

    def _store(self, text: GraphText, compiled: Compiled, constants: Mapping[str, Any]) -> None:
        store = open_store(self.options)
        names = {_place(t): n for n, t in constants.items() if isinstance(t, torch.Tensor)}

        def named(row: Any) -> Any:
            value = row[-1]
            name = names.get(_place(value)) if isinstance(value, torch.Tensor) else None
            return row if name is None else (*row[:-1], Named(name, value))

        rows = compiled.rows._replace(buffers=tuple(map(named, compiled.rows.buffers)))
        try:
            sections = values.dump((rows, compiled.functions, compiled.code_key), _KNOWN)
        except values.Unstorable as reason:
            events.count("cache.bypass", detail=f"graph: {reason}")
            return
        sections["about"] = about("graph", text.parts, **machine_parts(text.key))
        if store is not None:
            store.put(machine_key(text.key), sections)


def _text(module: GraphModule, example_inputs: Sequence[Any], options: Options) -> GraphText:
    writer = GraphWriter()
    rows = write_graph(module, writer, values=True)
    inputs = [spec_of(x, module.meta.get("sizes")) for x in example_inputs]
    tensors = b"".join(writer.blobs)
    parts = {
        "graph": hexdigest(json.dumps([rows, inputs, module.meta.get("writes")]).encode(), tensors),
        "options": options_part(options),
        "state": state_part(),
        "llvmlite": llvmlite.__version__,
        **environment(),
    }
    return GraphText(rows, tensors, parts, make_key("graph", parts))


def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
    return (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)


def _read(sections: Mapping[str, bytes], constants: Mapping[str, Any]) -> Compiled:
    found = values.load(sections, _KNOWN)
    if type(found) is not tuple or [type(item) for item in found] != [Rows, tuple, str]:
        raise Damaged("no plan")
    rows, functions, code_key = found

    def bound(row: Any) -> Any:
        value = row[-1]
        if not isinstance(value, Named):
            return row
        live = constants.get(value.name)
        return (*row[:-1], value.tensor if live is None else live.detach())

    return Compiled(b"", code_key, functions, rows._replace(buffers=tuple(map(bound, rows.buffers))))


def _linked(compiled: Compiled, key: str | Bypass) -> CompiledGraph:
    addresses: dict[str, int] = {}
    loaded = None
    if compiled.functions:
        loaded = load(compiled.code)
        addresses = {name: loaded.address(name) for name in compiled.functions}
    with contextlib.suppress(KeyError):
        return CompiledGraph(link(compiled.rows, addresses, loaded), boxed=True, key=key)
    raise Damaged("a kernel without code")
