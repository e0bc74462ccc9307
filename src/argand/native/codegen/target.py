"""native.codegen.target: what the machine can do, as far as code generation depends on it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, final

import llvmlite.binding as llvm

from argand.runtime.disk.keys import hexdigest


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


def machine_key(base: str) -> str:
    """The key of an entry that holds or needs machine code for this machine."""
    target = host_target()
    return hexdigest(base.encode(), target.cpu.encode(), target.features.encode())


def machine_parts(base: str) -> dict[str, Any]:
    """What such an entry says about itself, for machines it may be carried to."""
    target = host_target()
    return {"base": base, "cpu": target.cpu, "features": target.features}


def runs_here(features: str) -> bool:
    """Whether this machine can do all that code was made for."""
    wanted, here = (
        {name for name in text.split(",") if name.startswith("+")}
        for text in (features, host_target().features)
    )
    return wanted <= here
