"""runtime.devices.kernels: Triton source becomes launchers. The only module that imports Triton, when it is called.

In: the text of a module (``native.codegen.triton.module``). Out: a ``Launcher`` per kernel, with the block that was measured
to be fastest on this device, or the one the model expects to be.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias, final

import torch

from argand.support.errors import ArgandError

# (kernel, ways by label) -> the label to take; None: the first, which the model likes best
ChooseBlock: TypeAlias = Callable[[str, Mapping[str, Callable[[], object]]], str]


def has_triton() -> bool:
    """Whether Triton is installed; it is not imported."""
    return "triton" in sys.modules or importlib.util.find_spec("triton") is not None


def load_source(text: str, folder: str = "") -> ModuleType:
    """The module of a text; Triton reads its functions from a file, so it is written to one."""
    if not has_triton():
        raise ArgandError("kernels for GPUs need Triton: pip install argand[triton]")
    place = Path(folder or tempfile.gettempdir()) / f"argand-triton-{os.getuid()}"
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    if place.stat().st_uid != os.getuid() or place.stat().st_mode & 0o077:
        place = Path(tempfile.mkdtemp())
    path = place / f"kernels_{hashlib.sha256(text.encode()).hexdigest()[:24]}.py"
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        fresh = path.with_suffix(f".{os.getpid()}")
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(path)
    spec = importlib.util.spec_from_file_location(f"argand_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@final
class TritonLauncher:
    """One kernel; the ways to cut its grid are tried at the first call when somebody measures."""

    def __init__(
        self, name: str, function: Any, blocks: Sequence[tuple[dict[str, int], int]]
    ) -> None:
        self.name, self.function, self.blocks = name, function, list(blocks)
        self.choose: ChooseBlock | None = None
        self.block: tuple[dict[str, int], int] | None = None

    def __call__(self, buffers: Sequence[torch.Tensor], sizes: Sequence[int], points: int) -> None:
        """Launch it on the current stream."""
        if self.block is None:
            self.block = self._chosen(buffers, sizes, points)
        self._launch(self.block, buffers, sizes, points)

    def _launch(
        self, block: Any, buffers: Sequence[torch.Tensor], sizes: Sequence[int], points: int
    ) -> None:
        constants, warps = block
        grid = (-(-points // next(iter(constants.values()))),)
        if points:
            self.function[grid](
                *buffers, *sizes, **constants, num_warps=warps, enable_fp_fusion=False
            )

    def _chosen(
        self, buffers: Sequence[torch.Tensor], sizes: Sequence[int], points: int
    ) -> tuple[dict[str, int], int]:
        """The fastest block; trials write to copies, as a kernel may read what it writes."""
        if self.choose is None or len(self.blocks) == 1:
            return self.blocks[0]
        copies = [buffer.clone() for buffer in buffers]
        named = {block_label(block): block for block in self.blocks}

        def way(block: Any) -> Callable[[], object]:
            return lambda: self._launch(block, copies, sizes, points)

        shapes = " ".join(f"{b.dtype}{tuple(b.shape)}" for b in buffers)
        return named[
            self.choose(
                f"{self.name} {shapes} {points}", {label: way(b) for label, b in named.items()}
            )
        ]


def block_label(block: tuple[Mapping[str, int], int]) -> str:
    """A block as caches name it."""
    sizes, warps = block
    return ",".join([*(f"{name}={size}" for name, size in sizes.items()), f"warps={warps}"])


def launchers_of(
    text: str, names: Sequence[str], choose: ChooseBlock | None = None
) -> dict[str, TritonLauncher]:
    """The kernels of a module by name."""
    if not names:
        return {}
    module = load_source(text)
    found = {
        name: TritonLauncher(name, getattr(module, name), module.BLOCKS[name]) for name in names
    }
    for launcher in found.values():
        launcher.choose = choose
    return found
