"""autograd.stored: traced programs, from the disk cache when they were traced before.

In: a torch-level graph, example inputs, options. Out: a ``Place`` (key and data of the program) to look
under and to store to. An entry holds what run-time glue needs of the trace, the keys of the compiled
halves, and, for the rare roads (a backward of some results only, ``create_graph``, a half that was
evicted), the program and its backward as graphs, decoded when first asked for.
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

from argand.autograd.geometry import Step, shifted_view
from argand.autograd.outputs import Effects, Mutation, Row, Traced
from argand.autograd.runtime import Boxed, run_inference, run_training
from argand.native.stored import GraphCompiler, GraphText
from argand.runtime.disk.format import Damaged
from argand.runtime.disk.graphs import GraphWriter, read_graph, read_spec, spec_of, write_graph
from argand.runtime.disk.keys import about, environment, hexdigest, make_key, options_part, state_part
from argand.runtime.disk.store import open_store
from argand.runtime.disk.values import Reader, Unstorable, Writer, guarded
from argand.support import events
from argand.support.options import Options

_RECORDS: Final = (Effects, Row, Mutation, Step, shifted_view)
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


def place_of(gm: GraphModule, inputs: Sequence[Any], options: Options, joint_pass: str) -> Place | None:
    """Where the entry of a program belongs; None, with a count of why, when it cannot have one."""
    if not options.cache:
        return None
    try:
        program = _program(gm)
        parts = {
            "program": hexdigest(program),
            "inputs": json.dumps(_inputs(inputs)),
            "state": json.dumps(_state()),
            "options": options_part(options),
            "joint pass": joint_pass,
            **environment(),
        }
    except Unstorable as reason:
        bypass(str(reason))
        return None
    return Place(make_key("autograd", parts), parts, program, options)


def bypass(reason: str) -> None:
    """Count a program that is not cached."""
    events.count("cache.bypass", detail=f"autograd: {reason}")


def _program(gm: GraphModule) -> bytes:
    if gm.meta.get("sizes") is not None:
        raise Unstorable("a graph with symbolic sizes")
    # the tensor of a get_attr is the caller's, who may change it: a copy of it would be wrong
    if any(node.op == "get_attr" for node in gm.graph.nodes):
        raise Unstorable("a tensor of the caller inside of the graph")
    return json.dumps(write_graph(gm, GraphWriter(), values=False)).encode()


def _inputs(inputs: Sequence[Any]) -> list[Any]:
    """Everything a trace reads of its inputs."""
    objects: dict[int, int] = {}
    storages: dict[int, int] = {}
    rows: list[Any] = []
    for index, value in enumerate(inputs):
        row = [spec_of(value)]
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


def save(place: Place, traced: Traced, forward: str, backward: GraphText | None) -> bool:
    """Store a traced program whose forward (and backward) graphs have these keys."""
    writer = Writer(_RECORDS)
    rows = [row if row.source == "constant" else dataclasses.replace(row, value=None) for row in traced.effects.rows]
    plain = {name: getattr(traced, name) for name in _PLAIN_FIELDS}
    plain["effects"] = Effects(rows, traced.effects.mutations)
    try:
        data = [
            writer.write(plain),
            [isinstance(value, torch.Tensor) for value in traced.inputs],
            [spec_of(fake) for fake in traced.tangent_fakes],
            [forward, backward.key if backward else ""],
        ]
    except Unstorable as reason:
        bypass(str(reason))
        return False
    sections = {
        "about": about("autograd", place.parts),
        "data": json.dumps(data).encode(),
        "tensors": b"".join(writer.blobs),
        "program": place.program,
        "backward": json.dumps(backward.rows).encode() if backward else b"",
        "backward.tensors": backward.tensors if backward else b"",
    }
    store = open_store(place.options)
    return store is not None and store.put(place.key, sections)


# --- restoring -----------------------------------------------------------------------------------


def restore(key: str, options: Options, compilers: Callable[[], Any]) -> Callable[..., Any] | None:
    """The callable of a stored program; ``compilers`` are made only for what the entry lacks."""
    store = open_store(options)
    sections = store and store.get(key, kind="autograd")
    if store is None or not sections:
        return None
    try:
        traced, keys = guarded(lambda: _read(sections))
    except Damaged as error:
        store.set_aside(key, error)
        return None
    compiler = GraphCompiler(options)
    forward = compiler.load(keys[0])
    if forward is None:
        return None
    run: Any
    if traced.training:
        late = _Late(traced, sections, functools.partial(compiler.load, keys[1]), compilers)
        run = run_training(traced, forward, late.backward, late.again)
    else:
        run = run_inference(traced, forward, written_in_graph=False)
    run.stored_key = key
    return run


def _read(sections: Mapping[str, bytes]) -> tuple[Traced, list[str]]:
    plain, inputs, tangents, keys = json.loads(sections["data"])
    fields = Reader(sections["tensors"], _RECORDS).read(plain)
    nothing = torch.empty(0)
    traced = Traced(
        graph=torch.fx.Graph(),
        constants={},
        inputs=[nothing if is_tensor else None for is_tensor in inputs],
        tangent_fakes=[read_spec(spec) for spec in tangents],
        **{name: fields[name] for name in _PLAIN_FIELDS},
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
        load: Callable[[], Boxed | None],
        compilers: Callable[[], Any],
    ) -> None:
        self.traced, self.sections, self.load, self.compilers = traced, sections, load, compilers
        self.every = (1 << len(traced.tangents)) - 1
        self.lock = threading.RLock()
        self.known: dict[int, Boxed | None] = {}

    def backward(self, present: int, primals: Sequence[Any]) -> Boxed | None:
        """The backward for the tangents that are there."""
        if present not in self.known:
            with self.lock:
                found = self.load() if present == self.every else None
                self.known[present] = found or self.halves[0](present, primals)
        return self.known[present]

    def again(self, primals: Sequence[Any], tangents: Sequence[Any]) -> Sequence[Any]:
        """Gradients that can be differentiated again."""
        with self.lock:
            differentiate = self.halves[1]
        return differentiate(primals, tangents)

    @functools.cached_property
    def halves(self) -> tuple[Any, Any]:
        """The same from the graphs in the entry, as a cold compile has them."""
        from argand.autograd.aot import late_halves  # noqa: PLC0415  # the tracer: rarely needed

        program = read_graph(json.loads(self.sections["program"]), b"", values=False)
        rows, tensors = json.loads(self.sections["backward"]), self.sections["backward.tensors"]
        module = read_graph(rows, tensors, values=True)
        return late_halves(program, self.traced, module, self.compilers())
