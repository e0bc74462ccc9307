"""backends.resolve: functions that compile graphs, under the one signature of ``protocol``.

In: a backend by name or as a plain function. Out: ``Compiler``. Argand's own backend is called behind its public
border, which checks at every call that inputs are like the examples: the guards of our captures say so already.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from argand.backends.registry import CompilerFunction, lookup_backend
from argand.protocol import CompiledGraph, Compiler, adapted
from argand.support.options import Options, make_options


def is_own(function: CompilerFunction) -> bool:
    """Whether a function is Argand's own backend."""
    module = sys.modules.get("argand.backends.argand_backend")
    return module is not None and function is module.argand


def own_compiler(options: Options) -> Compiler:
    """Argand's own backend for graphs of our own captures."""
    from argand.backends.argand_backend import compile_graph  # noqa: PLC0415  # other backends need none of it

    return functools.partial(compile_graph, options=options)


def own_restore(options: Options) -> Callable[[str], CompiledGraph | None]:
    """How its graphs come back from disk."""
    from argand.backends.argand_backend import restore  # noqa: PLC0415

    return functools.partial(restore, options=options)


def plain_compiler(
    function: CompilerFunction, mode: str | None, options: Mapping[str, object]
) -> Compiler:
    """A function ``(gm, example_inputs, **keywords) -> callable``; keywords only where there is something to say."""

    def compile_graph(gm: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        keywords: dict[str, object] = {}
        if mode not in (None, "default"):
            keywords["mode"] = mode
        if options:
            keywords["options"] = dict(options)
        return function(gm, example_inputs, **keywords)

    return adapted(compile_graph)


def compiler_of(backend: str | CompilerFunction) -> Compiler:
    """The compiler of a name or function, without options."""
    function = lookup_backend(backend)
    return own_compiler(make_options()) if is_own(function) else plain_compiler(function, None, {})
