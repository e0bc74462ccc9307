"""benchmarks.gpu.nests: one loop nest by both code generators, on the same numbers.

In: a loop nest. Out: a verdict: equal, differs (how), or refused (why). Long outer loops are cut short: a block more or less
is the same code.
"""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
import importlib.util
import json
import math
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch

from argand.native.codegen.llvm.checks import length_of
from argand.native.codegen.llvm.emit import emit_kernel
from argand.native.codegen.llvm.module import kernel_key
from argand.native.codegen.llvm.objects import object_code
from argand.native.codegen.load import load
from argand.native.codegen.target import host_target
from argand.native.codegen.triton.emit import KernelSource
from argand.native.codegen.triton.layout import FlatLayout, RowLayout, lay_out
from argand.native.codegen.triton.module import emit_nest, module_text
from argand.native.codegen.triton.source import Refused
from argand.native.ir import loops as ir
from argand.native.ir.types import DType
from argand.native.schedule.nest import LoopNest
from argand.native.schedule.order import Schedule
from argand.native.target import GPUS, Gpu
from argand.support.options import Options

DEVICE = GPUS["cuda:90"]
PROGRAMS = 6  # blocks of a grid that are run
LONGEST = 1 << 27  # elements of a buffer
# Of the largest number of a buffer: sums in another order, exp of another library.
LIMITS = {torch.float32: 2e-5, torch.float64: 1e-9, torch.float16: 4e-3, torch.bfloat16: 2e-2}


class Verdict(NamedTuple):
    """What came of a nest."""

    state: str  # equal, differs, refused, error
    detail: str = ""
    seconds: float = 0.0


def key_of(nest: LoopNest) -> str:
    """Equal for nests that are the same kernel."""
    return hashlib.sha256(repr(kernel_key(nest.kernel)).encode()).hexdigest()[:20]


def cut_short(nest: LoopNest, gpu: Gpu) -> LoopNest:
    """The nest with fewer rounds of its outermost loop."""
    kernel = nest.kernel
    if not isinstance(kernel, ir.Kernel):
        return nest
    layout = lay_out(kernel, gpu)
    source = emit_nest(nest, gpu)
    block = math.prod(size for name, size in source.blocks[0].sizes.items() if name != "RBLOCK")
    wanted = PROGRAMS * block - 1
    if isinstance(layout, RowLayout) and not layout.whole:
        wanted = 3 * block - 1
    if not kernel.outer:
        body = kernel.body[-1]
        if (
            isinstance(layout, FlatLayout)
            and isinstance(body, ir.Loop)
            and type(body.extent) is int
        ):
            inside = max(1, int(layout.axis.extent) // body.extent)
            short_body = dataclasses.replace(
                body, extent=max(1, min(body.extent, -(-wanted // inside)))
            )
            return dataclasses.replace(
                nest, kernel=dataclasses.replace(kernel, body=(*kernel.body[:-1], short_body))
            )
        return nest
    (var, extent), *rest = kernel.outer
    inside = max(1, math.prod(int(size) for _, size in rest))
    if isinstance(layout, FlatLayout):
        inside = max(1, int(layout.axis.extent) // max(1, int(extent)))
    if type(extent) is not int:
        return nest
    short = ((var, max(1, min(extent, -(-wanted // inside)))), *rest)
    return dataclasses.replace(nest, kernel=dataclasses.replace(kernel, outer=short))


def buffers_for(nest: LoopNest, schedule: Schedule) -> list[torch.Tensor]:
    """Random contents of every buffer; what is looked up stays in its bounds."""
    draw = torch.Generator().manual_seed(7)
    bounds = [
        int(b)
        for s in ir.walk(nest.kernel.body)
        if isinstance(s, ir.Load)
        for _, _, b in s.indirect
        if b
    ]
    high = min(bounds, default=40)
    low = 0 if bounds else -9
    found = []
    for owner, dtype in zip(nest.owners, nest.kernel.buffers, strict=True):
        if owner.op == "flag":
            found.append(torch.zeros(8, dtype=torch.int64))
            continue
        length = max(1, int(length_of(schedule, owner)))
        if length > LONGEST:
            raise Refused(f"a buffer of {length} elements is not tried here")
        kind = dtype.row.torch_dtype
        if owner.op == "seed":
            found.append(torch.randint(-(2**62), 2**62, (1,), generator=draw))
        elif dtype is DType.BOOL:
            found.append(torch.rand(length, generator=draw) < 0.5)
        elif dtype.is_float:
            found.append(torch.randn(length, generator=draw, dtype=torch.float32).to(kind))
        else:
            start = max(low, 0) if dtype is DType.U8 else low
            found.append(
                torch.randint(start, max(start + 1, min(high, 100)), (length,), generator=draw).to(
                    kind
                )
            )
    return found


def run_llvm(kernel: ir.Kernel, buffers: list[torch.Tensor]) -> None:
    """The kernel by LLVM, in place."""
    declarations: dict[str, None] = {}
    emitted = emit_kernel("kernel", kernel, host_target(), declarations)
    code, _ = object_code(
        "\n".join([*declarations, emitted.text]), host_target(), Options(cache=False)
    )
    loaded = load(code)
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    pointers = (ctypes.c_void_p * len(buffers))(*(b.data_ptr() for b in buffers))
    sizes = (ctypes.c_int64 * max(1, len(emitted.sizes)))(*(int(s) for s in emitted.sizes))
    kind(loaded.address("kernel"))(
        ctypes.addressof(pointers), ctypes.addressof(sizes), 0, int(emitted.total)
    )


def imported(text: str) -> Any:
    """The source as a module; Triton reads the text of functions from their file."""
    folder = Path(tempfile.mkdtemp())
    path = folder / f"nest_{hashlib.sha256(text.encode()).hexdigest()[:16]}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_triton(source: KernelSource, buffers: list[torch.Tensor]) -> None:
    """The kernel by Triton's interpreter, in place, with the block that the model likes best."""
    function = getattr(imported(module_text([source])), source.name)
    block = source.blocks[0]
    points = next(iter(block.sizes.values()))
    grid = (-(-int(source.points) // points),)
    function[grid](
        *buffers, *(int(size) for size in source.sizes), **block.sizes, num_warps=block.warps
    )


def distance(left: torch.Tensor, right: torch.Tensor) -> str:
    """How two buffers differ; empty: they do not, as far as rounding goes."""
    if not left.is_floating_point():
        wrong = int((left != right).sum())
        return f"{wrong} of {left.numel()} integers" if wrong else ""
    if not torch.equal(left.isnan(), right.isnan()):
        return f"{int((left.isnan() != right.isnan()).sum())} NaNs"
    one, two = left.double().nan_to_num(), right.double().nan_to_num()
    usual = two[two.abs() < 1e30].abs()
    limit = LIMITS[left.dtype] * max(1.0, float(usual.max()) if usual.numel() else 1.0)
    worst = float((one - two).abs().max()) if one.numel() else 0.0
    return f"{worst:.3g} over {limit:.3g}" if worst > limit else ""


def judge(nest: LoopNest, schedule: Schedule, gpu: Gpu) -> Verdict:
    """Run the nest both ways and compare all that it wrote."""
    begin = time.perf_counter()
    try:
        emit_nest(nest, gpu)  # as it is
        short = cut_short(nest, gpu)
        source = emit_nest(short, gpu)
        first = buffers_for(short, schedule)
    except Refused as refused:
        return Verdict("refused", str(refused))
    second = [buffer.clone() for buffer in first]
    assert isinstance(short.kernel, ir.Kernel)
    run_llvm(short.kernel, second)
    try:
        run_triton(source, first)
    except Exception as error:
        return Verdict(
            "error", f"{type(error).__name__}: {str(error)[:300]}", time.perf_counter() - begin
        )
    for number, owner in enumerate(short.owners):
        one, two = first[number], second[number]
        if owner.op == "flag":
            one, two = one[:1], two[:1]
        if found := distance(one, two):
            return Verdict("differs", f"buffer {number}: {found}", time.perf_counter() - begin)
    return Verdict("equal", "", time.perf_counter() - begin)


def described(source: KernelSource) -> dict[str, Any]:
    """What ``benchmarks.gpu.targets`` needs to compile a kernel."""
    return {
        "name": source.name,
        "text": module_text([source]),
        "buffers": [dtype.value for dtype in source.buffers],
        "sizes": len(source.sizes),
        "blocks": [[dict(block.sizes), block.warps] for block in source.blocks],
    }


def save(folder: Path, key: str, row: dict[str, Any]) -> None:
    """Keep a row under its key."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{key}.json").write_text(json.dumps(row))
