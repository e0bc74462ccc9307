"""report.doctor: is everything here that Argand needs, and does it work? For ``argand doctor``.

In: the process and the machine. Out: ``Finding`` rows, each with a verdict and, where something is wrong, what to do. The
self-test compiles three small programs (a forward pass, a gradient, a graph break) without the disk cache and compares
them with eager. Never fails: what cannot be found out is a finding.
"""

from __future__ import annotations

import enum
import importlib.metadata
import platform
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import torch

from argand import pipeline
from argand.native.codegen.target import host_target
from argand.runtime.disk.store import DiskStore, default_directory
from argand.support.options import read_environment
from argand.support.platform import strict_about_memory, usable_cores

_PACKAGES: Final = ("argand", "torch", "llvmlite", "numpy")
_OPTIONAL: Final = ("onnxruntime", "openvino", "safetensors")
_NEEDED_SPACE: Final = 200 << 20  # bytes; a cache of a few models


class Verdict(enum.Enum):
    """How a finding is to be taken."""

    GOOD = "ok"
    NOTE = "note"  # works, but the user may want to know
    BAD = "bad"  # something will not work


class Finding(NamedTuple):
    """One thing that was looked at."""

    area: str
    what: str
    value: str
    verdict: Verdict = Verdict.GOOD
    hint: str = ""  # what to do, where it is not good


def examine() -> Iterator[Finding]:
    """All findings, cheap ones first; the self-test is last and takes a few seconds."""
    for area, look in _AREAS:
        try:
            yield from look()
        except Exception as error:
            yield Finding(
                area, "look", f"{type(error).__name__}: {error}", Verdict.BAD, "please report this"
            )


def _versions() -> Iterator[Finding]:
    python = f"{platform.python_implementation()} {sys.version.split()[0]}"
    yield Finding("versions", "python", python)
    for name in _PACKAGES:
        yield Finding("versions", name, importlib.metadata.version(name))
    for name in _OPTIONAL:
        try:
            yield Finding("versions", name, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            yield Finding(
                "versions",
                name,
                "not installed",
                Verdict.NOTE,
                "needed only for what it is named after",
            )
    yield Finding(
        "versions", "system", f"{platform.system()} {platform.release()} {platform.machine()}"
    )


def _processor() -> Iterator[Finding]:
    target = host_target()
    has = {name[1:] for name in target.features.split(",") if name.startswith("+")}
    yield Finding("processor", "name", target.cpu)
    width = f"{8 * target.vector_bytes} bits"
    if target.vector_bytes >= 32:
        yield Finding("processor", "vectors", width)
    else:
        yield Finding(
            "processor",
            "vectors",
            width,
            Verdict.NOTE,
            "AVX2 is missing: kernels work, but are slower",
        )
    known = {
        "fma": "multiply and add in one step",
        "f16c": "half precision is converted in registers",
        "avx512f": "kernels use 512-bit vectors",
        "avx512vnni": "dot products of bytes",
        "avx512bf16": "products of bfloat16",
    }
    for feature, use in known.items():
        yield Finding("processor", feature, use if feature in has else f"not there: no {use}")


def _threads() -> Iterator[Finding]:
    threads, cores = torch.get_num_threads(), usable_cores()
    value = f"{threads} thread{'s' * (threads != 1)} on {cores} core{'s' * (cores != 1)}"
    hint = ""
    if threads > cores:
        hint = f"more threads than cores this process may use; torch.set_num_threads({cores})"
    elif threads < cores // 2 or threads == 1 < cores:
        hint = f"cores stay idle; torch.set_num_threads({cores}), or look at OMP_NUM_THREADS"
    yield Finding("threads", "torch", value, Verdict.NOTE if hint else Verdict.GOOD, hint)


def _cache() -> Iterator[Finding]:
    folder = default_directory()
    yield Finding("cache", "directory", str(folder))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        entries = list(DiskStore(folder).entries())
    for warning in caught:
        hint = "caches are off; set XDG_CACHE_HOME to a directory of your own, with rights for you alone"
        yield Finding("cache", "rights", str(warning.message), Verdict.BAD, hint)
    size = sum(entry.size for entry in entries) / 2**20
    yield Finding("cache", "entries", f"{len(entries)} entries, {size:.1f} MiB")
    place = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(place).free
    low = free < _NEEDED_SPACE
    hint = "argand cache gc, or set XDG_CACHE_HOME to a larger disk" if low else ""
    yield Finding(
        "cache", "free space", f"{free >> 20} MiB", Verdict.NOTE if low else Verdict.GOOD, hint
    )


def _settings() -> Iterator[Finding]:
    environment = read_environment()
    if environment.disable:
        hint = "argand.compile gives back its argument; unset the variable to compile"
        yield Finding("settings", "ARGAND_DISABLE", "1", Verdict.NOTE, hint)
    if environment.options:
        text = ", ".join(f"{name}={value}" for name, value in environment.options)
        yield Finding(
            "settings",
            "ARGAND_OPTIONS",
            text,
            Verdict.NOTE,
            "holds for every compile of this environment",
        )
    if environment.logs:
        yield Finding("settings", "ARGAND_LOGS", environment.logs)
    if sys.gettrace() is not None:
        hint = "a debugger or a coverage tool follows every line: compiled functions run in Python under it"
        yield Finding("settings", "trace function", repr(sys.gettrace()), Verdict.NOTE, hint)
    if strict_about_memory():
        hint = "large models may fail to be traced: fakes reserve address space without using it"
        yield Finding("settings", "overcommit_memory", "2", Verdict.NOTE, hint)


def _refused() -> Iterator[Finding]:
    """What is left to eager whatever the program, and whether it is here."""
    there = [name for name in ("cuda", "mps", "xpu") if _has_device(name)]
    why = "code is generated for CPUs; calls with tensors of other devices run in eager"
    hint = "move model and inputs to the CPU to compile them" if there else ""
    verdict = Verdict.NOTE if there else Verdict.GOOD
    yield Finding("left to eager", "devices", f"{', '.join(there) or 'none'}: {why}", verdict, hint)
    device = torch.get_default_device()
    if device.type != "cpu":
        hint = "torch.set_default_device('cpu')"
        yield Finding("left to eager", "default device", str(device), Verdict.NOTE, hint)
    why = "sparse, quantized, nested: generated code finds elements by strides"
    yield Finding("left to eager", "tensors", why)
    if torch.are_deterministic_algorithms_enabled():
        why = "deterministic mode: background=True waits for the compiler"
        yield Finding("left to eager", "background", why, Verdict.NOTE)
    yield Finding(
        "left to eager", "lines", "those that break graphs: argand explain SCRIPT names them"
    )


def _has_device(name: str) -> bool:
    module = getattr(torch, name, None)
    return module is not None and bool(module.is_available())


def _forward(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x @ x.mT, -1).sum(0) * x.sin().mean()


def _gradient(x: torch.Tensor) -> torch.Tensor:
    leaf = x.detach().requires_grad_()
    torch.nn.functional.gelu(leaf @ leaf).square().mean().backward()
    assert leaf.grad is not None
    return leaf.grad


def _broken(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    return y + 1 if bool(y.max() > 1) else y - 1


def _self_test() -> Iterator[Finding]:
    if read_environment().disable:
        yield Finding("self-test", "all", "not run: ARGAND_DISABLE=1", Verdict.NOTE)
        return
    x = torch.linspace(-1, 1, 1024).reshape(32, 32)
    tests = (("forward", _forward), ("gradient", _gradient), ("graph break", _broken))
    for name, program in tests:
        begin = time.perf_counter()
        verdict, said = _try(program, x)
        hint = "" if verdict is Verdict.GOOD else "please report this"
        yield Finding(
            "self-test", name, f"{said}, {time.perf_counter() - begin:.2f} s", verdict, hint
        )


def _try(program: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> tuple[Verdict, str]:
    options: dict[str, Any] = {"cache": False, "strict": True, "measure": False}
    try:
        expected, actual = program(x), pipeline.compile(program, options=options)(x)
    except Exception as error:
        return Verdict.BAD, f"{type(error).__name__}: {error}"
    same = torch.allclose(actual, expected, rtol=1e-4, atol=1e-5)
    return (Verdict.GOOD, "equal to eager") if same else (Verdict.BAD, "differs from eager")


_AREAS: Final = (
    ("versions", _versions),
    ("processor", _processor),
    ("threads", _threads),
    ("cache", _cache),
    ("settings", _settings),
    ("left to eager", _refused),
    ("self-test", _self_test),
)
