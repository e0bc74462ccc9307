"""autograd.trace: run a program on fakes and come back with its joint (or inference) graph.

In: a program (any Python callable on a flat list of tensors) and example inputs. Out: ``Traced``:
the graph whose outputs are new values of mutated inputs, fresh results, then gradients; and the
effects the run-time glue must reproduce. Raises ``Untraceable`` when only eager would be right.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from argand.autograd.geometry import bare, bits_of
from argand.autograd.graphs import ancestors, is_view, remove_dead
from argand.autograd.kept import readers, together
from argand.autograd.linear import is_linear
from argand.autograd.opaque import OpaqueOps
from argand.autograd.outputs import Effects, Mutation, Traced, Untraceable, read_effects, state_of
from argand.autograd.paths import path_between
from argand.autograd.programs import Program
from argand.autograd.reach import reached_from
from argand.autograd.recorder import AtenRecorder
from argand.autograd.recording import NoPeeking, drop_history, own_memory, record_backward
from argand.autograd.sizes import ProgramSizes
from argand.ops.fakes import DataDependent, fake_of
from argand.runtime.levels import kept_levels
from argand.runtime.state import own_history
from argand.sizes.table import SizeTable


class _NonLeaf(torch.autograd.Function):
    """Gives a fake a history, so that in-place ops on it are as legal as on the real input."""

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor) -> torch.Tensor:
        """A fake like the leaf."""
        return fake_of(leaf.detach())

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """The gradient as it comes."""
        return grads[0]


def _make_fakes(
    recorder: AtenRecorder, examples: Sequence[Any], fakes: Sequence[Any] | None
) -> tuple[list[Any], list[Any], list[Any]]:
    """(leaf fakes, fakes the program sees, plain fakes for the graph) of the inputs."""
    leaves: list[Any] = []
    seen: list[Any] = []
    plain: list[Any] = []
    known: dict[int, int] = {}
    for index, real in enumerate(examples):
        name = f"primals_{index + 1}"
        given = real if fakes is None else fakes[index]
        if not isinstance(real, torch.Tensor):
            leaf: Any = given
            shown: Any = given
            recorder.input(given, name)
            plain.append(given)
        elif id(real) in known:
            leaf, shown = leaves[known[id(real)]], seen[known[id(real)]]
            recorder.placeholder(fake_of(given.detach()), name)
            plain.append(plain[known[id(real)]])
        else:
            known[id(real)] = index
            leaf = fake_of(given)
            # it has its history, whatever is recorded now: the program may turn that on
            with torch.enable_grad():
                shown = leaf if real.is_leaf else _NonLeaf.apply(leaf)
            recorder.input(shown, name).meta["parameter"] = isinstance(real, torch.nn.Parameter)
            plain.append(bare(shown.detach()))
        leaves.append(leaf)
        seen.append(shown)
    return leaves, seen, plain


def _overlaps(examples: Sequence[Any]) -> set[int]:
    """Inputs whose storage is shared with another, different input."""
    first: dict[int, int] = {}
    shared: set[int] = set()
    for index, real in enumerate(examples):
        if isinstance(real, torch.Tensor):
            other = first.setdefault(real.untyped_storage()._cdata, index)
            if other != index and examples[other] is not real:
                shared |= {other, index}
    return shared


def _shares_places(real: torch.Tensor) -> bool:
    """Whether elements of a tensor share memory (expand): no new value can be copied into it."""
    return any(step == 0 and size > 1 for size, step in zip(real.shape, real.stride(), strict=True))


@contextlib.contextmanager
def ambient_autocast(dtype: torch.dtype | None) -> Iterator[None]:
    """Autocast to a dtype, or none."""
    enabled, old = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    torch.set_autocast_enabled("cpu", dtype is not None)
    if dtype is not None:
        torch.set_autocast_dtype("cpu", dtype)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cpu", enabled)
        torch.set_autocast_dtype("cpu", old)


@contextlib.contextmanager
def _ambient(recorder: AtenRecorder) -> Iterator[None]:
    """Keep the caller's grad mode, autocast and generator; no cached cast outlives the fakes."""
    grad = torch.is_grad_enabled()
    enabled = torch.is_autocast_enabled("cpu")
    state = torch.get_rng_state()
    torch.clear_autocast_cache()
    try:
        with own_history(), kept_levels():
            yield
    finally:
        torch._C._set_grad_enabled(grad)
        torch.set_autocast_enabled("cpu", enabled)
        torch.clear_autocast_cache()
        if recorder.draws:  # else another thread may draw in peace
            torch.set_rng_state(state)


def trace(
    program: Program,
    examples: Sequence[Any],
    decompositions: Mapping[Any, Callable[..., Any]] | None,
    only: int = -1,
    sizes: ProgramSizes | None = None,
    eager_draws: bool = False,
) -> Traced:
    """Trace a program, with its backward if its results need one.

    ``only`` has a bit for each tangent that will be there; the backward is that of their results.
    ``sizes``: those known only at run time; a second trace sees to it that they stay open.
    ``eager_draws``: random numbers are wanted in the order in which eager draws them.
    """
    if sizes is None:
        return _trace_at(program, examples, decompositions, only, eager_draws)
    one, two = (
        _trace_at(
            program,
            examples,
            decompositions=decompositions,
            only=only,
            eager_draws=eager_draws,
            fakes=sizes.fakes(examples, table),
            table=table,
        )
        for table in (sizes.table, sizes.twin)
    )
    return sizes.open(one, two)


def _trace_at(
    program: Program,
    examples: Sequence[Any],
    decompositions: Mapping[Any, Callable[..., Any]] | None,
    only: int,
    eager_draws: bool,
    fakes: Sequence[Any] | None = None,
    table: SizeTable | None = None,
) -> Traced:
    """Trace on fakes like the examples, or on these fakes."""
    make_recorder = functools.partial(AtenRecorder, decompositions, table, eager_draws=eager_draws)
    if torch.is_inference_mode_enabled():  # its tensors have no versions to read
        with torch.inference_mode(False), torch.no_grad():
            return _trace(program, examples, make_recorder(), fakes=fakes)
    run = functools.partial(_trace, program, examples, only=only, fakes=fakes)
    accumulate = sealed = False
    while True:
        try:
            return run(make_recorder(), accumulate=accumulate, sealed=sealed)
        except DataDependent:
            if sealed:
                raise
            sealed = True  # perhaps in the backward of a custom op, which need not be seen
        except RuntimeError as error:
            if accumulate or "use_reentrant=True" not in str(error):
                raise
            accumulate = True  # reentrant checkpoints want gradients accumulated into leaves


def _check_shared_memory(mutations: Sequence[Mutation], examples: Sequence[Any]) -> None:
    """Refuse programs whose writes are seen through other inputs, or twice in one."""
    shared = _overlaps(examples)
    if any(mutation.index in shared for mutation in mutations):
        raise Untraceable("an input that shares memory with another input is written to")
    if any(_shares_places(examples[mutation.index]) for mutation in mutations):
        raise Untraceable("an input is written to whose elements share memory")


def _trace(
    program: Program,
    examples: Sequence[Any],
    recorder: AtenRecorder,
    *,
    accumulate: bool = False,
    sealed: bool = False,
    only: int = -1,
    fakes: Sequence[Any] | None = None,
) -> Traced:
    leaves, inputs, plain = _make_fakes(recorder, examples, fakes)
    before = [state_of(value) for value in inputs]
    grad_mode = torch.is_grad_enabled()
    autocast = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
    with _ambient(recorder):
        opaque = OpaqueOps(recorder) if sealed else contextlib.nullcontext()
        with recorder, opaque, NoPeeking():
            outputs = list(program(recorder, inputs))
        written = functools.partial(_was_written, recorder)
        between = functools.partial(path_between, recorder)
        effects = read_effects(inputs, before, outputs, written, between)
        _check_shared_memory(effects.mutations, examples)
        results = effects.results(inputs)
        values = own_memory(recorder, results, len(effects.mutations))
        every = tangent_indices(effects, results)
        tangents = [k for bit, k in enumerate(every) if only >> bit & 1]
        differentiable = leaf_indices(leaves) if tangents else []
        wanted = [leaves[index] for index in differentiable]
        reached = reached_from([results[k] for k in tangents], wanted)
        gradients, tangent_fakes = record_backward(recorder, results, tangents, wanted, accumulate)
    recorder.graph.output(values + gradients)
    remove_dead(recorder.graph)
    drop_history(recorder.graph)
    return Traced(
        graph=recorder.graph,
        constants=recorder.constants,
        inputs=plain,
        effects=effects,
        results=len(values),
        differentiable=differentiable,
        tangents=tangents,
        tangent_fakes=tangent_fakes,
        gradient_needs=_needs(recorder.graph, gradients, reached),
        gradient_reads=_read_by(recorder.graph, gradients),
        copied_inputs=_copied(recorder.graph, effects, gradients),
        flipped_inputs=[i for i in differentiable if not examples[i].requires_grad],
        random=recorder.draws > 0,
        autocast=autocast,
        grad_mode=grad_mode,
        tracked=any(isinstance(x, torch.Tensor) and x.requires_grad for x in examples),
        view_results=[k for k, node in enumerate(values) if is_view(node)],
        bits={
            k: bits_of(x)
            for k, x in enumerate(inputs)
            if isinstance(x, torch.Tensor) and any(bits_of(x))
        },
        cut=recorder.cut,
        bent=recorder.foreign and not is_linear(recorder.graph, len(values)),
        absolute=recorder.absolute,
    )


def _was_written(recorder: AtenRecorder, value: torch.Tensor) -> bool:
    region = recorder.aliasing.find(value)
    return region is not None and region.memory.version > 0


def _needs(graph: Graph, gradients: Sequence[Any], reached: Sequence[int]) -> list[int]:
    """Which tangents each gradient depends on or, as the zeros of a sign function, comes from; as bits.

    Also of one that is None although its input is reached, as from a function of the user's that gives None: the input
    keeps its history, to which the second derivative may lead.
    """
    bits: dict[Node, int] = {}
    count = 0
    for node in graph.nodes if gradients else ():
        if node.op == "placeholder" and str(node.target).startswith("tangents"):
            bits[node] = 1 << count
            count += 1
        else:
            mask = 0
            for source in node.all_input_nodes:
                mask |= bits[source]
            bits[node] = mask
    return [
        (bits[node] | mask or -1) if isinstance(node, Node) else mask
        for node, mask in zip(gradients, reached if gradients else (), strict=True)
    ]


def _read_by(graph: Graph, gradients: Sequence[Any]) -> list[tuple[int, int]]:
    """The inputs whose values gradients depend on, and for which tangents, as bits.

    Who changes another one, or one that is read for another tangent, may still ask for gradients.
    """
    used, read = ancestors(gradients), readers(graph)
    places = enumerate(node for node in graph.nodes if node.op == "placeholder")
    return [(k, together(read[node])) for k, node in places if node in used]


def _copied(graph: Graph, effects: Effects, gradients: Sequence[Any]) -> list[int]:
    """Written inputs whose old value or history the backward needs."""
    if not effects.mutations or not gradients:
        return []
    used = ancestors(gradients)
    primals = [node for node in graph.nodes if node.op == "placeholder"]
    return [m.index for m in effects.mutations if m.differentiable or primals[m.index] in used]


def tangent_indices(effects: Effects, results: Sequence[torch.Tensor]) -> list[int]:
    """The results that take a gradient."""
    writes = len(effects.mutations)
    return [
        k
        for k, tensor in enumerate(results)
        if tensor.requires_grad and (k >= writes or effects.mutations[k].differentiable)
    ]


def leaf_indices(leaves: Sequence[Any]) -> list[int]:
    """The inputs that may get a gradient, each tensor once."""
    known: set[int] = set()
    indices = []
    for index, leaf in enumerate(leaves):
        if (
            isinstance(leaf, torch.Tensor)
            and leaf.requires_grad
            and leaf.is_leaf
            and id(leaf) not in known
        ):
            known.add(id(leaf))
            indices.append(index)
    return indices
