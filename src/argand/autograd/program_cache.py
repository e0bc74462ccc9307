"""autograd.program_cache: traced programs, from the disk cache when they were traced before.

In: a torch-level graph, example inputs, options. Out: ``ProgramStage``, whose result is a ``CompiledProgram``. An entry
holds what run-time glue needs of the trace, the keys of the compiled halves, and, for what is rarely asked (a backward
of some results only, ``create_graph``, a half that was evicted), the program and its backward as graphs, decoded when
first needed. Where sizes are open the key has their names and what capture knows of them. What the trace found out
besides is part of a second key, under which the entry lies; the first leads there when it holds for the sizes at hand.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, final

import torch
from torch.fx import GraphModule
from typing_extensions import override

from argand.autograd.compilers import CompiledProgram, Compilers, Recorded, can_repeat
from argand.autograd.geometry import ViewStep, retyped_view, shifted_view
from argand.autograd.outputs import Effects, Mutation, OutputRow, Traced
from argand.autograd.runtime import Asked, full_backward, run_inference, run_training
from argand.autograd.switch import LinkSwitch
from argand.native.graph_cache import GraphCompiler, GraphText
from argand.protocol import Boxed, Bypass, CompiledGraph, GraphContext
from argand.runtime import quiet
from argand.runtime.disk.format import Damaged
from argand.runtime.disk.graphs import (
    GraphWriter,
    constants_of,
    opened,
    read_graph,
    read_spec,
    spec_of,
    write_graph,
)
from argand.runtime.disk.keys import (
    about,
    environment,
    hexdigest,
    make_key,
    options_part,
    state_part,
)
from argand.runtime.disk.stage import Sections, Stage, look_up
from argand.runtime.disk.store import open_store
from argand.runtime.disk.values import Reader, Unstorable, Writer, guarded
from argand.sizes.expressions import SizeInt
from argand.sizes.facts import Fact
from argand.sizes.floats import OpenFloat
from argand.support import events
from argand.support.dataclass import replace
from argand.support.locks import Turns
from argand.support.options import Options

if TYPE_CHECKING:
    from argand.sizes.refusals import Refusal
    from argand.sizes.view import GraphSizes

_RECORDS: Final = (Effects, OutputRow, Mutation, ViewStep, shifted_view, retyped_view)
_PLAIN_FIELDS: Final = (
    "effects",
    "results",
    "differentiable",
    "tangents",
    "gradient_needs",
    "gradient_reads",
    "parts",
    "copied_inputs",
    "flipped_inputs",
    "random",
    "autocast",
    "grad_mode",
    "tracked",
    "view_results",
)


@final
class ProgramStage(Stage["CompiledProgram | Refusal"]):
    """Ahead-of-time autograd of one torch-level graph; ``joint_pass`` names a pass of the caller.

    ``compilers`` makes what autograd needs of the compiler, which a program from disk may do without.
    """

    kind = "autograd"

    def __init__(
        self,
        gm: GraphModule,
        inputs: Sequence[Any],
        context: GraphContext,
        options: Options,
        compilers: Callable[[], Compilers],
        joint_pass: str | Bypass,
    ) -> None:
        self.gm, self.inputs, self.options = gm, inputs, options
        self.compilers, self.joint_pass = compilers, joint_pass
        self.context = context
        self.program = b""
        self.parts: dict[str, str] = {}

    @override
    def key(self) -> str | Bypass:
        if isinstance(self.joint_pass, Bypass):
            raise Unstorable(self.joint_pass.reason)
        self.program = _program(self.gm, self.sizes)
        self.parts = {
            "program": hexdigest(self.program),
            "inputs": json.dumps(_inputs(self.gm, self.inputs, self.sizes)),
            **({} if self.sizes is None else {"sizes": _signature(self.sizes)}),
            "state": json.dumps(_state()),
            "options": options_part(self.options),
            "joint pass": self.joint_pass,
            **environment(),
        }
        return self._key

    @property
    def sizes(self) -> GraphSizes | None:
        """The open sizes of the graph."""
        return self.context.sizes

    @property
    def _key(self) -> str:
        return make_key(self.kind, self.parts)

    @override
    def decode(self, sections: Sections) -> CompiledProgram | None:
        return _decode(self._key, self.options, self.compilers, self.sizes, sections)

    @override
    def build(self) -> CompiledProgram | Refusal:
        from argand.autograd.aot import compile_program  # noqa: PLC0415  # only on a miss

        return compile_program(self.gm, list(self.inputs), self.context, self.compilers())

    @override
    def encode(self, value: CompiledProgram | Refusal) -> Mapping[str, Sections] | Bypass:
        if not isinstance(value, CompiledProgram):
            return Bypass("sizes that cannot stay open")
        origin = value.origin
        if not isinstance(origin, Recorded):
            return origin if isinstance(origin, Bypass) else Bypass("it comes from disk")
        backward = None
        if origin.backward is not None:
            examples = [n.meta["val"] for n in origin.backward.graph.nodes if n.op == "placeholder"]
            text = GraphCompiler(self.options).text(origin.backward, examples, origin.context)
            if isinstance(text, Bypass):
                return text
            backward = text
        writer = Writer(_RECORDS)
        sections = {
            "about": about(self.kind, self.parts),
            "data": json.dumps(_data(writer, origin, backward)).encode(),
            "tensors": b"".join(writer.blobs),
            "program": self.program,
            "backward": json.dumps(backward.rows).encode() if backward else b"",
            "backward.tensors": backward.tensors if backward else b"",
        }
        if not value.facts:
            return {self._key: sections}
        facts = json.dumps(
            [writer.write((fact.operator, fact.left, fact.right)) for fact in value.facts]
        ).encode()
        key = hexdigest(self._key.encode(), facts)
        return {
            key: sections,
            self._key: {"about": sections["about"], "facts": facts, "key": key.encode()},
        }


def _has_constants(gm: GraphModule) -> bool:
    """Whether a graph, or one that an operator of it takes, reads something that is no graph."""
    return any(
        not isinstance(found, GraphModule) or _has_constants(found)
        for found in constants_of(gm).values()
    )


def _program(gm: GraphModule, sizes: GraphSizes | None) -> bytes:
    # the tensor of a get_attr is the caller's, who may change it: a copy of it would be wrong
    if _has_constants(gm):
        raise Unstorable("a tensor of the caller inside of the graph")
    return json.dumps(write_graph(gm, GraphWriter(), sizes, values=False)).encode()


def _signature(table: Any) -> str:
    """The open sizes, and all that is known of them."""
    limits = [f"{s} in {s.minimum}..{s.maximum or ''}" for s in table.samples]
    return "; ".join([*limits, *map(str, table.relied)])


def _named(shown: Any, value: Any, table: Any) -> Any:
    """The data of an input, open sizes by their expressions."""
    if isinstance(shown, SizeInt):
        return str(shown)
    if isinstance(shown, OpenFloat):
        raise Unstorable("a float that is left open")
    data = spec_of(value)
    if isinstance(value, torch.Tensor) and table is not None:
        data[1:3] = [
            [n if type(n) is int else str(n) for n in row] for row in opened(value, shown, table)
        ]
    return data


def _inputs(gm: GraphModule, inputs: Sequence[Any], sizes: GraphSizes | None) -> list[Any]:
    """Everything a trace reads of its inputs."""
    objects: dict[int, int] = {}
    storages: dict[int, int] = {}
    rows: list[Any] = []
    nodes = [node for node in gm.graph.nodes if node.op == "placeholder"]
    for index, (node, value) in enumerate(zip(nodes, inputs, strict=True)):
        row = [_named(node.meta.get("example_value"), value, sizes)]
        if isinstance(value, torch.Tensor):
            same = objects.setdefault(id(value), index)
            first = storages.setdefault(value.untyped_storage()._cdata, index)
            flags = (value.requires_grad, value.is_leaf, isinstance(value, torch.nn.Parameter))
            more = (value.is_inference(), value._base is not None, value.retains_grad)
            row += [same, first, *flags, *more]
        rows.append(row)
    return rows


def _state() -> list[Any]:
    """What else decides how torch runs a program, and so what is traced."""
    if torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack():
        raise Unstorable("a function or dispatch mode is active")
    return [
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        str(torch.get_autocast_dtype("cpu")),
        state_part(),
    ]


# --- the entry -----------------------------------------------------------------------------------


def _data(writer: Writer, origin: Recorded, backward: GraphText | None) -> list[Any]:
    """What run-time glue needs of a trace."""
    traced = origin.traced
    table = None if traced.sizes is None else traced.sizes.table
    rows = [
        row if row.source == "constant" else replace(row, value=None) for row in traced.effects.rows
    ]
    plain = {name: getattr(traced, name) for name in _PLAIN_FIELDS}
    plain["effects"] = Effects(rows, traced.effects.mutations, bumps=traced.effects.bumps)
    shown = traced.inputs if table is None else traced.sizes.shown
    return [
        writer.write(plain),
        [
            isinstance(x, torch.Tensor) or (writer.write(x) if isinstance(x, SizeInt) else None)
            for x in shown
        ],
        [spec_of(fake, table) for fake in traced.tangent_fakes],
        [origin.forward, backward.key if backward else ""],
        None if table is None else writer.write(table.state()),
    ]


def restore(key: str, options: Options, compilers: Callable[[], Compilers]) -> CompiledGraph | None:
    """The program of a key; ``compilers`` are made only for what the entry lacks."""
    store = open_store(options)
    if store is None:
        return None
    decode = functools.partial(_decode, key, options, compilers, None)
    found = look_up(store, ProgramStage.kind, key, decode)
    return found and CompiledGraph(found.call, key=key, repeatable=found.repeatable)


def _decode(
    key: str, options: Options, compilers: Callable[[], Compilers], table: Any, sections: Sections
) -> CompiledProgram | None:
    """The program of an entry. ``table``: the open sizes of this call; None when the entry is known to be for them."""
    if "facts" in sections:
        facts = guarded(lambda: _facts(sections, table))
        if not facts:
            events.count("cache.miss", detail=f"autograd: {key}: it is for sizes of another case")
            return None
        found = restore(sections["key"].decode(), options, compilers)
        if found is None or isinstance(found.key, Bypass):
            return None
        return CompiledProgram(found.call, found.key, found.draws, tuple(facts), found.repeatable)
    traced, keys = guarded(lambda: _read(sections))
    compiler = GraphCompiler(options)
    forward = compiler.load(keys[0])
    if forward is None:
        return None
    if not traced.training:
        run = run_inference(traced, forward.takes_list, written_in_graph=False)
        return CompiledProgram(run, key, traced.random, repeatable=can_repeat(traced, forward))
    late = _Late(traced, sections, functools.partial(compiler.load, keys[1]), compilers)
    switch = LinkSwitch(late.link)
    switch.run = run_training(
        traced, forward.takes_list, late.backward, switch.noticing(late.again)
    )
    return CompiledProgram(switch, key, traced.random)


def forget(key: str | Bypass, options: Options) -> None:
    """Remove a program: the next process makes it anew."""
    store = open_store(options)
    if store is not None and isinstance(key, str):
        store.remove(key)


def _facts(sections: Mapping[str, bytes], table: Any) -> list[Any]:
    """What a program relies on besides what its first key says; nothing when that is not so for these sizes."""
    facts = [Fact(*Reader().read(row)) for row in json.loads(sections["facts"])]
    return facts if table is not None and all(fact.holds(table.reals) for fact in facts) else []


def _read(sections: Mapping[str, bytes]) -> tuple[Traced, list[str]]:
    plain, inputs, tangents, keys, state = json.loads(sections["data"])
    table = sizes = None
    if state is not None:
        from argand.autograd.sizes import ProgramSizes  # noqa: PLC0415  # only where sizes are open
        from argand.sizes.table import SizeTable  # noqa: PLC0415
        from argand.sizes.view import GraphSizes  # noqa: PLC0415

        table = GraphSizes(SizeTable.restored(*Reader().read(state)))
        sizes = ProgramSizes([read_spec(row, table) for row in inputs], table)
    fields = Reader(sections["tensors"], _RECORDS, table).read(plain)
    nothing = torch.empty(0)
    traced = Traced(
        graph=torch.fx.Graph(),
        constants={},
        inputs=[nothing if row is True else None for row in inputs],
        tangent_fakes=[read_spec(spec, table) for spec in tangents],
        **{name: fields[name] for name in _PLAIN_FIELDS},
        sizes=sizes,
    )
    if type(traced.effects) is not Effects or not all(type(key) is str for key in keys):
        raise Damaged("no traced program")
    return traced, keys


@final
class _Late:
    """What a restored program needs after its forward, each when it is first asked for."""

    def __init__(
        self,
        traced: Traced,
        sections: Mapping[str, bytes],
        load: Callable[[], CompiledGraph | None],
        compilers: Callable[[], Compilers],
    ) -> None:
        self.traced, self.sections, self.load, self.compilers = traced, sections, load, compilers
        self.turns = Turns()
        self._halves: tuple[Any, Any, Any] | None = None
        self.known: dict[Asked, Boxed | None] = {}

    def backward(self, asked: Asked, primals: Sequence[Any]) -> Boxed | None:
        """The backward for what is asked."""
        if asked not in self.known:
            with self.turns.take("backward"), quiet.compiling():
                if asked not in self.known:
                    found = self.load() if asked == full_backward(self.traced) else None
                    self.known[asked] = (
                        found.takes_list if found else self._late()[0](asked, primals)
                    )
        return self.known[asked]

    def again(self, primals: Sequence[Any], tangents: Sequence[Any], asked: Asked) -> Sequence[Any]:
        """Gradients that can be differentiated again."""
        differentiate: Callable[..., Sequence[Any]] = self._late()[1]
        return differentiate(primals, tangents, asked)

    def link(self, inputs: Sequence[Any]) -> Callable[..., Any] | None:
        """The program with linked gradients."""
        linked: Callable[..., Any] | None = self._late()[2](inputs)
        return linked

    def _late(self) -> tuple[Any, Any, Any]:
        """The same from the graphs in the entry, as a cold compile has them."""
        if self._halves is None:
            with self.turns.take("graphs"), quiet.compiling():
                self._halves = self._halves or self._read()
        return self._halves

    def _read(self) -> tuple[Any, Any, Any]:
        from argand.autograd.aot import late_halves  # noqa: PLC0415  # the tracer: rarely needed

        sizes = self.traced.sizes and self.traced.sizes.frozen()
        program = read_graph(json.loads(self.sections["program"]), b"", sizes, values=False)
        rows, tensors = json.loads(self.sections["backward"]), self.sections["backward.tensors"]
        module = read_graph(rows, tensors, sizes, values=True)
        return late_halves(program, self.traced, module, GraphContext(sizes), self.compilers())
