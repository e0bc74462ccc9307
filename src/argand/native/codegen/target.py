"""native.codegen.target: the machine this process runs on, and what tells its code from that of others."""

from __future__ import annotations

import functools
import os
from typing import Any, Final

from argand.native.target import Target as Target  # what this module finds out
from argand.runtime.disk.keys import hexdigest
from argand.support.platform import processor_lines

_TELLING: Final = ("flags", "model", "vendor_id", "stepping")
# Features that kernels may use, by their beginnings. The rest is off: what one vendor alone has would keep code
# from the machines of others, and none of it would make kernels faster.
_USED: Final = (
    *("64bit", "avx", "bmi", "cmov", "cx", "f16c", "fma", "fxsr"),
    *("lzcnt", "mmx", "movbe", "popcnt", "sahf", "sse", "ssse"),
)
_OF_ONE_VENDOR: Final = frozenset(("fma4", "sse4a"))


@functools.cache
def host_target() -> Target:
    """The machine this process runs on."""
    import llvmlite.binding as llvm  # noqa: PLC0415  # 30 ms, and what comes from disk needs none of it

    features = llvm.get_host_cpu_features()
    enabled = {
        name for name, on in features.items() if on and name.startswith(_USED)
    } - _OF_ONE_VENDOR
    # Some AVX-512 machines run slower at full width; 512-bit registers pay off for our loops.
    width = 64 if "avx512f" in enabled else 32 if "avx2" in enabled else 16
    text = ",".join(f"{'+' if name in enabled else '-'}{name}" for name in sorted(features))
    return Target(llvm.get_host_cpu_name(), text, width, os.cpu_count() or 1)


@functools.cache
def _machine_name() -> str:
    """What tells this machine from others; LLVM is asked only where the system does not say."""
    rows = processor_lines(_TELLING)
    target = None if any(row.startswith("flags") for row in rows) else host_target()
    return "\n".join(rows) if target is None else f"{target.cpu} {target.features}"


def machine_key(base: str) -> str:
    """The key of an entry that holds or needs machine code for this machine."""
    return hexdigest(base.encode(), _machine_name().encode())


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
