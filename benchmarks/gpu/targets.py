"""benchmarks.gpu.targets: the kernels of a sweep compiled by Triton for devices that are not here.

``python -m benchmarks.gpu.targets`` compiles every distinct kernel of results/gpu/nests with its best block for each target;
prints counts, times, registers, shared memory and spills as ptxas (NVIDIA) and LLVM (AMD) report them. Resumable.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from argand.native.target import GPUS
from benchmarks.gpu.nests import imported

FOLDER = Path(__file__).resolve().parent.parent.parent / "results" / "gpu"
POINTERS = {
    "f64": "*fp64",
    "f32": "*fp32",
    "f16": "*fp16",
    "bf16": "*bf16",
    "bool": "*i1",
    "u8": "*u8",
}
AMD = {
    "registers": "vgpr_count",
    "spills": "vgpr_spill_count",
    "shared": "group_segment_fixed_size",
}


def signature_of(row: dict[str, Any], names: list[str], sizes: list[str]) -> dict[str, str]:
    """Types of a kernel's parameters."""
    buffers = [POINTERS.get(dtype, f"*{dtype}") for dtype in row["buffers"]]
    given = [*buffers, *["i64"] * row["sizes"]]
    found = dict(zip(names, given, strict=False))
    return {name: found.get(name, "constexpr") for name in [*found, *sizes]}


def compile_one(row: dict[str, Any], target: str) -> dict[str, Any]:
    """One kernel for one target: seconds, registers, bytes of shared memory, spills."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    gpu = GPUS[target].gpu
    assert gpu is not None
    function = getattr(imported(row["text"]), row["name"])
    sizes, warps = row["blocks"][0]
    names = [name for name in function.arg_names if name not in sizes]
    source = ASTSource(
        fn=function, signature=signature_of(row, names, list(sizes)), constexprs=dict(sizes)
    )
    begin = time.perf_counter()
    options = {"num_warps": warps, "enable_fp_fusion": False}
    made = triton.compile(source, target=GPUTarget(gpu.kind, gpu.arch, gpu.warp), options=options)
    seconds = time.perf_counter() - begin
    used = (
        used_by_cubin(made.asm["cubin"]) if gpu.kind == "cuda" else used_by_gcn(made.asm["amdgcn"])
    )
    return {
        "state": "ok",
        "seconds": round(seconds, 3),
        "warps": warps,
        **used,
        "shared": made.metadata.shared,
    }


def used_by_cubin(code: bytes) -> dict[str, int]:
    """Registers and local memory, which is where ptxas spills to."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code)
        file.flush()
        text = subprocess.run(
            [tool, "-res-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    found = {name: int(value) for name, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", text)}
    return {"registers": found["REG"], "spills": found["LOCAL"] + found["STACK"]}


def used_by_gcn(text: str) -> dict[str, int]:
    """The same from the metadata of AMD's assembly."""
    return {name: int(re.findall(rf"\.{key}:\s+(\d+)", text)[-1]) for name, key in AMD.items()}


def table(target: str, rows: list[dict[str, Any]]) -> str:
    """A few lines on one target."""
    good = [row for row in rows if row["state"] == "ok"]
    bad = Counter(row.get("detail", "") for row in rows if row["state"] != "ok")
    if not good:
        return f"{target}: 0 of {len(rows)} compile; {bad.most_common(3)}"
    numbers = {
        key: sorted(row[key] for row in good)
        for key in ("seconds", "registers", "shared", "spills")
    }
    spilled = [row for row in good if row["spills"]]
    lines = [
        f"{target}: {len(good)} of {len(rows)} compile; seconds per kernel: median "
        f"{statistics.median(numbers['seconds']):.3f}, longest {numbers['seconds'][-1]:.2f}",
        f"  registers: median {statistics.median(numbers['registers'])}, most {numbers['registers'][-1]}; shared memory: "
        f"median {statistics.median(numbers['shared'])} bytes, most {numbers['shared'][-1]}; kernels that spill: {len(spilled)}",
        *(
            f"  spills {row['spills']} bytes, {row['registers']} registers: {row['name']} in {row['task']}"
            for row in spilled
        ),
        *(f"  {count} do not: {reason[:300]}" for reason, count in bad.most_common()),
    ]
    return "\n".join(lines)


def main() -> None:
    """Compile and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.targets")
    parser.add_argument("--targets", default="cuda:80,cuda:90,hip:gfx942")
    parser.add_argument(
        "--tasks", default="", help="only kernels first seen in tasks that begin so"
    )
    given = parser.parse_args()
    for target in given.targets.split(","):
        path = FOLDER / f"target-{target.replace(':', '-')}.jsonl"
        known = (
            {row["key"]: row for row in map(json.loads, path.read_text().splitlines())}
            if path.exists()
            else {}
        )
        rows = []
        for file in sorted((FOLDER / "nests").glob("*.json")):
            nest = json.loads(file.read_text())
            if "text" not in nest or not nest["task"].startswith(given.tasks):
                continue
            if file.stem not in known:
                try:
                    row = compile_one(nest, target)
                except Exception as error:
                    row = {
                        "state": "error",
                        "detail": f"{type(error).__name__}: {str(error)[:400]}",
                    }
                known[file.stem] = row | {
                    "key": file.stem,
                    "name": nest["name"],
                    "task": nest["task"],
                }
                with path.open("a") as out:
                    out.write(json.dumps(known[file.stem]) + "\n")
            rows.append(known[file.stem])
        print(table(target, rows), flush=True)


if __name__ == "__main__":
    main()
