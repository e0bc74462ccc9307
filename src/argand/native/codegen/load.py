"""native.codegen.load: object code becomes functions, by our own loader, or by LLVM's where it cannot."""

from __future__ import annotations

from typing import Any

from argand.native.codegen.elf import load_object


def load(code: bytes) -> Any:
    """The functions of an object, by LLVM's linker when ours cannot; `address` finds them."""
    found = load_object(code)
    if found is not None:
        return found
    from argand.native.codegen.llvm.engine import Loaded  # noqa: PLC0415  # rarely needed

    return Loaded(code)
