"""native.codegen.llvm.objects: object code by the text it was made from, kept on disk.

In: the LLVM text of a graph's kernels. Out: object code, compiled or read back. The key is everything that
can change the bytes: the text itself, target, level, and the versions of LLVM and of this file's format;
so a hit is right by construction, and a damaged file is a miss.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Final, final

import llvmlite
import llvmlite.binding as llvm
from typing_extensions import override

from argand.native.codegen.llvm.engine import compile_object
from argand.native.codegen.target import Target, machine_key, machine_parts
from argand.runtime.disk.keys import about, hexdigest, make_key
from argand.runtime.disk.stage import Sections, Stage, run_stage
from argand.support.options import Options

RECIPE: Final = 2  # raise it when the passes of engine.compile_object change


@functools.cache
def _versions() -> str:
    llvm_version = ".".join(map(str, llvm.llvm_version_info))
    return f"{RECIPE} {llvmlite.__version__} {llvm_version}"


@final
class ObjectStage(Stage[bytes]):
    """LLVM, for the text of one graph's kernels."""

    kind = "object"  # native.graph_cache reads them too

    def __init__(self, text: str, target: Target, level: int) -> None:
        self.text, self.target, self.level = text, target, level
        self.parts = {"llvm": _versions(), "level": str(level), "text": hexdigest(text.encode())}
        # without the machine, but the text was made for one
        self.base = make_key(self.kind, self.parts)

    @override
    def key(self) -> str:
        return machine_key(self.base)

    @override
    def decode(self, sections: Sections) -> bytes | None:
        return sections.get("code")

    @override
    def build(self) -> bytes:
        return compile_object(self.text, self.target, self.level)

    @override
    def encode(self, value: bytes) -> Mapping[str, Sections]:
        about_it = about(self.kind, self.parts, **machine_parts(self.base))
        return {self.key(): {"about": about_it, "code": value}}


def object_code(text: str, target: Target, options: Options) -> tuple[bytes, str]:
    """Object code of a module, from disk when it was compiled before, and its key there, without the machine."""
    stage = ObjectStage(text, target, options.opt_level)
    return run_stage(stage, options).value, stage.base
