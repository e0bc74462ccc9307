"""autograd.stored: traced programs, from the disk cache when they were traced before.

In: a torch-level graph, example inputs, options. Out: a ``Place`` (key and data of the program) to look
under and to store to. An entry holds what run-time glue needs of the trace, the keys of the compiled
halves, and, for the rare roads (a backward of some results only, ``create_graph``, a half that was
evicted), the program and its backward as graphs, decoded when first asked for. Where sizes are open the key has
their names and what capture knows of them. What the trace found out besides is part of a second key, under
which the entry lies; the first leads there when it holds for the sizes at hand.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, final

import torch
from torch.fx import GraphModule

from argand.autograd.geometry import Step, retyped_view, shifted_view
from argand.autograd.outputs import Effects, Mutation, Row, Traced
from argand.autograd.runtime import Asked, Switch, full_backward, run_inference, run_training
from argand.native.stored import GraphCompiler, GraphText
from argand.protocol import Boxed, Bypass, CompiledGraph
from argand.runtime.cache import without_collections
from argand.runtime.disk.format import Damaged
from argand.runtime.disk.graphs import GraphWriter, opened, read_graph, read_spec, spec_of, write_graph
from argand.runtime.disk.keys import about, environment, hexdigest, make_key, options_part, state_part
from argand.runtime.disk.store import open_store
from argand.runtime.disk.values import Reader, Unstorable, Writer, guarded
from argand.sizes.expressions import SizeInt
from argand.sizes.floats import OpenFloat
from argand.support import events
from argand.support.options import Options

_RECORDS: Final = (Effects, Row, Mutation, Step, shifted_view, retyped_view)
_PLAIN_FIELDS: Final = (
    *("effects", "results", "differentiable", "tangents", "gradient_needs", "copied_inputs"),
    *("flipped_inputs", "random", "autocast", "grad_mode", "tracked", "view_results"),
)


class Place(NamedTuple):
    """A program as data, and where its entry is or will be."""

    key: str
    parts: dict[str, str]
    program: bytes
    options: Options
    table: Any = None  # of open sizes
    facts: tuple[Any, ...] = ()  # known of them before the trace


def place_of(gm: GraphModule, inputs: Sequence[Any], options: Options, joint_pass: str) -> Place | Bypass:
    """Where the entry of a program belongs, or why it cannot have one, which is counted."""
    if not options.cache:
        return Bypass("the cache is off")
    table = gm.meta.get("sizes")
    facts = () if table is None else tuple(table.relied)
    try:
        program = _program(gm)
        parts = {
            "program": hexdigest(program),
            "inputs": json.dumps(_inputs(gm, inputs)),
            **({} if table is None else {"sizes": _signature(table)}),
            "state": json.dumps(_state()),
            "options": options_part(options),
            "joint pass": joint_pass,
            **environment(),
        }
    except Unstorable as reason:
        return bypass(str(reason))
    return Place(make_key("autograd", parts), parts, program, options, table, facts)


def bypass(reason: str) -> Bypass:
    """Count a program that is not cached."""
    events.count("cache.bypass", detail=f"autograd: {reason}")
    return Bypass(reason)


def _program(gm: GraphModule) -> bytes:
    # the tensor of a get_attr is the caller's, who may change it: a copy of it would be wrong
    if any(node.op == "get_attr" for node in gm.graph.nodes):
        raise Unstorable("a tensor of the caller inside of the graph")
    return json.dumps(write_graph(gm, GraphWriter(), values=False)).encode()


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
        data[1:3] = [[n if type(n) is int else str(n) for n in row] for row in opened(value, shown, table)]
    return data


def _inputs(gm: GraphModule, inputs: Sequence[Any]) -> list[Any]:
    """Everything a trace reads of its inputs."""
    objects: dict[int, int] = {}
    storages: dict[int, int] = {}
    rows: list[Any] = []
    nodes = [node for node in gm.graph.nodes if node.op == "placeholder"]
    for index, (node, value) in enumerate(zip(nodes, inputs, strict=True)):
        row = [_named(node.meta.get("example_value"), value, gm.meta.get("sizes"))]
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
        *(torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        *(torch.is_autocast_enabled("cpu"), str(torch.get_autocast_dtype("cpu"))),
        state_part(),
    ]


# --- storing -------------------------------------------------------------------------------------


def save(place: Place, traced: Traced, forward: str, backward: GraphText | None) -> str | Bypass:
    """Store a traced program whose forward (and backward) graphs have these keys; its own key, or why there is none."""
    writer = Writer(_RECORDS)
    rows = [row if row.source == "constant" else dataclasses.replace(row, value=None) for row in traced.effects.rows]
    plain = {name: getattr(traced, name) for name in _PLAIN_FIELDS}
    plain["effects"] = Effects(rows, traced.effects.mutations)
    table, shown = place.table, traced.inputs if place.table is None else traced.sizes.shown
    try:
        data = [
            writer.write(plain),
            [isinstance(x, torch.Tensor) or (writer.write(x) if isinstance(x, SizeInt) else None) for x in shown],
            [spec_of(fake, table) for fake in traced.tangent_fakes],
            [forward, backward.key if backward else ""],
            None if table is None else writer.write(table.state()),
        ]
    except Unstorable as reason:
        return bypass(str(reason))
    sections = {
        "about": about("autograd", place.parts),
        "data": json.dumps(data).encode(),
        "tensors": b"".join(writer.blobs),
        "program": place.program,
        "backward": json.dumps(backward.rows).encode() if backward else b"",
        "backward.tensors": backward.tensors if backward else b"",
    }
    store = open_store(place.options)
    if store is None:
        return Bypass("the cache is off")
    key, more = place.key, [] if table is None else [fact for fact in table.relied if fact not in place.facts]
    if more:
        facts = json.dumps([writer.write((fact.operator, fact.left, fact.right)) for fact in more]).encode()
        key = hexdigest(place.key.encode(), facts)
        store.put(place.key, {"about": sections["about"], "facts": facts, "key": key.encode()})
    return key if store.put(key, sections) else Bypass("it could not be written")


# --- restoring -----------------------------------------------------------------------------------


def restore(key: str, options: Options, compilers: Callable[[], Any], table: Any = None) -> CompiledGraph | None:
    """A stored program; ``compilers`` are made only for what the entry lacks.

    ``table`` are the open sizes of this call, when it is not known yet whether the program is for them.
    """
    store = open_store(options)
    sections = store and store.get(key, kind="autograd")
    if store is None or not sections:
        return None
    try:
        if "facts" in sections:
            facts = guarded(lambda: _facts(sections, table))
            if not facts:
                events.count("cache.miss", detail=f"autograd: {key}: it is for sizes of another case")
                return None
            found = restore(sections["key"].decode(), options, compilers)
            if found is not None:
                table.facts.extend(facts)
            return found
        traced, keys = guarded(lambda: _read(sections))
    except Damaged as error:
        store.set_aside(key, error)
        return None
    compiler = GraphCompiler(options)
    forward = compiler.load(keys[0])
    if forward is None:
        return None
    if not traced.training:
        return CompiledGraph(run_inference(traced, forward.takes_list, written_in_graph=False), key=key)
    late = _Late(traced, sections, functools.partial(compiler.load, keys[1]), compilers)
    switch = Switch(late.link)
    switch.run = run_training(traced, forward.takes_list, late.backward, switch.noticing(late.again))
    return CompiledGraph(switch, key=key)


def forget(key: str | Bypass, options: Options) -> None:
    """Remove a program: the next process makes it anew."""
    store = open_store(options)
    if store is not None and isinstance(key, str):
        store.remove(key)


def _facts(sections: Mapping[str, bytes], table: Any) -> list[Any]:
    """What a program relies on besides what its first key says; nothing when that is not so for these sizes."""
    from argand.sizes.facts import Fact  # noqa: PLC0415  # only where sizes are open

    facts = [Fact(*Reader().read(row)) for row in json.loads(sections["facts"])]
    return facts if table is not None and all(fact.holds(table.reals) for fact in facts) else []


def _read(sections: Mapping[str, bytes]) -> tuple[Traced, list[str]]:
    plain, inputs, tangents, keys, state = json.loads(sections["data"])
    table = sizes = None
    if state is not None:
        from argand.autograd.sizes import OpenSizes  # noqa: PLC0415  # only where sizes are open
        from argand.sizes.table import SizeTable  # noqa: PLC0415

        table = SizeTable.restored(*Reader().read(state))
        sizes = OpenSizes([read_spec(row, table) for row in inputs], table)
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
        compilers: Callable[[], Any],
    ) -> None:
        self.traced, self.sections, self.load, self.compilers = traced, sections, load, compilers
        self.lock = threading.RLock()
        self.known: dict[Asked, Boxed | None] = {}

    def backward(self, asked: Asked, primals: Sequence[Any]) -> Boxed | None:
        """The backward for what is asked."""
        if asked not in self.known:
            with self.lock, without_collections():
                found = self.load() if asked == full_backward(self.traced) else None
                self.known[asked] = found.takes_list if found else self.halves[0](asked, primals)
        return self.known[asked]

    def again(self, primals: Sequence[Any], tangents: Sequence[Any], wanted: int) -> Sequence[Any]:
        """Gradients that can be differentiated again."""
        with self.lock:
            differentiate = self.halves[1]
        return differentiate(primals, tangents, wanted)

    def link(self, inputs: Sequence[Any]) -> Callable[..., Any] | None:
        """The program with linked gradients."""
        with self.lock:
            return self.halves[2](inputs)

    @functools.cached_property
    def halves(self) -> tuple[Any, Any, Any]:
        """The same from the graphs in the entry, as a cold compile has them."""
        from argand.autograd.aot import late_halves  # noqa: PLC0415  # the tracer: rarely needed

        table = self.traced.sizes and self.traced.sizes.table
        program = read_graph(json.loads(self.sections["program"]), b"", table, values=False)
        rows, tensors = json.loads(self.sections["backward"]), self.sections["backward.tensors"]
        module = read_graph(rows, tensors, table, values=True)
        return late_halves(program, self.traced, module, self.compilers())
