"""native.codegen.target: what the machine can do, as far as code generation depends on it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import final

import llvmlite.binding as llvm


@final
@dataclass(frozen=True, slots=True)
class Target:
    """CPU and features for LLVM, and the width of its vector registers."""

    cpu: str
    features: str
    vector_bytes: int


@functools.cache
def host_target() -> Target:
    """The machine this process runs on."""
    features = llvm.get_host_cpu_features()
    enabled = {name for name, on in features.items() if on}
    # Some AVX-512 machines run slower at full width; 512-bit registers pay off for our loops.
    width = 64 if "avx512f" in enabled else 32 if "avx2" in enabled else 16
    return Target(llvm.get_host_cpu_name(), features.flatten(), width)
