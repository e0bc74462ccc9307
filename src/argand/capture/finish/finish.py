"""capture.finish.finish: a finished trace becomes a graph module and a compiled function.

In: a tracer whose root frame returned or broke. Out: `Captured`: guards, sources to collect, the callable, and
what `explain` shows. Dead nodes and unused inputs are removed; torch's state is left as the program left it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, final

import torch
import torch.fx

from argand.capture.finish.relied import asked_of, facts_of, tables_of
from argand.capture.generated import again
from argand.capture.generated.target import make_target
from argand.capture.generated.torch_state import STATE, read_state, restore_state
from argand.capture.generated.tracebacks import pass_through
from argand.capture.interpret import show
from argand.capture.objects.handling import Exceptions
from argand.capture.objects.tracer import FRAME_FUNCTION, Tracer
from argand.capture.outside.kinds import PLAIN_TENSORS
from argand.capture.outside.state import Outside
from argand.capture.outside.subclasses import plain
from argand.capture.outside.world import Known, World
from argand.capture.record.recorder import Recorder, remove_dead
from argand.capture.sizes.twin import check_twin
from argand.capture.stored.save import Facts
from argand.capture.write.checks import write_checks
from argand.capture.write.effects import write_effects
from argand.capture.write.messages import write_messages
from argand.capture.write.rebuild import CannotRebuild, Rebuilder
from argand.capture.write.reruns import arguments, write_attempt
from argand.protocol import Backend, CompiledGraph, GraphContext
from argand.runtime import _native
from argand.runtime.guards import Guard, GuardKind
from argand.runtime.lifetimes import LazyGraph
from argand.runtime.sources import MadeFrom, Source
from argand.sizes.expressions import Expr
from argand.sizes.refusals import Refusal
from argand.sizes.view import GraphSizes
from argand.support import events
from argand.support.errors import Break, CaptureBreak, Location

Ending = Callable[[Rebuilder, Callable[[], None]], None]


class Captured(NamedTuple):
    """A captured frame: what must hold, what to collect, what to call."""

    guards: tuple[Guard, ...]
    collect: tuple[Source, ...]
    target: Callable[..., Any]
    graph: torch.fx.GraphModule | None
    broken: CaptureBreak | None
    source: str  # text of the compiled function
    where: Location
    sizes: tuple[str, ...] = ()  # symbols, and places that did not stay open
    facts: Facts | None = None  # what `stored` keeps for other processes


@final
class Skipped(NamedTuple):
    """A frame that was traced and has nothing to compile: why, for `stored`."""

    guards: tuple[Guard, ...]
    facts: Facts
    collect: tuple[Source, ...] = ()
    source: str = ""


def skipped(outside: Outside) -> Skipped:
    """The answer for a frame that is to run in Python, with what the trace had read until then."""
    guards = (
        Guard(GuardKind.GLOBAL_STATE, None),
        *outside.world.guards,
        *outside.world.sizes.all_guards(),
    )
    return Skipped(guards, facts_of(outside, {}, None))


def finish(
    tracer: Tracer,
    where: Location,
    saved: tuple[Any, ...],
    backend: Backend,
    ending: Ending,
    broken: CaptureBreak | None,
) -> Captured | Refusal:
    """Compile the graph and write the function around it. `saved` is the state at the start.

    A refusal says what another attempt has to know about sizes.
    """
    rebuilder = Rebuilder(tracer, sizes_in_graph=backend.returns_sizes)
    left = read_state()

    def effects() -> None:
        _write_all(rebuilder, saved, left, where)

    _write_tracebacks(rebuilder, tracer.exceptions)
    ending(rebuilder, effects)
    restore_state(saved)
    asked = tuple(asked_of(tracer.world))
    if left[0] != saved[0]:
        tracer.recorder.effect(torch._C._set_grad_enabled, (saved[0],))
    _check_overlap(tracer.recorder)
    _check_checks(tracer)
    sizes = tracer.world.sizes
    refusal = _check_sizes(tracer.recorder, saved) if sizes.active else None
    if refusal is not None:
        return refusal
    module, inputs = _graph_module(tracer.recorder, rebuilder.outputs)
    head: list[str] = []
    made: CompiledGraph | None = None
    if module is not None:
        examples = [plain(known.raw) for _, known in inputs]
        with events.stage("capture.backend"):
            compiled = backend.compile(module, examples, _context(tracer))
        if not isinstance(compiled, CompiledGraph):
            return compiled
        made = compiled
        timed = events.wrapped(compiled.takes_inputs, lambda: _described(where, module, broken))
        rebuilder.namespace["graph"] = _native.disabled(timed)
        head = _graph_call(rebuilder, inputs, saved, compiled.repeatable)
    text, target = _target(rebuilder, head, where, made and made.call, broken is None)
    guards = _all_guards(tracer, asked, made)
    events.artifact("bytecode", lambda: text, str(where))
    events.artifact("guards", lambda: "\n".join(map(str, guards)), str(where))
    events.record("frame", lambda: {**_described(where, module, broken), "guards": len(guards)})
    facts = facts_of(tracer, rebuilder.namespace, made.key if made else None)
    return Captured(
        guards=guards,
        collect=tuple(rebuilder.collect),
        target=target,
        graph=module,
        broken=broken,
        source=text,
        where=where,
        sizes=sizes.notes(),
        facts=facts,
    )


def _staying(made: CompiledGraph | None) -> tuple[Guard, ...]:
    """A graph that may have to be compiled anew takes the frame with it."""
    if made is None or made.stays is None:
        return ()
    return (Guard(GuardKind.WEAK_ALIVE, FRAME_FUNCTION, made.stays),)


def _frame_text(rebuilder: Rebuilder) -> str:
    """A statement that gives the frame's function and its arguments; nothing where it has none."""
    root: Any = rebuilder.tracer.root
    if root is None or root.function is None:
        return ""
    return f"return pack({rebuilder.source(FRAME_FUNCTION)}, {arguments(rebuilder)})"


def _target(
    rebuilder: Rebuilder, head: list[str], where: Location, graph: Any, is_whole: bool
) -> tuple[str, Callable[..., Any]]:
    """The text of the compiled function, and the function; a whole frame may be compared with Python's at each call."""
    options = rebuilder.tracer.options
    frame = _frame_text(rebuilder) if is_whole and options.verify in ("results", "report") else ""
    text, place = _text(rebuilder, head), f"{where.function}:{where.line}"
    target = make_target(text, rebuilder.namespace, place)
    if not frame:
        return text, target
    from argand.capture.generated.verified import VerifiedFrame, pack  # noqa: PLC0415  # rarely needed

    signature = text.partition("\n")[0]
    called = make_target(f"{signature}\n    {frame}", {"pack": pack}, f"frame of {place}")
    return text, VerifiedFrame(target, called, graph, where, options)


def _described(
    where: Location, module: torch.fx.GraphModule | None, broken: CaptureBreak | None
) -> dict[str, Any]:
    """A captured frame, for reports."""
    calls = (
        []
        if module is None
        else [node for node in module.graph.nodes if node.op.startswith("call_")]
    )
    return {
        "where": where,
        "calls": len(calls),
        "broken": None if broken is None else broken.described(),
    }


def _write_tracebacks(rebuilder: Rebuilder, exceptions: Exceptions) -> None:
    """Exceptions from outside get the lines of the frames that they went through."""
    for error, code, index in exceptions.passed:
        passed = f"{rebuilder.value(error)}, {rebuilder.constant(code, 'code')}, {index}"
        rebuilder.emit(f"{rebuilder.constant(pass_through)}({passed})")


def _graph_call(
    rebuilder: Rebuilder, inputs: list[Any], saved: tuple[Any, ...], repeatable: bool
) -> list[str]:
    """The statements that run the graph: checks of it first, and what is done when it raises."""
    names = ", ".join([_given(rebuilder, known) for _, known in inputs])
    outs = "".join(f"out{i}, " for i in range(len(rebuilder.outputs)))
    checks, call = write_checks(rebuilder, inputs, f"graph({names})")
    statement = f"{outs.rstrip()} = {call}" if outs else call
    if call == "outputs":
        return [*checks, statement]
    return checks + write_attempt(rebuilder, statement, saved, repeatable)


def _all_guards(
    outside: Outside, asked: tuple[Guard, ...], made: CompiledGraph | None
) -> tuple[Guard, ...]:
    """What must hold for the function to be used again, in the order in which it is checked."""
    world, facts = outside.world, made.facts if made else ()
    return (
        Guard(GuardKind.TABLES, None, tables_of(outside)),
        Guard(GuardKind.GLOBAL_STATE, None),
        *asked,
        *world.guards,
        *world.sizes.all_guards(facts),
        *_staying(made),
    )


def _given(rebuilder: Rebuilder, known: Known) -> str:
    """What a graph is called with for one of its inputs."""
    text = rebuilder.source(known.source)
    if not isinstance(known.raw, torch.Tensor) or type(known.raw) in PLAIN_TENSORS:
        return text
    return f"{rebuilder.constant(plain)}({text})"


def complaint(tracer: Tracer, where: Location, error: BaseException) -> Captured:
    """The answer under `fullgraph` for a frame in which the trace raised: eager raises the same, or it is our error."""
    rebuilder = Rebuilder(tracer, sizes_in_graph=False)
    function = rebuilder.source(FRAME_FUNCTION)
    rebuilder.namespace.update(again.NAMES)
    rebuilder.emit(f"return must_raise({function}, {repr(error)!r})({arguments(rebuilder)})")
    text = _text(rebuilder, [])
    target = make_target(text, rebuilder.namespace, f"{where.function}:{where.line}")
    guards = (
        Guard(GuardKind.GLOBAL_STATE, None),
        *tracer.world.guards,
        *tracer.world.sizes.all_guards(),
    )
    return Captured(
        guards=guards,
        collect=tuple(rebuilder.collect),
        target=target,
        graph=None,
        broken=None,
        source=text,
        where=where,
    )


def _write_all(
    rebuilder: Rebuilder, saved: tuple[Any, ...], left: tuple[Any, ...], where: Location
) -> None:
    """Everything the trace did besides its graph. `left` is torch's state at its end."""
    begin = len(rebuilder.lines)
    write_messages(rebuilder, saved)
    write_effects(rebuilder)
    for mode in rebuilder.tracer.overrides.modes:
        rebuilder.emit(f"{rebuilder.constant(torch.overrides._push_mode)}({rebuilder.value(mode)})")
    for manager in rebuilder.tracer.torch.regions:  # they were entered in name only
        rebuilder.emit(f"{rebuilder.value(manager)}.__enter__()")
    for i, (now, before) in enumerate(zip(left, saved, strict=True)):
        if now != before:
            rebuilder.emit(f"{rebuilder.constant(STATE[i].write)}({rebuilder.constant(now)})")
    show.tell_effects(rebuilder.lines[begin:], where)


def _text(rebuilder: Rebuilder, head: list[str]) -> str:
    parameters = ", ".join(f"v{i}" for i in range(len(rebuilder.collect)))
    body = "".join(f"    {line}\n" for line in [*head, *rebuilder.lines])
    return f"def compiled({parameters}):\n{body}"


def _graph_module(
    recorder: Recorder, outputs: list[torch.fx.Node]
) -> tuple[torch.fx.GraphModule | None, list[Any]]:
    graph = recorder.graph
    output = graph.output(tuple(outputs))
    output.meta["example_value"] = tuple(node.meta["example_value"] for node in outputs)
    calls = remove_dead(graph, recorder.keep)
    if not calls or not (outputs or recorder.calls):
        return None, []
    inputs = [row for row in recorder.inputs if row[0].users or row[0] in recorder.keep]
    module = LazyGraph(recorder.modules, graph, "CapturedGraph")
    events.count("capture.graphs")
    events.artifact("graph", lambda: show.table(graph))
    events.artifact("graph_code", lambda: str(module.code))
    return module, inputs


def _context(tracer: Tracer) -> GraphContext:
    """What the backend gets besides the graph and its inputs."""
    sizes = tracer.world.sizes
    return GraphContext(
        GraphSizes(sizes.table) if sizes.active else None, strict=tracer.options.fullgraph
    )


def _check_sizes(recorder: Recorder, saved: tuple[Any, ...]) -> Refusal | None:
    """Check the shapes of a graph for other sizes; each open size is an input, used or not."""
    sizes = recorder.world.sizes
    for symbol in [symbol for symbol in sizes.table.samples if symbol in sizes.sources]:
        recorder.keep.add(recorder.size_node(Expr.of(symbol)))
    if sizes.table.unbacked:
        recorder.world.keep_off_disk("sizes that depend on data")
    try:
        return check_twin(
            recorder.graph, {node: known.raw for node, known in recorder.inputs}, sizes
        )
    finally:
        restore_state(saved)


def _check_checks(tracer: Tracer) -> None:
    """A check that fails runs the call in Python: inputs must be as they were."""
    checks = tracer.journal.checks
    if checks and not tracer.options.fullgraph and tracer.recorder.changes_inputs():
        # a break is cheaper than computing it twice
        raise CannotRebuild("a check before changes", checks[0][2])


def _check_overlap(recorder: Recorder) -> None:
    """In-place changes of inputs are right only while no two inputs share memory."""
    world = recorder.world
    inputs = [known for _, known in recorder.inputs if isinstance(known.raw, torch.Tensor)]
    if not recorder.mutated_inputs or len(inputs) < 2:
        return
    if any(isinstance(known.source, MadeFrom) for known in inputs):
        raise CaptureBreak(
            Break.B013, None, what="a change of one of several arguments, of which some are arrays"
        )
    changed = recorder.changed_inputs()
    if not changed or any(known.value.is_inference() for known in inputs):
        changed = inputs  # not all changes are counted
    written = [known.raw.untyped_storage()._cdata for known in changed]
    places = [known.raw.untyped_storage()._cdata for known in inputs]
    if any(places.count(place) > 1 for place in written):
        raise CaptureBreak(Break.B013, None, what="a change of one of several views of one tensor")
    # of these nobody is changed
    others = [known for at, known in enumerate(inputs) if places[at] in places[:at]]
    _guard_apart(world, [known for known in inputs if all(known is not other for other in others)])
    for known in others:
        _guard_apart(world, [known, *changed])


def _guard_apart(world: World, inputs: list[Known]) -> None:
    """No two of these may share memory."""
    first, *rest = [known.source for known in inputs]
    world.guard(GuardKind.NO_OVERLAP, first, tuple(rest))
