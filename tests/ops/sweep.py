"""Compare type rules with what eager gives, over torch's op database.

Run as a script for the whole sweep: ``python tests/ops/sweep.py [--ops REGEX] [--dtypes f32,i64]``.
Every sample runs for real (forward, and backward where it can) under a mode that asks the rule of each
aten op first and compares shape, stride and dtype of the results afterwards.
"""

from __future__ import annotations

import argparse
import collections
import re
import warnings
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from argand.ops import fallback
from argand.ops.rows import row_of

DTYPES = {
    "f32": torch.float32,
    "f64": torch.float64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "c64": torch.complex64,
    "i64": torch.int64,
    "i32": torch.int32,
    "u8": torch.uint8,
    "b8": torch.bool,
}


class Compare(TorchDispatchMode):
    """Runs everything for real, and remembers where a rule said something else."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[Any] = set()
        self.right: collections.Counter[str] = collections.Counter()
        self.missing: collections.Counter[str] = collections.Counter()
        self.refused: dict[str, list[Any]] = collections.defaultdict(list)
        self.wrong: dict[str, list[Any]] = collections.defaultdict(list)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.is_view or func._schema.is_mutable or func.namespace != "aten":
            return func(*args, **kwargs)
        row = row_of(func)
        name = func.name()[6:]
        real = func(*args, **kwargs)
        if row.infer is None:
            self.missing[name] += 1
            return real
        key = (name, fallback.freeze(args), fallback.freeze(tuple(kwargs.items())))
        try:
            if key in self.seen:
                return real
            self.seen.add(key)
        except TypeError:
            pass
        if any_special(args):
            return real
        actual = fallback.freeze(real)
        try:
            guess = fallback.freeze(row.infer(*args, **kwargs))
        except Exception as error:
            self.refused[name].append((key, repr(error)))
            return real
        if name == "mkldnn_rnn_layer":  # its workspace has a size only oneDNN knows
            guess, actual = guess[:3], actual[:3]
        if same(guess, actual):
            self.right[name] += 1
        else:
            self.wrong[name].append((key, guess, actual))
        return real


def any_special(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.layout != torch.strided or value.is_quantized or value.device.type != "cpu"
    if isinstance(value, (list, tuple)):
        return any(map(any_special, value))
    return False


def same(guess: Any, actual: Any) -> bool:
    if isinstance(actual, fallback.TensorType):
        return isinstance(guess, fallback.TensorType) and tuple(guess) == tuple(actual)
    if isinstance(actual, tuple):
        return (
            isinstance(guess, tuple) and len(guess) == len(actual) and all(map(same, guess, actual))
        )
    return type(guess) is type(actual)


def run_sample(op: Any, sample: Any, mode: Compare, backward: bool) -> None:
    with mode:
        result = op(sample.input, *sample.args, **sample.kwargs)
        if not backward:
            return
        flat = [result] if isinstance(result, torch.Tensor) else list(tensors_in(result))
        outputs = [out for out in flat if out.requires_grad]
        leaves = [
            t
            for t in tensors_in([sample.input, sample.args, list(sample.kwargs.values())])
            if t.requires_grad and t.is_leaf
        ]
        if outputs and leaves:
            torch.autograd.grad(
                outputs, leaves, [torch.ones_like(out) for out in outputs], allow_unused=True
            )


def tensors_in(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in tensors_in(item)]
    return []


def relayout(sample: Any, how: str) -> Any:
    """The same sample with every big enough tensor in another memory order."""

    def change(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dim() < 2 or tensor.layout != torch.strided:
            return tensor
        with torch.no_grad():
            if how == "transposed":
                other = tensor.mT.contiguous().mT
            elif how == "channels_last" and tensor.dim() == 4:
                other = tensor.contiguous(memory_format=torch.channels_last)
            elif how == "gaps":
                other = torch.cat([tensor, tensor], -1)[..., ::2][..., : tensor.shape[-1]]
            else:
                return tensor
        return other.detach().requires_grad_(tensor.requires_grad)

    return sample.transform(lambda x: change(x) if isinstance(x, torch.Tensor) else x)


def sweep(
    pattern: str, dtypes: list[str], limit: int, layouts: list[str], mode: Compare
) -> collections.Counter[str]:
    from torch.testing._internal.opinfo import core

    from benchmarks.op_database import op_db

    core.extract_test_fn = lambda: None  # walks the stack per sample, for torch's own test classes

    counts: collections.Counter[str] = collections.Counter()
    for op in op_db:
        if not re.search(pattern, op.name):
            continue
        for key in dtypes:
            dtype = DTYPES[key]
            if dtype not in op.supported_dtypes("cpu"):
                continue
            backward = dtype in op.supported_backward_dtypes("cpu") and op.supports_autograd
            try:
                samples = op.sample_inputs("cpu", dtype, requires_grad=backward)
                for number, sample in enumerate(samples):
                    if number >= limit:
                        break
                    for how in layouts:
                        counts["samples"] += 1
                        try:
                            run_sample(op, relayout(sample, how), mode, backward)
                        except Exception:
                            counts["eager raised"] += 1
            except Exception:
                counts["no samples"] += 1
    return counts


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ops", default="")
    parser.add_argument("--dtypes", default="f32")
    parser.add_argument("--limit", type=int, default=1000)
    parser.add_argument("--layouts", default="same,transposed,channels_last,gaps")
    parser.add_argument("--show", type=int, default=2)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    mode = Compare()
    counts = sweep(
        options.ops, options.dtypes.split(","), options.limit, options.layouts.split(","), mode
    )
    for name, cases in sorted(mode.wrong.items()):
        print(f"WRONG {name}: {len(cases)} (right {mode.right[name]})")
        for (_, args, kwargs), guess, actual in cases[: options.show]:
            print(
                "   ", show(args), show(kwargs), "\n      rule", show(guess), " eager", show(actual)
            )
    for name, refusals in sorted(mode.refused.items()):
        print(f"REFUSED {name}: {len(refusals)} (right {mode.right[name]})")
        for (_, args, kwargs), error in refusals[: options.show]:
            print("   ", show(args), show(kwargs), error)
    print("no row:", ", ".join(f"{n} {c}" for n, c in mode.missing.most_common()))
    wrong = sum(map(len, mode.wrong.values()))
    refused = sum(map(len, mode.refused.values()))
    print(
        f"{dict(counts)}; distinct calls: {sum(mode.right.values())} right, {wrong} wrong, "
        f"{refused} refused over {len(mode.right)} ops with rows; "
        f"{sum(mode.missing.values())} calls of {len(mode.missing)} ops without"
    )


def show(value: Any) -> str:
    if isinstance(value, fallback.TensorType):
        return f"{str(value.dtype)[6:]}{list(value.shape)}/{list(value.stride)}"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(show, value)) + ")"
    return repr(value)


if __name__ == "__main__":
    main()
