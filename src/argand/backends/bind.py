"""backends.bind: what the user gives as ``backend=`` becomes a ``Backend``.

In: ``backend=``, ``mode=``, ``options=``. Out: ``Backend``, which compares equal when it would do the same, so equal
options share compiled code and changed ones recompile. Plain functions are adapted here. Whatever a backend raises
comes out as ``BackendCompilerFailed`` with the inner error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from argand.backends.compose import FirstThatTakes
from argand.backends.registry import (
    BackendSpec,
    CompilerFunction,
    is_in_tree,
    lookup_backend,
    name_of,
    open_sizes_of,
)
from argand.backends.resolve import is_own, own_compiler, own_restore, plain_compiler
from argand.protocol import Backend, CompiledGraph, Compiler, Described, GraphContext, OpenSizes
from argand.sizes.refusals import Refusal
from argand.support import events
from argand.support.dataclass import replace
from argand.support.errors import BackendCompilerFailed, CaptureBreak, OptionError
from argand.support.options import Options, make_options


def _freeze(value: object) -> object:
    """A hashable image of an option value."""
    if isinstance(value, Mapping):
        return tuple(sorted((str(key), _freeze(item)) for key, item in value.items()))
    if isinstance(value, list | tuple):
        return tuple(_freeze(item) for item in value)
    if isinstance(value, set | frozenset):
        return frozenset(_freeze(item) for item in value)
    try:
        hash(value)
    except TypeError:
        return id(value)
    return value


def bind_backend(
    backend: BackendSpec, mode: str | None = None, options: Mapping[str, object] | None = None
) -> Backend:
    """Resolve a backend now, so that a wrong name or option fails at ``argand.compile``."""
    if mode is not None and options:
        raise OptionError(
            "mode and options cannot be given together", hint="put the mode's settings into options"
        )
    given = dict(options or {})
    if isinstance(backend, Described):
        backend = backend.describe()
    if isinstance(backend, Backend):
        return replace(backend, compile=_guarded(backend.name, backend.compile))
    if isinstance(backend, Sequence) and not isinstance(backend, str):
        return _bind_several(FirstThatTakes(tuple(backend)), mode, given)
    function = lookup_backend(backend)
    if is_own(function):
        return bind_own(make_options(mode, options))
    name = name_of(backend)
    return Backend(
        name=name,
        compile=_guarded(name, _tried(backend, name, plain_compiler(function, mode, given))),
        identity=(id(function), mode, _freeze(given)),
        open_sizes=open_sizes_of(backend),
        reset=_reset_of(function),
    )


def _tried(backend: BackendSpec, name: str, compile_graph: Compiler) -> Compiler:
    """The same; the code of a stranger for open sizes proves itself at the first sizes that differ."""
    if is_in_tree(backend):
        return compile_graph

    def compile_tried(
        gm: Any, example_inputs: Sequence[Any], context: GraphContext
    ) -> CompiledGraph | Refusal:
        found = compile_graph(gm, example_inputs, context)
        if context.sizes is None or not isinstance(found, CompiledGraph):
            return found
        from argand.backends.other_sizes import tried  # noqa: PLC0415  # only where sizes are open

        return tried(name, gm.forward, found, example_inputs)

    return compile_tried


def bind_own(options: Options) -> Backend:
    """Argand's own backend with options that are made already."""
    return Backend(
        name="argand",
        compile=_guarded("argand", own_compiler(options)),
        identity=options,
        open_sizes=OpenSizes.ALWAYS,
        restore=own_restore(options),
    )


def is_bound_to_own(backend: BackendSpec) -> bool:
    """Whether what the user gave is Argand's own backend, which takes our options; unknown names raise."""
    if isinstance(backend, Backend | Described) or (
        isinstance(backend, Sequence) and not isinstance(backend, str)
    ):
        return False
    return is_own(lookup_backend(backend))


def _bind_several(
    several: FirstThatTakes, mode: str | None, options: Mapping[str, object]
) -> Backend:
    if options or mode not in (None, "default"):
        raise OptionError(
            "a list of backends takes no mode and no options",
            hint="give functions with theirs bound",
        )
    return Backend(
        name=several.__name__, compile=_guarded(several.__name__, several.compile), identity=several
    )


def _guarded(name: str, compile_graph: Compiler) -> Compiler:
    """The same; what it raises comes out as ``BackendCompilerFailed``, which names the backend."""

    def compile_guarded(
        gm: Any, example_inputs: Sequence[Any], context: GraphContext
    ) -> CompiledGraph | Refusal:
        with events.stage("backend", name):
            try:
                return compile_graph(gm, example_inputs, context)
            except (BackendCompilerFailed, CaptureBreak):
                raise
            except Exception as error:
                raise BackendCompilerFailed(name, error) from error

    return compile_guarded


def _reset_of(function: CompilerFunction) -> Callable[[], None]:
    """A backend's own ``reset``, torch's convention for those that keep something."""

    def reset() -> None:
        found = getattr(function, "reset", None)
        if callable(found):
            found()

    return reset
