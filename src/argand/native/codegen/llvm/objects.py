"""native.codegen.llvm.objects: object code by the text it was made from, kept on disk.

In: the LLVM text of a graph's kernels. Out: object code, compiled or read back. The key is everything that
can change the bytes: the text itself, target, level, and the versions of LLVM and of this file's format;
so a hit is right by construction, and a damaged file is a miss.
"""

from __future__ import annotations

import functools
from typing import Final

import llvmlite
import llvmlite.binding as llvm

from argand.native.codegen.llvm.engine import compile_object
from argand.native.codegen.target import Target, machine_key, machine_parts
from argand.runtime.disk.keys import about, hexdigest, make_key
from argand.runtime.disk.store import open_store
from argand.support.options import Options

RECIPE: Final = 1  # raise it when the passes of engine.compile_object change


@functools.cache
def _versions() -> str:
    llvm_version = ".".join(map(str, llvm.llvm_version_info))
    return f"{RECIPE} {llvmlite.__version__} {llvm_version}"


def object_code(text: str, target: Target, options: Options) -> tuple[bytes, str]:
    """Object code of a module, from disk when it was compiled before, and its key there.

    The key is without the machine (``machine_key`` adds it), but the text was made for one.
    """
    level = options.opt_level
    parts = {"llvm": _versions(), "level": str(level), "text": hexdigest(text.encode())}
    key = make_key("object", parts)
    store = open_store(options)
    found = store and store.get(machine_key(key), kind="object")
    if found and "code" in found:
        return found["code"], key
    code = compile_object(text, target, level)
    if store is not None:
        about_it = about("object", parts, **machine_parts(key))
        store.put(machine_key(key), {"about": about_it, "code": code})
    return code, key
