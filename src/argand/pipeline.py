"""pipeline: the compiler on one page.

``compile(model)`` gives back the model under the same call, with a region of its own. While a call
runs in a region, every Python frame goes through these stages, in this order:

1. hook      (runtime/frames.c)  is there an entry whose guards hold? Then it runs, and that is all.
2. policy    (runtime.cache)     stance and recompile limit decide whether to compile at all: first,
                                 because everything after it costs milliseconds.
   stored    (capture.stored)    a capture another process left, when all it relied on holds here.
3. capture   (capture.trace)     the frame is interpreted on fakes: a torch graph, guards, a journal.
4. backend   (backends.bind)     each graph becomes a callable. Inside capture, because what comes
                                 after a graph break is only known when the graph before it can run.
     autograd -> passes -> schedule -> LLVM, for the default backend (backends.argand_backend)
5. guards    (runtime.programs)  the rows become a C program: last, when no more rows can come.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar, Unpack, overload

import torch

from argand.backends.bind import BoundBackend, bind_backend
from argand.backends.registry import BackendSpec, get_default_backend
from argand.runtime import _native, callables
from argand.runtime._native import FrameView, Region
from argand.runtime.cache import CodeCache, Compiled
from argand.runtime.varied import open_places
from argand.sizes.history import SizeHistories
from argand.support import events, logs
from argand.support.options import MODES, Options, make_options, read_environment

if TYPE_CHECKING:
    from argand.capture.explain import Explanation
    from argand.capture.finish import Captured

Model = TypeVar("Model", bound=Callable[..., Any])

# Options of capture and cache. The rest are the backend's: another one has its own names for them.
_OURS: Final = frozenset({"recompile_limit", "strict"})
# Backends that understand sizes known at run time only; others get them with dynamic=True.
_TAKE_OPEN_SIZES: Final = frozenset({"argand", "eager", "eager_noexcept", "eager_debug", "aot_eager"})


class _Keywords(TypedDict, total=False):
    fullgraph: bool
    dynamic: bool | None
    backend: BackendSpec | None
    mode: str | None
    options: Mapping[str, object] | None
    disable: bool


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
    disable: bool = False,
) -> Any:
    """Compile a function, method, callable object, class or module; also a decorator.

    Nothing is compiled before the first call. The result is called like ``model``; a module gives a
    second module over the same parameters, attributes and hooks. Fails with ``InvalidBackend`` or
    ``OptionError`` here, with ``CaptureError`` at the call when ``fullgraph`` meets a graph break.
    """
    keywords: dict[str, Any] = {
        "fullgraph": fullgraph,
        "dynamic": dynamic,
        "backend": backend,
        "mode": mode,
        "options": options,
    }
    if model is None:
        return functools.partial(compile, **keywords, disable=disable)
    if disable or read_environment().disable:
        return model
    return callables.compiled(model, _make_region(**keywords))


def compile_in_place(module: torch.nn.Module, **keywords: Any) -> torch.nn.Module:
    """Make the calls of ``module`` itself compiled; keywords as for ``compile``. Returns it."""
    if keywords.pop("disable", False) or read_environment().disable:
        return module
    return callables.compile_module_in_place(module, _make_region(**keywords))


def explain(model: Callable[..., Any], **keywords: Any) -> Callable[..., Explanation]:
    """``explain(fn)(*args)`` runs ``fn`` compiled, prints what was captured and returns it.

    Keywords as for ``compile``; the backend is ``eager`` unless given.
    """

    from argand.capture.explain import explain as explain_run  # noqa: PLC0415  # rarely needed

    def run(*args: Any, **kwargs: Any) -> Explanation:
        frames: list[Captured] = []
        region = _make_region(**{"backend": "eager", **keywords}, record=frames.append)
        with events.collect() as seen:
            result = callables.compiled(model, region)(*args, **kwargs)
        explanation = explain_run(frames, seen, result)
        print(explanation)  # noqa: T201  # what the user asked for
        return explanation

    return run


def _make_region(
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: BackendSpec | None = None,
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
    record: Callable[[Captured], None] | None = None,
) -> Region:
    logs.start_from_environment()
    chosen_backend = get_default_backend() if backend is None else backend
    given = dict(options or {})
    ours = {name: value for name, value in given.items() if name in _OURS}
    if chosen_backend == "argand":
        ours = given
    else:
        given = {name: value for name, value in given.items() if name not in _OURS}
    bound = bind_backend(chosen_backend, mode, given)
    known_mode = mode if mode in MODES and not ours else None
    chosen = make_options(known_mode, ours, fullgraph=fullgraph, dynamic=dynamic)
    if chosen.debug_dir:
        logs.write_to(chosen.debug_dir)
    record = record or getattr(bound.function, "record_frame", None)  # report.explained
    open_sizes = bound.name in _TAKE_OPEN_SIZES or hasattr(bound.function, "open_sizes")  # the latter: packages
    histories = SizeHistories() if dynamic or open_sizes else None
    compile_frame: Callable[[FrameView], Any] = functools.partial(_compile_frame, bound, chosen, record, histories)
    if hasattr(bound.function, "watch"):
        compile_frame = bound.function.watch(compile_frame)
    return CodeCache(compile_frame, chosen, bound.reset, histories).make_region()


def _compile_frame(
    backend: BoundBackend,
    options: Options,
    record: Callable[[Captured], None] | None,
    histories: SizeHistories | None,
    view: FrameView,
) -> Compiled | str | None:
    """Stages 3 and 4 of one frame, or what the disk cache has kept of them."""
    shelf = None
    if record is None and backend.name == "argand" and options.cache:
        from argand.capture.stored.shelf import Shelf  # noqa: PLC0415  # other backends need none

        shelf = Shelf(view, options)
        restored = shelf.restore()
        if restored is not None:
            if histories is not None:
                places = open_places(getattr(restored, "guards", ()))
                histories.of(view.code).varied.update(places)
            return restored
    # the interpreter takes longer to import than a restored frame to run
    from argand.capture.finish import Captured, Skipped  # noqa: PLC0415
    from argand.capture.trace import capture_frame  # noqa: PLC0415
    from argand.sizes.plan import Plan  # noqa: PLC0415

    history = histories.of(view.code) if histories is not None else None
    plan = (
        Plan(False) if history is None else Plan(options.dynamic, frozenset(history.varied), frozenset(history.fixed))
    )
    captured = capture_frame(view, backend, options, plan)
    if history is not None and captured is not None:
        history.fixed.update(plan.pinned)
    if shelf is not None and isinstance(captured, Captured | Skipped):
        shelf.keep(captured)
    if not isinstance(captured, Captured):
        return None if captured is None else _native.SKIP
    if record is not None:
        record(captured)
    return Compiled(captured.guards, captured.collect, captured.target)
