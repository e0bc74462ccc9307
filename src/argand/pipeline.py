"""pipeline: the compiler on one page.

``compile(model)`` gives back the model under the same call, with a region of its own. While a call
runs in a region, every Python frame goes through these stages, in this order:

1. hook      (runtime/frames.c)  is there an entry whose guards hold? Then it runs, and that is all.
2. policy    (runtime.cache)     stance and recompile limit decide whether to compile at all: first,
                                 because everything after it costs milliseconds.
3. capture   (capture.trace)     the frame is interpreted on fakes: a torch graph, guards, a journal.
4. backend   (backends.bind)     each graph becomes a callable. Inside capture, because what comes
                                 after a graph break is only known when the graph before it can run.
     autograd -> passes -> schedule -> LLVM, for the default backend (backends.argand_backend)
5. guards    (runtime.guard_programs)  the rows become a C program: last, when no more rows can come.

Four of these are stages whose results are kept on disk (runtime.disk.stage), each asked before its work is done. A
hit of one leaves out all that comes after it in this table, but for loading what its entry names:

    entry      stage          asked by                                 before
    capture    FrameStage     _compile_frame, here                     the frame is interpreted
    autograd   ProgramStage   backends.argand_backend.compile_graph    the graph is traced and differentiated
    graph      GraphStage     native.graph_cache.GraphCompiler         the code generator
    object     ObjectStage    native.codegen.llvm.objects.object_code  LLVM
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict, TypeVar, Unpack, overload

import torch

from argand.backends.bind import bind_backend, bind_own, is_bound_to_own
from argand.backends.registry import BackendSpec, get_default_backend, is_in_tree
from argand.progress import start_progress
from argand.protocol import Backend, Described, OpenSizes
from argand.runtime import _native, callables
from argand.runtime._native import FrameView, Region
from argand.runtime.cache import CodeCache, Compiled, shared_region
from argand.runtime.disk.stage import run_stage
from argand.runtime.varied import open_places
from argand.sizes.history import SizeHistories
from argand.support import events, logs
from argand.support.dataclass import replace
from argand.support.errors import OptionError
from argand.support.options import COMPARING, MODES, Options, make_options, read_environment
from argand.support.switches import is_off

if TYPE_CHECKING:
    from argand.capture.explain import Explanation
    from argand.capture.finish.finish import Captured, Skipped
    from argand.capture.markers import Marker

Model = TypeVar("Model", bound=Callable[..., Any])

# Options of capture and cache. The rest are the backend's: another one has its own names for them.
_OURS: Final = frozenset(
    {"recompile_limit", "strict", "verify", "off", "background", "compile_seconds"}
)


class _Keywords(TypedDict, total=False):
    fullgraph: bool
    dynamic: bool | None
    backend: BackendSpec | None
    mode: str | None
    options: Mapping[str, object] | None
    name: str | None
    disable: bool
    recompile_limit: int | None
    isolate_recompiles: bool
    shapes_spec: object


@overload
def compile(model: Model, **keywords: Unpack[_Keywords]) -> Model: ...
@overload
def compile(model: None = None, **keywords: Unpack[_Keywords]) -> Callable[[Model], Model]: ...
def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: BackendSpec | None = None,
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: object = None,
) -> Any:
    """Compile a function, method, callable object, class or module; also a decorator.

    Nothing is compiled before the first call. The result is called like ``model``; a module gives a
    second module over the same parameters, attributes and hooks.

    Args:
        model: what to compile; left out, ``compile`` is a decorator with arguments.
        fullgraph: a graph break is an error that names the line, instead of a second graph.
        dynamic: True leaves all sizes open from the first call, False none ever; None opens a size
            when it changes.
        backend: a name of ``argand.list_backends()``, a function ``(graph, example_inputs) ->
            callable``, or a list of them, tried in order.
        mode: a set of options by name: "default", "fast-compile", "max-performance", or a name that
            ``torch.compile`` knows.
        options: single options; ``argand.support.options.Options`` has them all. Not with ``mode``.
        name: what logs and events call this region.
        disable: give ``model`` back as it is.
        recompile_limit: how often one function may be compiled; the same as the option of this name.
        isolate_recompiles: taken and not needed: every ``compile`` counts its own recompiles.
        shapes_spec: refused unless None; use ``argand.mark_dynamic`` and ``argand.mark_static``.

    Fails with ``InvalidBackend`` or ``OptionError`` here, with ``CaptureError`` at the call when
    ``fullgraph`` meets a graph break.
    """
    keywords: dict[str, Any] = {
        "fullgraph": fullgraph,
        "dynamic": dynamic,
        "backend": backend,
        "mode": mode,
        "options": options,
        "name": name,
        "recompile_limit": recompile_limit,
        "isolate_recompiles": isolate_recompiles,
        "shapes_spec": shapes_spec,
    }
    if model is None:
        return functools.partial(compile, **keywords, disable=disable)
    if disable or read_environment().disable:
        return model
    chosen = _choose(**keywords)
    return (
        model
        if is_off(chosen.options, "capture")
        else callables.compiled(model, _region_for(model, chosen, keywords))
    )


def compile_in_place(module: torch.nn.Module, **keywords: Any) -> torch.nn.Module:
    """Make the calls of ``module`` itself compiled; keywords as for ``compile``. Returns it."""
    if keywords.pop("disable", False) or read_environment().disable:
        return module
    chosen = _choose(**keywords)
    if is_off(chosen.options, "capture"):
        return module
    return callables.compile_module_in_place(module, _make_region(chosen))


def explain(model: Callable[..., Any], **keywords: Any) -> Callable[..., Explanation]:
    """``explain(fn)(*args)`` runs ``fn`` compiled, prints what was captured and returns it.

    Keywords as for ``compile``; the backend is ``eager`` unless given.
    """

    from argand.capture.explain import explain as explain_run  # noqa: PLC0415  # rarely needed

    def run(*args: Any, **kwargs: Any) -> Explanation:
        frames: list[Captured] = []
        chosen = _choose(**{"backend": "eager", **keywords})
        observed = replace(chosen.backend, observe=lambda: contextlib.nullcontext(frames.append))
        region = _make_region(chosen._replace(backend=observed))
        with events.collect() as seen:
            result = callables.compiled(model, region)(*args, **kwargs)
        explanation = explain_run(frames, seen, result)
        print(explanation)  # noqa: T201  # what the user asked for
        return explanation

    return run


class _Choice(NamedTuple):
    """What one ``compile`` was asked for."""

    backend: Backend
    options: Options  # made here, once; Argand's own backend has the same


def _choose(
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: BackendSpec | None = None,
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
    name: str | None = None,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: object = None,
) -> _Choice:
    """Backend and options of a ``compile``; what is wrong with them raises."""
    _check_peer_arguments(isolate_recompiles, shapes_spec)
    arguments: dict[str, object] = {"fullgraph": fullgraph, "dynamic": dynamic}
    if name is not None:
        arguments["name"] = name
    if recompile_limit is not None:
        arguments["recompile_limit"] = recompile_limit
    given, spec = dict(options or {}), get_default_backend() if backend is None else backend
    if is_bound_to_own(spec):
        ours = make_options(mode, given, **arguments)
        return _Choice(bind_own(ours), ours)
    theirs = {key: value for key, value in given.items() if key not in _OURS}
    bound = bind_backend(spec, mode, theirs)
    own = {key: value for key, value in given.items() if key in _OURS}
    known_mode = mode if mode in MODES and not own else None
    return _Choice(bound, make_options(known_mode, own, **arguments))


def _check_peer_arguments(isolate_recompiles: object, shapes_spec: object) -> None:
    """Arguments that ``torch.compile`` has and we need not (every region counts for itself) or have not."""
    if not isinstance(isolate_recompiles, bool):
        raise OptionError(f"isolate_recompiles must be bool, got {isolate_recompiles!r}")
    if shapes_spec is not None:
        hint = "mark the tensors: argand.mark_dynamic(x, 0), argand.mark_static(x); or dynamic=True"
        raise OptionError(
            "shapes_spec is an object of torch.compile's own and not supported", hint=hint
        )


def _region_for(model: Any, chosen: _Choice, keywords: Mapping[str, Any]) -> Region:
    """The region of a function or module; a backend of the user's compiles a function once for equal options."""
    spec = get_default_backend() if keywords["backend"] is None else keywords["backend"]
    users = (
        chosen.backend.identity is not None
        and not isinstance(spec, Backend | Described)
        and not is_in_tree(spec)
    )
    if not users or type(model) is not types.FunctionType or keywords["isolate_recompiles"]:
        return _make_region(chosen)
    return shared_region(model, chosen, lambda: _make_region(chosen))


def _make_region(chosen: _Choice) -> Region:
    backend, options = chosen
    is_prepared = None
    logs.start_from_environment()
    start_progress()
    if options.debug_dir:
        logs.write_to(options.debug_dir)
    if options.verify in COMPARING:
        from argand.backends.verified import verified  # noqa: PLC0415  # rarely needed

        backend = replace(backend, compile=verified(backend.compile, options), restore=None)
    else:
        events.artifact(
            "differences", lambda: "nothing is compared without options={'verify': 'report'}"
        )
    if options.verify not in COMPARING and (options.background or options.compile_seconds):
        from argand.background import Preparation, in_background, within  # noqa: PLC0415  # rarely needed

        is_prepared = Preparation().is_done if options.background else None

        aside = in_background if options.background else within
        backend = replace(backend, compile=aside(backend.compile, options))
    histories = (
        SizeHistories() if options.dynamic or backend.open_sizes is OpenSizes.ALWAYS else None
    )
    compile_frame = functools.partial(_compile_frame, backend, options, histories)
    return CodeCache(compile_frame, options, backend.reset, histories, is_prepared).make_region()


def _compile_frame(
    backend: Backend, options: Options, histories: SizeHistories | None, view: FrameView
) -> Compiled | str | None:
    """Stages 3 and 4 of one frame: restored from disk, or captured and kept there for the next process."""
    if backend.observe is not None:
        with backend.observe() as record:
            return _answer(_capture(backend, options, histories, view), record)
    if backend.restore is None or not options.cache:
        return _answer(_capture(backend, options, histories, view))
    from argand.capture.frame_stage import FrameStage, Restored  # noqa: PLC0415  # other backends need none

    capture = functools.partial(_capture, backend, options, histories, view)
    found = run_stage(FrameStage(view, options, backend.restore, capture), options).value
    if not isinstance(found, Restored):
        return _answer(found)
    if histories is not None and isinstance(found.answer, Compiled):
        histories.of(view.code).varied.update(open_places(found.answer.guards))
    return found.answer


def _capture(
    backend: Backend, options: Options, histories: SizeHistories | None, view: FrameView
) -> Captured | Skipped | Marker | None:
    # the interpreter takes longer to import than a restored frame to run
    from argand.capture.trace import capture_frame  # noqa: PLC0415
    from argand.sizes.plan import SizePlan  # noqa: PLC0415

    if histories is None:
        return capture_frame(view, backend, options, SizePlan(False))
    history = histories.of(view.code)
    plan = SizePlan(options.dynamic, frozenset(history.varied), frozenset(history.fixed))
    captured = capture_frame(view, backend, options, plan)
    if captured is not None:
        history.varied.update(plan.varied)
        history.fixed.update(plan.never_open)
    return captured


def _answer(
    captured: Captured | Skipped | Marker | None, record: Callable[[Captured], None] | None = None
) -> Compiled | str | None:
    """The answer to the hook for a capture."""
    from argand.capture.finish.finish import Captured  # noqa: PLC0415  # loaded by now
    from argand.capture.trace import OFF  # noqa: PLC0415

    if captured is None:
        return None
    if not isinstance(captured, Captured):
        return _native.OFF if captured is OFF else _native.SKIP
    if record is not None:
        record(captured)
    return Compiled(captured.guards, captured.collect, captured.target)
