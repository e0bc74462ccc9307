"""benchmarks.gpu.beside: our Triton source beside inductor's for the same program, loads and stores counted in both.

Inductor writes code for a CUDA device without one when its fakes say so: ``FakeTensorMode`` with CUDA tensors, and a stand-in for
what it asks of the device. Where this version of it cannot, the program says so and prints ours alone.
"""

from __future__ import annotations

import argparse
import re
import types
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from argand.native.lower.importer import import_graph
from argand.native.passes.table import Setting, run_passes
from argand.native.target import GPUS
from argand.support.options import Options

ROWS, WIDTH = 512, 1024


def rms_norm(x: Any, w: Any) -> Any:
    """As language models write it."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w


def gelu_chain(x: Any, y: Any) -> Any:
    """A bias, an activation, a residual."""
    return F.gelu(x + y) * 0.5 + x


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "softmax": (lambda x: F.softmax(x, -1), ((ROWS, WIDTH),)),
    "layer_norm": (
        lambda x, w, b: F.layer_norm(x, (WIDTH,), w, b),
        ((ROWS, WIDTH), (WIDTH,), (WIDTH,)),
    ),
    "cross_entropy": (lambda x, t: F.cross_entropy(x, t), ((ROWS, WIDTH), (ROWS,))),
    "rms_norm": (rms_norm, ((ROWS, WIDTH), (WIDTH,))),
    "gelu_chain": (gelu_chain, ((ROWS, WIDTH), (WIDTH,))),
}


def inputs_of(name: str, shapes: tuple[tuple[int, ...], ...]) -> list[torch.Tensor]:
    """Inputs of a program; the last of cross entropy are classes."""
    made = [torch.randn(shape) for shape in shapes]
    return [*made[:-1], torch.randint(0, WIDTH, shapes[-1])] if name == "cross_entropy" else made


def ours(function: Callable[..., Any], inputs: list[torch.Tensor]) -> str:
    """Our source for cuda:90."""
    from torch.fx.experimental.proxy_tensor import make_fx

    from argand.native.lower.table import KEPT
    from argand.ops.decompositions import decompositions

    table = {op: rule for op, rule in decompositions().items() if str(op) not in KEPT}
    module = make_fx(lambda *a: (function(*a),), decomposition_table=table)(*inputs)
    options = Options(cache=False)
    return run_passes(
        import_graph(module, inputs, options, packs=False), Setting(options, GPUS["cuda:90"])
    ).module.text


def pretend(config: Any) -> None:
    """Answers for what inductor asks of a device while it writes code: those of an H100."""
    from torch._inductor.runtime.hints import DeviceProperties
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    properties = types.SimpleNamespace(
        name="H100",
        major=9,
        minor=0,
        multi_processor_count=132,
        regs_per_multiprocessor=65536,
        max_threads_per_multi_processor=2048,
        max_threads_per_block=1024,
        warp_size=32,
        total_memory=80 << 30,
        shared_memory_per_block_optin=227 << 10,
        shared_memory_per_multiprocessor=228 << 10,
        L2_cache_size=50 << 20,
        gcnArchName="",
    )
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "current_device": lambda: 0,
        "device_count": lambda: 1,
        "_lazy_init": lambda: None,
        "get_device_capability": lambda *_: (9, 0),
        "get_device_properties": lambda *_: properties,
        "synchronize": lambda *_: None,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
    known = DeviceProperties("cuda", 0, 132, 90, 9, 65536, 2048, 1024, 32)
    DeviceProperties.create = classmethod(lambda cls, device: known)  # type: ignore[assignment,method-assign]
    config.compile_threads = 1
    target = GPUTarget("cuda", 90, 32)
    driver.set_active(
        types.SimpleNamespace(  # type: ignore[arg-type]
            get_current_target=lambda: target,
            get_current_device=lambda: 0,
            get_device_interface=lambda: torch.cuda,
        )
    )


def theirs(function: Callable[..., Any], inputs: list[torch.Tensor]) -> str:
    """Inductor's Triton source for CUDA fakes; raises what it raises without a device."""
    from torch._inductor import config
    from torch._inductor.debug import DebugContext
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    pretend(config)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fakes = [torch.empty(x.shape, dtype=x.dtype, device="cuda") for x in inputs]
        module = make_fx(lambda *a: (function(*a),), decomposition_table=select_decomp_table())(
            *fakes
        )
        graph = GraphLowering(module, example_inputs=fakes)
        with V.set_graph_handler(graph), V.set_fake_mode(mode), V.set_debug_handler(DebugContext()):
            graph.run(*fakes)
            code, *_ = graph.codegen()
    return str(code.value if hasattr(code, "value") else code)


def counted(text: str) -> str:
    """Loads and stores of whole rows, as written, per kernel: those inside loops and of tensors as large as the input."""
    kernels = re.split(r"(?=^def |^    def )", text, flags=re.M)
    rows = []
    for body in kernels:
        loads, stores = len(re.findall(r"tl\.load\(", body)), len(re.findall(r"tl\.store\(", body))
        lines = [
            line
            for line in body.splitlines()
            if "tl.load(" in line and "tl.where" not in line and "+ tmp" not in line
        ]
        whole = sum(bool(re.search(r"1024|\bi\b|\(x2\)|x0,", line)) for line in lines)
        if loads or stores:
            rows.append(f"{loads} loads ({whole} of whole rows), {stores} stores")
    return "; ".join(rows)


def main() -> None:
    """Print both."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.beside")
    parser.add_argument("--source", action="store_true", help="print the sources, too")
    given = parser.parse_args()
    for name, (function, shapes) in PROGRAMS.items():
        inputs = inputs_of(name, shapes)
        mine = ours(function, inputs)
        print(f"{name}: ours: {counted(mine)}")
        if given.source:
            print(mine)
        try:
            other = theirs(function, inputs)
        except Exception as error:
            print(
                f"{name}: inductor without a device: {type(error).__name__}: {str(error).splitlines()[0][:160]}"
            )
            continue
        print(f"{name}: inductor: {counted(other)}")
        if given.source:
            print(other)


if __name__ == "__main__":
    main()
