"""drop_in: puts ``argand.compile`` behind the calls that people's code and libraries already make.

``argand.install()`` replaces ``torch.compile``, ``torch.nn.Module.compile`` and the functions of
``torch.compiler`` that a compiled program calls, for the whole process; ``argand.uninstall()`` takes
it back. In: nothing. Out: what was replaced, by name. Libraries that took ``torch.compile`` by
``from torch import compile`` before keep torch's. accelerate, which takes backends of a fixed list only, gets
ours into the list (``TrainingArguments(torch_compile_backend="argand")``).
"""

from __future__ import annotations

import enum
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, final

import torch
from typing_extensions import override

from argand import pipeline
from argand.backends.registry import (
    BackendSpec,
    get_default_backend,
    list_backends,
    set_default_backend,
)
from argand.capture.rules.marks import allow_in_graph, assume_constant_result, disable
from argand.runtime.cache import ArgandWarning, reset
from argand.runtime.stance import set_stance
from argand.support.dataclass import fields_of
from argand.support.locks import make_lock
from argand.support.options import Options

# What torch.compile is called with when nobody chose anything: there, Argand's own backend stands in.
_DEFAULT_BACKENDS: Final = frozenset({None, "inductor"})
_OPTION_NAMES: Final = frozenset(field.name for field in fields_of(Options))


class _Place(NamedTuple):
    """One name that is replaced: where it is, and what comes there."""

    owner: Any
    name: str
    replacement: Callable[..., Any]


def _compile(model: Any = None, **keywords: Any) -> Any:
    """``torch.compile`` with Argand behind it: all its arguments, its default backend replaced by ours."""
    if model is None:
        return functools.partial(_compile, **keywords)
    return pipeline.compile(model, **_translate(keywords))


def _compile_module(module: torch.nn.Module, **keywords: Any) -> None:
    """``torch.nn.Module.compile``."""
    pipeline.compile_in_place(module, **_translate(keywords))


def _translate(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a ``torch.compile`` call, for ours."""
    ours = dict(keywords)
    backend: BackendSpec | None = ours.get("backend")
    if isinstance(backend, str | None) and backend in _DEFAULT_BACKENDS:
        ours.pop("backend", None)
        ours["options"] = _known_options(ours.get("options"))
    if ours.pop("shapes_spec", None) is not None:
        _warn_once(
            "shapes_spec is not supported and has no effect: sizes open by themselves when they change"
        )
    return ours


def _known_options(options: Mapping[str, object] | None) -> dict[str, object] | None:
    """Of the options for another compiler, those that ours has too; the rest have no effect here."""
    if not options:
        return None
    unknown = sorted(name for name in options if name.replace("-", "_") not in _OPTION_NAMES)
    if unknown:
        _warn_once(
            f"these options are torch.compile's own and have no effect: {', '.join(unknown)}"
        )
    return {name: value for name, value in options.items() if name not in unknown} or None


@functools.cache
def _warn_once(message: str) -> None:
    warnings.warn(f"argand.install: {message}", ArgandWarning, stacklevel=5)


def _set_stance(
    stance: str = "default",
    *,
    skip_guard_eval_unsafe: bool = False,
    force_backend: BackendSpec | None = None,
) -> set_stance:
    """``torch.compiler.set_stance``: guards are always evaluated, and a backend is chosen per ``compile``."""
    if skip_guard_eval_unsafe:
        _warn_once("skip_guard_eval_unsafe has no effect: guards are always evaluated")
    if force_backend is not None:
        _warn_once("force_backend has no effect: give backend= to compile")
    if stance == "aot_eager_then_compile":
        stance = "eager_then_compile"
    return set_stance(stance)


def _nothing() -> None:
    """``torch.compiler.cudagraph_mark_step_begin``: there are no CUDA graphs here."""


def _places() -> tuple[_Place, ...]:
    compiler = torch.compiler
    return (
        _Place(torch, "compile", _compile),
        _Place(torch.nn.Module, "compile", _compile_module),
        _Place(compiler, "compile", _compile),
        _Place(compiler, "disable", disable),
        _Place(compiler, "allow_in_graph", allow_in_graph),
        _Place(compiler, "assume_constant_result", assume_constant_result),
        _Place(compiler, "set_stance", _set_stance),
        _Place(compiler, "reset", reset),
        _Place(compiler, "list_backends", list_backends),
        _Place(compiler, "set_default_backend", _set_default_backend),
        _Place(compiler, "get_default_backend", get_default_backend),
        _Place(compiler, "cudagraph_mark_step_begin", _nothing),
    )


def _set_default_backend(backend: str | Callable[..., Any] | None) -> None:
    """``torch.compiler.set_default_backend``: None and "inductor" mean ours."""
    set_default_backend(
        "argand" if isinstance(backend, str | None) and backend in _DEFAULT_BACKENDS else backend
    )


# --- lists of names in libraries ---------------------------------------------------------------

_LIST: Final = "accelerate.utils.dataclasses"  # has an enumeration of the backends that Trainer may be told to use


@final
class _WhenImported(importlib.abc.MetaPathFinder):
    """Adds our name to accelerate's list as soon as it is imported; nothing is imported for it."""

    @override
    def find_spec(
        self, fullname: str, path: Any, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _LIST:
            return None
        sys.meta_path.remove(self)  # once; and the search that follows is the usual one
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_add(module: types.ModuleType) -> None:
                run(module)
                _add_name(module)

            spec.loader.exec_module = run_and_add  # type: ignore[method-assign]
        return spec


def _add_name(module: types.ModuleType) -> None:
    """``DynamoBackend("ARGAND")`` is a member; the library hands its name on to ``torch.compile`` in small letters."""
    backends: Any = getattr(module, "DynamoBackend", None)
    if not (
        isinstance(backends, type) and issubclass(backends, str) and issubclass(backends, enum.Enum)
    ):
        return  # another version, with other ways
    member: Any = str.__new__(backends, "ARGAND")
    member._name_ = member._value_ = "ARGAND"
    backends._missing_ = classmethod(lambda cls, value: member if value == "ARGAND" else None)  # type: ignore[assignment]


def _add_names() -> None:
    if _LIST in sys.modules:
        _add_name(sys.modules[_LIST])
    elif not any(isinstance(finder, _WhenImported) for finder in sys.meta_path):
        sys.meta_path.insert(0, _WhenImported())


class _Installed:
    """What was there before, by place; empty while nothing is installed."""

    def __init__(self) -> None:
        self.lock = make_lock()
        self.before: list[_Place] = []


_installed: Final = _Installed()


def install() -> tuple[str, ...]:
    """Put Argand behind ``torch.compile`` in this process; a second call changes nothing.

    Returns the names that lead to Argand now. Programs that start with ``python -m argand
    script.py`` need no call.
    """
    places = _places()
    with _installed.lock:
        if not _installed.before:
            for place in places:
                _installed.before.append(
                    _Place(place.owner, place.name, getattr(place.owner, place.name))
                )
                setattr(place.owner, place.name, place.replacement)
        _add_names()
    return tuple(f"{getattr(place.owner, '__name__', 'torch')}.{place.name}" for place in places)


def uninstall() -> None:
    """Give ``torch.compile`` and the others back; what was compiled stays compiled."""
    with _installed.lock:
        while _installed.before:
            place = _installed.before.pop()
            setattr(place.owner, place.name, place.replacement)
