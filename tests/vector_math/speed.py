"""Nanoseconds per element, one thread, in cache: our code, SLEEF's (out of libtorch), eager.

python -m tests.vector_math.speed [names]
"""

from __future__ import annotations

import ctypes
import functools
import sys
import time

import llvmlite.binding as llvm
import numpy as np
import torch

from tests.vector_math import harness

SLEEF = {
    "exp": "exp{}_u10",
    "exp2": "exp2{}_u10",
    "expm1": "expm1{}_u10",
    "log": "log{}_u10",
    "log2": "log2{}_u10",
    "log10": "log10{}_u10",
    "log1p": "log1p{}_u10",
    "tanh": "tanh{}_u10",
    "erf": "erf{}_u10",
    "erfc": "erfc{}_u15",
    "sin": "sin{}_u10",
    "cos": "cos{}_u10",
    "tan": "tan{}_u10",
    "asin": "asin{}_u10",
    "acos": "acos{}_u10",
    "atan": "atan{}_u10",
    "sinh": "sinh{}_u10",
    "cosh": "cosh{}_u10",
    "asinh": "asinh{}_u10",
    "acosh": "acosh{}_u10",
    "atanh": "atanh{}_u10",
    "pow": "pow{}_u10",
    "atan2": "atan2{}_u10",
    "lgamma": "lgamma{}_u10",
}
EAGER = {
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": functools.partial(torch.nn.functional.gelu, approximate="tanh"),
    "silu": torch.nn.functional.silu,
    "softplus": torch.nn.functional.softplus,
}
POSITIVE = {"log", "log2", "log10", "acosh", "pow", "lgamma"}


@functools.cache
def sleef_loop(name, element, arity):
    pattern = SLEEF.get(name)
    if pattern is None:
        return None
    lanes = harness.LANES[element]
    symbol = "Sleef_" + pattern.format(f"f{lanes}" if element == "float" else f"d{lanes}")
    library = ctypes.CDLL("libtorch_cpu.so", mode=4)  # RTLD_NOLOAD
    try:
        address = ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value
    except AttributeError:
        return None
    llvm.add_symbol(symbol, address)
    vector = f"<{lanes} x {element}>"
    text = harness.loop_text(name, element, lanes, arity)
    start = text.index("define void @loop")
    body = text[start:]
    old = body[body.index("call ") : body.index("(", body.index("call "))]
    body = body.replace(old, f"call {vector} @{symbol}")
    module = llvm.parse_assembly(
        f"declare {vector} @{symbol}({', '.join([vector] * arity)})\n" + body
    )
    harness.optimise(module)
    engine = llvm.create_mcjit_compiler(module, harness._fresh_machine())
    engine.finalize_object()
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64)
    return engine, kind(engine.get_function_address("loop"))


def measure(contenders, rounds=30):
    """Least seconds of each, interleaved round by round."""
    best = [float("inf")] * len(contenders)
    for _ in range(rounds):
        for i, run in enumerate(contenders):
            start = time.perf_counter()
            run()
            best[i] = min(best[i], time.perf_counter() - start)
    return best


def main():
    torch.set_num_threads(1)
    harness.machine()
    count = 1 << 15
    from argand.native.codegen.math import SUPPORTED

    names = sys.argv[1:] or sorted(SUPPORTED)
    print(f"{'ns per element':14s} {'type':7s} {'argand':>8s} {'sleef':>8s} {'eager':>8s}")
    for name in names:
        for element in ("float", "double"):
            kind = harness.NUMPY[element]
            low = 1.1 if name in POSITIVE else -0.99
            high = 3.0 if name in POSITIVE else 0.99
            x = harness.dense(kind, low * 3 if low < 0 else low, high * 3, count)
            if name in ("asin", "acos", "atanh"):
                x = harness.dense(kind, -0.99, 0.99, count)
            arity = 2 if name in ("pow", "atan2") else 1
            y = harness.dense(kind, -2, 2, count, seed=5)
            out = np.empty_like(x)
            ours = harness.compiled(name, element, harness.LANES[element], arity)[1]
            theirs = sleef_loop(name, element, arity)
            tx, ty = torch.from_numpy(x), torch.from_numpy(y)
            eager = EAGER.get(name) or getattr(torch, name, None) or getattr(torch.special, name)
            args = (out.ctypes.data, x.ctypes.data, y.ctypes.data, count)
            runs = [lambda: ours(*args), lambda: eager(*(tx, ty)[:arity])]
            runs += [lambda: theirs[1](*args)] if theirs else []
            times = [f"{1e9 * t / count:8.3f}" for t in measure(runs)]
            sleef = times[2] if theirs else "       -"
            print(f"{name:14s} {element:7s} {times[0]} {sleef} {times[1]}", flush=True)


if __name__ == "__main__":
    main()
