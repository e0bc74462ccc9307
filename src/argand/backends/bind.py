"""backends.bind: a backend with its options, as ``argand.compile`` calls it.

In: ``backend=``, ``mode=``, ``options=``. Out: ``BoundBackend``, which compares equal when it would do
the same, so equal options share compiled code and changed ones recompile. Whatever a backend raises
comes out as ``BackendCompilerFailed`` with the inner error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from typing_extensions import override

from argand.backends.compose import FirstThatTakes
from argand.backends.registry import BackendSpec, CompilerFunction, lookup_backend, name_of
from argand.support import events
from argand.support.errors import BackendCompilerFailed, CaptureBreak, OptionError
from argand.support.options import make_options


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


@final
@dataclass(frozen=True, slots=True)
class BoundBackend:
    """A backend and the keywords it is called with."""

    name: str
    function: CompilerFunction
    mode: str | None
    identity: object  # options, hashable: decides whether compiled code can be shared
    options: Mapping[str, object]

    def __call__(self, gm: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        """Compile one graph."""
        keywords: dict[str, object] = {}
        if self.mode not in (None, "default"):
            keywords["mode"] = self.mode
        if self.options:
            keywords["options"] = dict(self.options)
        with events.stage("backend", self.name):
            try:
                compiled = self.function(gm, example_inputs, **keywords)
            except (BackendCompilerFailed, CaptureBreak):
                raise
            except Exception as error:
                raise BackendCompilerFailed(self.name, error) from error
            if not callable(compiled):
                wrong = TypeError(f"it returned {type(compiled).__name__}, which is not callable")
                raise BackendCompilerFailed(self.name, wrong)
            result: Callable[..., Any] = compiled
            return result

    def reset(self) -> None:
        """Call the backend's own ``reset``, when it has one."""
        reset = getattr(self.function, "reset", None)
        if callable(reset):
            reset()

    @override
    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, BoundBackend)
            and self.function is other.function
            and (self.mode, self.identity) == (other.mode, other.identity)
        )

    @override
    def __hash__(self) -> int:
        return hash((id(self.function), self.mode, self.identity))


def bind_backend(
    backend: BackendSpec, mode: str | None = None, options: Mapping[str, object] | None = None
) -> BoundBackend:
    """Resolve a backend now, so that a wrong name or option fails at ``argand.compile``."""
    if mode is not None and options:
        raise OptionError("mode and options cannot be given together", hint="put the mode's settings into options")
    several = isinstance(backend, list | tuple)
    function: CompilerFunction = FirstThatTakes(tuple(backend)) if several else lookup_backend(backend)  # type: ignore[arg-type]
    name = name_of(backend if isinstance(backend, str) else function)
    if name == "argand":
        make_options(mode, options)  # validates; the backend makes its own again
    given = dict(options or {})
    return BoundBackend(name, function, mode, _freeze(given), given)
