"""native.graph_cache: compiled graphs, from the disk cache when they were compiled before.

In: an aten graph, example inputs, options. Out: ``GraphStage``, whose result is a ``CompiledGraph``. A hit reads rows and machine code and
imports nothing of the code generator; a miss compiles (``native.build``) and stores. The key is the
graph with the metadata of all its values, its constants, the options and all versions; the machine is
a second part, so that entries built for one can be given to another that can do at least as much.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, final

import llvmlite
import torch
from torch.fx import GraphModule
from typing_extensions import override

from argand.native.codegen.target import machine_key, machine_parts
from argand.native.graph_object import GraphObject, linked
from argand.protocol import Bypass, CompiledGraph, GraphContext
from argand.runtime.convolution import PackedConvolution
from argand.runtime.disk import values
from argand.runtime.disk.format import Damaged
from argand.runtime.disk.graphs import GraphWriter, constants_of, spec_of, write_graph
from argand.runtime.disk.keys import (
    about,
    environment,
    hexdigest,
    make_key,
    options_part,
    state_part,
)
from argand.runtime.disk.stage import Result, Sections, Stage, look_up, or_bypass, run_stage
from argand.runtime.disk.store import open_store
from argand.runtime.plans import Detached, NestedPlan, Rows, StepKind
from argand.sizes.refusals import Refusal, or_refusal
from argand.support import events
from argand.support.dataclass import replace
from argand.support.options import Options


class NamedConstant(NamedTuple):
    """A constant of the graph: its attribute there, and its value when the graph was compiled."""

    name: str
    tensor: torch.Tensor


_KNOWN: Final = (NamedConstant, NestedPlan, Rows, Detached, PackedConvolution)


class GraphText(NamedTuple):
    """An aten graph as data, and its key without the machine."""

    rows: list[Any]
    tensors: bytes
    parts: dict[str, str]
    key: str


class LinkedGraph(NamedTuple):
    """A graph that can run, and what it was linked from; None when it comes from disk or is interpreted."""

    graph: CompiledGraph
    made: GraphObject | None


@final
class GraphStage(Stage[LinkedGraph]):
    """The code generator, for one aten graph."""

    kind = "graph"

    def __init__(
        self,
        module: GraphModule,
        example_inputs: Sequence[Any],
        context: GraphContext,
        options: Options,
    ) -> None:
        self.module, self.example_inputs, self.context, self.options = (
            module,
            example_inputs,
            context,
            options,
        )
        self.constants = constants_of(module)
        self.text: GraphText | None = None

    @override
    def key(self) -> str:
        self.text = _text(self.module, self.example_inputs, self.context, self.options)
        return machine_key(self.text.key)

    @override
    def decode(self, sections: Sections) -> LinkedGraph | None:
        found = _decode(self.text.key if self.text else "", self.constants, self.options, sections)
        return found and LinkedGraph(found, None)

    @override
    def build(self) -> LinkedGraph:
        from argand.native.build import build, interpreted  # noqa: PLC0415  # only on a miss

        if self.options.target == "interpreter" or not _on_cpu(self.example_inputs):
            from argand.native.devices import build_for, device_of  # noqa: PLC0415  # only where there is one

            if name := device_of(self.example_inputs, self.options):
                run = build_for(name, self.module, self.example_inputs, self.options, self.context)
                return LinkedGraph(CompiledGraph(run, boxed=True), None)
        if (other := interpreted(self.module)) is not None:
            return LinkedGraph(CompiledGraph(other, boxed=True), None)
        compiled = build(self.module, self.example_inputs, self.options, self.context)
        with events.stage("native.load"):
            return LinkedGraph(
                linked(compiled, Bypass("it is not written yet"), self.example_inputs), compiled
            )

    @override
    def encode(self, value: LinkedGraph) -> Mapping[str, Sections] | Bypass:
        compiled, text = value.made, self.text
        if compiled is None or text is None:
            return Bypass("the graph is not functional, or its kernels are in Triton's cache")
        names = {_place(t): n for n, t in self.constants.items() if isinstance(t, torch.Tensor)}

        def named(row: Any) -> Any:
            constant = row[-1]
            name = names.get(_place(constant)) if isinstance(constant, torch.Tensor) else None
            return row if name is None else (*row[:-1], NamedConstant(name, constant))

        rows = _with_code(compiled.rows, lambda _: b"")  # each lies under its own key
        rows = rows._replace(buffers=tuple(map(named, rows.buffers)))
        sections = values.dump(
            (rows, compiled.functions, compiled.code_key, compiled.repeatable), _KNOWN
        )
        sections["about"] = about(self.kind, text.parts, **machine_parts(text.key))
        return {machine_key(text.key): sections}


@final
class GraphCompiler:
    """The code generator with its options and its cache: a ``protocol.Compiler``."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def __call__(
        self, module: GraphModule, example_inputs: Sequence[Any], context: GraphContext
    ) -> CompiledGraph | Refusal:
        """Compile an aten graph, or load it."""
        stage = GraphStage(module, example_inputs, context, self.options)
        made = or_refusal(lambda: run_stage(stage, self.options))
        if not isinstance(made, Result):
            return made
        (graph, _), key = made
        if isinstance(key, str) and stage.text is not None:
            # the machine is no part of it: a program may be carried to another one
            key = stage.text.key
        return replace(graph, key=key)

    def text(
        self, module: GraphModule, example_inputs: Sequence[Any], context: GraphContext
    ) -> GraphText | Bypass:
        """The graph as data, or why it cannot be cached, which is counted."""
        return or_bypass(
            GraphStage.kind, lambda: _text(module, example_inputs, context, self.options)
        )

    def load(self, key: str) -> CompiledGraph | None:
        """The graph of a key."""
        store = open_store(self.options)
        decode = functools.partial(_decode, key, {}, self.options)
        return store and look_up(store, GraphStage.kind, machine_key(key), decode)


def _decode(
    key: str, constants: Mapping[str, Any], options: Options, sections: Sections
) -> CompiledGraph | None:
    """The graph of an entry; ``constants``: the tensors to use, instead of copies."""
    with events.stage("native.load"):
        compiled = _read(sections, constants)
        store = open_store(options)

        def look(code_key: str) -> bytes | None:
            place = machine_key(code_key)
            return store and look_up(store, "object", place, lambda found: found.get("code"))

        keys = {compiled.code_key, *_code_keys(compiled.rows)} - {""}
        codes = {each: look(each) for each in keys}
        found = {each: code for each, code in codes.items() if code is not None} | {"": b""}
        if len(found) <= len(codes):
            return None
        rows = _with_code(compiled.rows, found.__getitem__)
        return linked(compiled._replace(code=found[compiled.code_key], rows=rows), key)


def _code_keys(rows: Rows) -> set[str]:
    """The entries of the code of all graphs inside."""
    inside = [plan for row in rows.steps if row[0] == StepKind.NESTED for plan in row[3]]
    return {plan.code_key for plan in inside}.union(*(_code_keys(plan.rows) for plan in inside))


def _with_code(rows: Rows, code_of: Callable[[str], bytes]) -> Rows:
    """The rows of a plan, with such code in the plans of the graphs inside, at any depth."""

    def renewed(plan: NestedPlan) -> NestedPlan:
        inner = _with_code(plan.rows, code_of)
        return replace(plan, rows=inner, code=code_of(plan.code_key))

    steps = (
        (*row[:3], tuple(map(renewed, row[3])), *row[4:]) if row[0] == StepKind.NESTED else row
        for row in rows.steps
    )
    return rows._replace(steps=tuple(steps))


def _text(
    module: GraphModule, example_inputs: Sequence[Any], context: GraphContext, options: Options
) -> GraphText:
    writer = GraphWriter()
    rows = write_graph(module, writer, context.sizes, values=True)
    inputs = [spec_of(x, context.sizes) for x in example_inputs]
    tensors = b"".join(writer.blobs)
    parts = {
        "graph": hexdigest(
            json.dumps([rows, inputs, context.writes, context.steady]).encode(), tensors
        ),
        "options": options_part(options),
        "state": state_part(),
        "llvmlite": llvmlite.__version__,
        **environment(),
    }
    return GraphText(rows, tensors, parts, make_key("graph", parts))


def _on_cpu(inputs: Sequence[Any]) -> bool:
    return all(x.device.type == "cpu" for x in inputs if isinstance(x, torch.Tensor))


def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
    return (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)


def _read(sections: Mapping[str, bytes], constants: Mapping[str, Any]) -> GraphObject:
    found = values.load(sections, _KNOWN)
    if type(found) is not tuple or [type(item) for item in found] != [Rows, tuple, str, bool]:
        raise Damaged("no plan")
    rows, functions, code_key, repeatable = found

    def bound(row: Any) -> Any:
        value = row[-1]
        if not isinstance(value, NamedConstant):
            return row
        live = constants.get(value.name)
        return (*row[:-1], value.tensor if live is None else live.detach())

    rows = rows._replace(buffers=tuple(map(bound, rows.buffers)))
    return GraphObject(b"", code_key, functions, rows, repeatable)
