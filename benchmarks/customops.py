"""What a call of a custom operator costs: ours, plain torch.library.Library, torch.library.custom_op.

``python -m benchmarks.customops``: microseconds per call beyond the kernel, contenders interleaved.
"""

import statistics
import time

import torch
from torch import Tensor

import argand


def kernel(x: Tensor) -> Tensor:
    return torch.empty(2)


def backward(ctx, grad):
    return grad


def make_contenders():
    library = torch.library.Library("bench_plain", "FRAGMENT")
    library.define("without(Tensor x) -> Tensor")
    library.impl("without", kernel, "CPU")
    library.define("with_grad(Tensor x) -> Tensor")
    library.impl("with_grad", kernel, "CPU")

    class Plain(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            with torch._C._AutoDispatchBelowAutograd():
                return torch.ops.bench_plain.with_grad.default(x)

        @staticmethod
        def backward(ctx, grad):
            return grad

    library.impl("with_grad", Plain.apply, "Autograd")
    contenders = {
        "Library": (torch.ops.bench_plain.without.default, torch.ops.bench_plain.with_grad.default)
    }
    for name, define in {"argand": argand.custom_op, "custom_op": torch.library.custom_op}.items():
        ops = []
        for differentiable in (False, True):
            op = define(f"bench_{name}::op{differentiable}", kernel, mutates_args=())
            if differentiable:
                op.register_autograd(backward)
            ops.append(op)
        contenders[name] = tuple(ops)
    contenders["_library"] = library
    return contenders


def measure(rounds=15, calls=2000):
    contenders = make_contenders()
    library = contenders.pop("_library")
    plain, tracked = torch.randn(2), torch.randn(2, requires_grad=True)
    cases = {
        "no autograd formula": lambda pair: (pair[0], plain),
        "formula, no gradient asked": lambda pair: (pair[1], plain),
        "formula, gradient asked": lambda pair: (pair[1], tracked),
    }
    for case, pick in cases.items():
        times = {name: [] for name in contenders}
        for _ in range(rounds):
            for name, pair in contenders.items():
                op, x = pick(pair)
                begin = time.perf_counter()
                for _ in range(calls):
                    op(x)
                times[name].append((time.perf_counter() - begin) / calls * 1e6)
        base = statistics.median(times["Library"])
        row = "  ".join(
            f"{name} {statistics.median(t):6.2f} us ({statistics.median(t) / base:.2f}x)"
            for name, t in times.items()
        )
        print(f"{case:<28} {row}")
    del library


if __name__ == "__main__":
    measure()
