"""native.codegen.llvm.objects: object code by the text it was made from, kept on disk.

In: the LLVM text of a graph's kernels. Out: object code, compiled or read back. The key is everything that
can change the bytes: the text itself, target, level, and the versions of LLVM and of this file's format;
so a hit is right by construction, and a damaged file is a miss.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import Final

import llvmlite
import llvmlite.binding as llvm

from argand.native.codegen.llvm.engine import compile_object
from argand.native.codegen.target import Target
from argand.runtime.disk.store import Store, default_directory
from argand.support.options import Options

RECIPE: Final = 1  # raise it when the passes of engine.compile_object change


@functools.cache
def _store(directory: str) -> Store:
    return Store(Path(directory) if directory else default_directory())


@functools.cache
def _versions() -> str:
    llvm_version = ".".join(map(str, llvm.llvm_version_info))
    return f"{RECIPE} {llvmlite.__version__} {llvm_version}"


def object_key(text: str, target: Target, level: int) -> str:
    """The cache key of a module's object code."""
    whole = "\0".join((_versions(), target.cpu, target.features, str(level), text))
    return hashlib.blake2b(whole.encode(), digest_size=20).hexdigest()


def object_code(text: str, target: Target, options: Options) -> bytes:
    """Object code of a module, from disk when it was compiled before."""
    if not options.cache:
        return compile_object(text, target, options.opt_level)
    store = _store(options.cache_dir)
    key = object_key(text, target, options.opt_level)
    found = store.get(key)
    if found is not None and "code" in found:
        return found["code"]
    code = compile_object(text, target, options.opt_level)
    store.put(key, {"code": code})
    return code
