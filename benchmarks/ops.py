"""benchmarks.ops: sweep the compiler over torch's own operator samples (``make ops``).

For each operator of ``op_db``, in a forked child: its samples in several dtypes, as given and as
non-contiguous, zero-size and 0-d inputs, and in other memory (``--variants``: slices with an offset,
expanded, transposed, strided, negative and conjugate views), forward and gradients (second order on
request), each compared with eager: values, then all that is seen of results and inputs besides
(strides, offsets, aliasing, bits, versions). A sample that eager itself refuses is left out.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree

from argand.support import events
from benchmarks.compare import difference, excused, tensors
from benchmarks.engines import NotAvailable, argand_compile
from benchmarks.sweep import Row, Sweep, one_line
from benchmarks.variants import VARIANTS, dressed
from tools.answers import differences, observe

ROOT = Path(__file__).resolve().parent.parent
DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "complex128": torch.complex128,
    "float16": torch.float16,
    "int64": torch.int64,
    "bool": torch.bool,
}
# Largest difference over the largest magnitude; half types keep three digits.
LIMITS = {torch.float64: 1e-7, torch.bfloat16: 2e-2, torch.float16: 4e-3, torch.complex128: 1e-7}
DEFAULT_LIMIT = 2e-5
GRADIENT_FACTOR = 10
# What these return was never written, or lies outside the memory of a copied argument.
UNWRITTEN = ("empty", "new_empty", "resize_", "as_strided")
FALLBACKS = ("autograd.fallback", "capture.breaks", "capture.raised")
KERNELS = ("lowered", "extern")
STATES = {
    "equal": "compiled and equal",
    "fell back": "equal, but eager ran it or a part of it (counted, with the reason)",
    "differs": "wrong",
    "error": "raised where eager does not",
}
# Differences from eager that are meant: operator, what differs, why.
ACCEPTED = (("empty", "stride", "results that are never written"),)
EAGER_CRASHES = ("_chunk_cat", "nn.functional.pdist")  # on zero-size or 0-d inputs, in 2.13


@dataclass
class Settings:
    """What to try of each operator."""

    backend: str
    dtypes: tuple[str, ...]
    samples: int
    second_order: bool
    strict: bool
    variants: tuple[str, ...] = ()


@dataclass
class Sample:
    """One call of an operator: flat leaves and how to put them together again."""

    label: str
    leaves: list[Any]
    spec: Any
    variant: str = ""  # the memory its tensors lie in

    def arguments(
        self, requires_grad: bool
    ) -> tuple[tuple[Any, ...], dict[str, Any], list[Tensor]]:
        """Fresh copies of the arguments, and those of them that get gradients."""
        made: list[Any] = []
        inputs: list[Tensor] = []
        for leaf in self.leaves:
            if not isinstance(leaf, Tensor):
                made.append(leaf)
                continue
            copy = leaf.detach().clone(memory_format=torch.preserve_format)
            if leaf.dim() and not leaf.is_contiguous() and copy.stride() != leaf.stride():
                copy = torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype)
                copy.copy_(leaf.detach())
            copy = dressed(copy, self.variant)
            if requires_grad and (leaf.is_floating_point() or leaf.is_complex()):
                inputs.append(copy.requires_grad_())
            made.append(copy)
        args, kwargs = _pytree.tree_unflatten(made, self.spec)
        return args, kwargs, inputs


def _of(label: str, sample: Any) -> Sample:
    leaves, spec = _pytree.tree_flatten(((sample.input, *sample.args), dict(sample.kwargs)))
    return Sample(label, leaves, spec)


def _emptied(sample: Sample) -> Sample:
    """The sample with the first dimension of every tensor cut to nothing."""
    leaves = [x[:0] if isinstance(x, Tensor) and x.dim() else x for x in sample.leaves]
    return Sample("zero-size", leaves, sample.spec)


def _scalar(sample: Sample) -> Sample:
    """The sample with every tensor replaced by one of its elements."""
    leaves = [x.flatten()[0] if isinstance(x, Tensor) and x.numel() else x for x in sample.leaves]
    return Sample("0-d", leaves, sample.spec)


def samples_of(
    op: Any, dtype: torch.dtype, limit: int, variants: tuple[str, ...] = ()
) -> Iterator[Sample]:
    """Up to ``limit`` samples of an operator, then the variants of the first of them."""
    given = []
    for number, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=False)):
        if number >= limit:
            break
        made = _of(f"sample {number}", sample)
        if all(x.layout is torch.strided for x in made.leaves if isinstance(x, Tensor)):
            given.append(sample)
            yield made
    if op.name in EAGER_CRASHES:
        return
    for sample in given[:2]:
        yield _of("non-contiguous", sample.noncontiguous())
    for sample in given[:2]:
        for variant in variants:
            yield dataclasses.replace(_of(variant, sample), variant=variant)
    for sample in given[:1]:
        yield _emptied(_of("", sample))
        yield _scalar(_of("", sample))


def _cotangents(results: list[Tensor]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [
        torch.rand(r.shape, generator=generator, dtype=torch.float64).add(0.5).to(r.dtype)
        for r in results
    ]


def evaluate(call: Callable[..., Any], sample: Sample, order: int) -> list[Any]:
    """[results, gradients, second gradients] up to the order asked for."""
    torch.manual_seed(0)
    args, kwargs, inputs = sample.arguments(order > 0)
    result = call(*args, **kwargs)
    stages: list[Any] = [[t.detach().clone() for t in tensors(result)]]
    current = [t for t in tensors(result) if t.requires_grad]
    for step in range(order):
        if not current:
            break
        gradients = torch.autograd.grad(
            current, inputs, _cotangents(current), allow_unused=True, create_graph=step + 1 < order
        )
        stages.append([None if g is None else g.detach().clone() for g in gradients])
        current = [g for g in gradients if g is not None and g.requires_grad]
    return stages


def mismatch(actual: list[Any], expected: list[Any], random: bool) -> str:
    """What differs, or an empty text; of random operators only the shapes are compared."""
    names = ("result", "gradient", "second gradient")
    if len(actual) != len(expected):
        return f"{len(expected) - 1} orders of gradients expected, {len(actual) - 1} given"
    for name, left, right in zip(names, actual, expected, strict=False):
        if len(left) != len(right):
            return f"{name}: {len(right)} tensors expected, {len(left)} given"
        for a, b in zip(left, right, strict=True):
            if a is None or b is None:
                if a is not b:
                    return f"{name}: only one of them is None"
            elif a.shape != b.shape or a.dtype != b.dtype:
                return (
                    f"{name}: {b.dtype} {list(b.shape)} expected, {a.dtype} {list(a.shape)} given"
                )
            elif not random and not (name != "result" and _vanishes(a) and _vanishes(b)):
                factor = 1 if name == "result" else GRADIENT_FACTOR
                distance, limit = difference(a, b), LIMITS.get(b.dtype, DEFAULT_LIMIT) * factor
                if not distance <= limit:
                    return f"{name}: differs by {distance:.2g}, limit {limit:.2g}"
    return ""


def _vanishes(gradient: Tensor) -> bool:
    """Whether a gradient is zero but for rounding: then the digits it has left mean nothing."""
    if not gradient.numel() or not (gradient.is_floating_point() or gradient.is_complex()):
        return False
    return gradient.abs().max().item() <= 100 * torch.finfo(gradient.dtype).eps


def fallback(collector: events.Collector) -> str:
    """Why a sample was not compiled as a whole, or an empty text."""
    notes = [(e.counter, e.detail) for e in collector.events if isinstance(e, events.Count)]
    reasons = [f"{name}: {why}" for name, why in notes if name in FALLBACKS]
    if reasons or not notes:
        return next(iter(reasons), "")
    return "" if collector.total("capture.graphs") else "no graph was made"


def check(
    op: Any, sample: Sample, order: int, compile_: Callable[..., Any], kernels: Counter[str]
) -> tuple[str, str]:
    """('equal' | 'fell back' | 'differs' | 'error' | 'left out', cause) of one sample.

    Equal means compiled and equal; a sample that fell back (to eager, with a count) is equal too.
    ``kernels`` counts the calls of aten ops that were lowered and those that call torch's kernel.
    """
    function = op.op

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    try:
        expected = evaluate(call, sample, order)
        again = evaluate(call, sample, order)
    except Exception:
        if order:
            # forward may work where backward does not
            return check(op, sample, order - 1, compile_, kernels)
        return "left out", ""
    torch.manual_seed(7)
    random = op.name.startswith(UNWRITTEN) or _draws(call, sample)
    random = random or bool(mismatch(again, expected, False))
    try:
        with events.collect() as collector:
            compiled = compile_(call)
            actual = evaluate(compiled, sample, order)
    except Exception as error:
        return "error", one_line(error)
    for name in KERNELS:
        kernels[name] += collector.total(f"native.{name}")
    cause = mismatch(actual, expected, random)
    half = any(
        isinstance(x, Tensor) and x.dtype in (torch.float16, torch.bfloat16) for x in sample.leaves
    )
    if cause and not ((order or half) and _rounding(call, sample, order, actual, expected)):
        return "differs", cause
    cause = unlike(op.name, call, compiled, sample, order)
    if cause:
        return "differs", cause
    cause = fallback(collector)
    return ("fell back", cause) if cause else ("equal", "")


def unlike(
    name: str, call: Callable[..., Any], compiled: Callable[..., Any], sample: Sample, order: int
) -> str:
    """What is seen besides values and is not as in eager, in a second call; an empty text for nothing, or what is meant."""
    answers = []
    for function in (call, compiled):
        args, kwargs, _ = sample.arguments(order > 0)
        torch.manual_seed(0)
        answers.append(
            observe(lambda args, kwargs, run=function: run(*args, **kwargs), args, kwargs)
        )
    meant = [what for op, what, _ in ACCEPTED if name.startswith(op)]
    told = differences(*answers, values=False)
    return next((text for text in told if not any(what in text for what in meant)), "")


def _rounding(
    call: Callable[..., Any], sample: Sample, order: int, actual: list[Any], expected: list[Any]
) -> bool:
    """Whether gradients, or results of half types, that differ are as near to those in float64 as eager's own."""
    leaves = [
        x.double() if isinstance(x, Tensor) and x.is_floating_point() else x for x in sample.leaves
    ]
    try:
        exact = evaluate(call, Sample("", leaves, sample.spec), order)
        finite = all(t.isfinite().all() for stage in exact for t in stage if t is not None)
        return finite and all(map(excused, actual, expected, exact))
    except Exception:  # no float64, or other numbers of gradients
        return False


def _draws(call: Callable[..., Any], sample: Sample) -> bool:
    """Whether a call advances torch's random generator."""
    before = torch.random.get_rng_state()
    args, kwargs, _ = sample.arguments(False)
    call(*args, **kwargs)
    return not torch.equal(before, torch.random.get_rng_state())


def examine(op: Any, settings: Settings) -> Row:
    """All samples of one operator."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    compile_ = _compiler(settings)
    counts: Counter[str] = Counter()
    kernels: dict[str, Counter[str]] = {name: Counter() for name in settings.dtypes}
    failures: list[Row] = []
    for name in settings.dtypes:
        dtype = DTYPES[name]
        if dtype not in op.supported_dtypes("cpu"):
            continue
        differentiable = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
        order = (2 if settings.second_order and op.supports_gradgrad else 1) * differentiable
        for sample in samples_of(op, dtype, settings.samples, settings.variants):
            state, cause = check(op, sample, order, compile_, kernels[name])
            counts[state] += 1
            kernels[name][state] += 1
            if cause:
                note = {"state": state, "dtype": name, "sample": sample.label, "cause": cause}
                failures.append(note)
    bad = counts["differs"] + counts["error"]
    status = "wrong" if bad else "fell back" if counts["fell back"] else "ok"
    row: Row = {"status": status, "counts": dict(counts), "failures": failures}
    row["dtypes"] = {name: dict(found) for name, found in kernels.items() if found}
    if status == "ok":
        return row
    first = next(f for f in failures if not bad or f["state"] != "fell back")
    number = bad or counts["fell back"]
    return row | {"cause": f"{number} of {sum(counts.values())}: {first['cause']}"}


def _compiler(settings: Settings) -> Callable[..., Any]:
    if settings.backend == "none":
        return lambda call: call
    if settings.backend == "torch":
        return lambda call: (torch._dynamo.reset(), torch.compile(call))[1]
    compile_ = argand_compile()
    import argand

    # what comes from the disk cache tells neither of its breaks nor of its kernels
    options = {"strict": settings.strict, "cache": False}

    def fresh(call: Callable[..., Any]) -> Callable[..., Any]:
        argand.reset()
        return compile_(call, backend=settings.backend, options=options)

    return fresh


def summarize(rows: list[Row], backend: str) -> str:
    """Totals, and the causes that fail most samples."""
    totals: Counter[str] = Counter()
    causes: Counter[str] = Counter()
    for row in rows:
        totals.update(row.get("counts", {}))
        causes.update(f"{f['state']}: {f['cause']}"[:120] for f in row.get("failures", ()))
        if row["status"] in ("crash", "timeout", "error"):
            causes[f"{row['status']}: {row['cause']}"[:120]] += 1
    tried = sum(totals.values()) - totals["left out"]
    states = Counter(row["status"] for row in rows)
    lines = [
        f"ops: backend {backend}: {states['ok']} of {len(rows)} operators compiled and equal in "
        f"all samples {dict(states)}",
        f"  {tried} samples, and {totals['left out']} left out because eager refuses them",
    ]
    for state, words in STATES.items():
        lines.append(f"  {totals[state]:6} ({totals[state] / max(tried, 1):7.2%})  {words}")
    lines += _by_dtype(rows)
    lines += [f"  {count:5} x {cause}" for cause, count in causes.most_common(30)]
    return "\n".join(lines)


def _by_dtype(rows: list[Row]) -> list[str]:
    """Per element type: samples equal to eager, and the share of aten calls lowered by us."""
    lines = ["  dtype     samples    equal  compiled   wrong  lowered by us of calls"]
    for dtype in DTYPES:
        found: Counter[str] = Counter()
        for row in rows:
            found.update(row.get("dtypes", {}).get(dtype, {}))
        tried = sum(found[state] for state in STATES)
        if not tried:
            continue
        bad, calls = found["differs"] + found["error"], found["lowered"] + found["extern"]
        lines.append(
            f"  {dtype:9} {tried:7}  {1 - bad / tried:7.2%}  {found['equal'] / tried:7.2%}  {bad:6}"
            f"  {found['lowered'] / max(calls, 1):7.1%} of {calls}"
        )
    return lines


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ops", description=__doc__)
    parser.add_argument(
        "--backend", default="argand", help="a backend of argand; none: eager itself; torch"
    )
    parser.add_argument("--ops", default="", help="substrings of names, comma-separated")
    parser.add_argument("--exact", action="store_true", help="names must match as a whole")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--samples", type=int, default=4, help="samples per operator and dtype")
    parser.add_argument(
        "--variants",
        default="",
        help=f"other memory, comma-separated or all: {', '.join(VARIANTS)}",
    )
    parser.add_argument("--second-order", action="store_true", help="gradients of gradients")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds per operator")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="only the first so many operators")
    parser.add_argument("--strict", action="store_true", help="internal errors are not caught")
    parser.add_argument("--fresh", action="store_true", help="forget the rows of earlier runs")
    parser.add_argument("--out", type=Path, default=None)
    return parser.parse_args()


def load_operators() -> dict[str, Any]:
    """torch's table of operators with sample inputs, by name."""
    try:
        from torch.testing._internal import common_methods_invocations as invocations

        from benchmarks.op_database import op_db
    except ImportError as error:
        sys.exit(f"torch's op_db cannot be imported ({error}); run `make setup`")
    # its samples of random operators seed around each call: a graph break that is not the operator's
    invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
    return {op.formatted_name: op for op in op_db}


def main() -> None:
    """Sweep and print the summary."""
    arguments = parse()
    unknown = set(arguments.dtypes.split(",")) - set(DTYPES)
    if unknown:
        sys.exit(f"no dtype {', '.join(unknown)}; dtypes: {', '.join(DTYPES)}")
    if arguments.backend not in ("none", "torch"):
        try:
            argand_compile()
        except NotAvailable as error:
            sys.exit(str(error))
    variants = (
        tuple(VARIANTS)
        if arguments.variants == "all"
        else tuple(filter(None, arguments.variants.split(",")))
    )
    if not VARIANTS.keys() >= set(variants):
        sys.exit(
            f"no variant {', '.join(set(variants) - VARIANTS.keys())}; variants: {', '.join(VARIANTS)}"
        )
    operators = load_operators()
    parts = [part for part in arguments.ops.split(",") if part]
    match = (lambda a, b: a == b) if arguments.exact else (lambda a, b: a in b)
    names = [n for n in operators if not parts or any(match(part, n) for part in parts)]
    settings = Settings(
        arguments.backend,
        tuple(arguments.dtypes.split(",")),
        arguments.samples,
        arguments.second_order,
        arguments.strict,
        variants,
    )
    path = arguments.out or ROOT / "results" / f"ops-{arguments.backend}.jsonl"
    sweep = Sweep(path, arguments.limit, arguments.jobs, arguments.fresh)
    rows = sweep.run(
        names[: arguments.first or None], lambda name: examine(operators[name], settings)
    )
    failed = path.with_name(path.stem + "-failures.json")
    failed.write_text(json.dumps([row for row in rows if row["status"] != "ok"], indent=1))
    print(summarize(rows, arguments.backend))
    print(f"  rows in {os.path.relpath(path)}, failures in {os.path.relpath(failed)}")


if __name__ == "__main__":
    main()
