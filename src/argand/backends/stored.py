"""backends.stored: programs of Argand's own backend, restored from disk by the key they were stored under.

In: the key of a graph this backend compiled, perhaps in another process, and its options. Out: the same
``CompiledGraph``, or None for a miss. Imports nothing that only a compile needs.
"""

from __future__ import annotations

from typing import Any

from argand.autograd.stored import restore as restore_program
from argand.protocol import CompiledGraph
from argand.support.options import Options


def restore(key: str, options: Options) -> CompiledGraph | None:
    """The program of a key; the caller's guards must say that the inputs are as they were."""

    def compilers() -> Any:
        from argand.backends.argand_backend import make_compilers  # noqa: PLC0415  # rarely needed

        return make_compilers(options)

    return restore_program(key, options, compilers)
