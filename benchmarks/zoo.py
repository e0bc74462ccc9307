"""benchmarks.zoo: sweep the compiler over real models that nobody here wrote (``make zoo``).

For each model, in a forked child: does the compiled model give what eager gives, on the first call
and on the second, with how many graphs, in one graph, and how long did the first call take.

In training, dropout is off and other random numbers are drawn as eager draws them (option
``fallback_random``). Gradients further from eager's than the limit are judged by float64: rounding that turns
a relu after a batch norm over few elements moves them by percents, in eager too. Within twice the distance
that eager itself keeps from float64, as it is, channels-last, or with inputs one rounding off, the row says "noise".
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import functools
import importlib
import importlib.util
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.compare import distance, excused, gradient_distance, tensors
from benchmarks.engines import NotAvailable, argand_compile
from benchmarks.libraries.torchvision_names import has_operators
from benchmarks.sweep import Row, Sweep, one_line, where

ROOT = Path(__file__).resolve().parent.parent
ZOO = ROOT.parent / "shared" / "zoo"
RIVAL_BACKENDS = {"eager": "eager", "aot_eager": "aot_eager", "argand": "inductor"}
RESULT_LIMIT, GRADIENT_LIMIT = 1e-3, 1e-2


def load_zoo() -> ModuleType:
    """The module that builds the models; says clearly when it is not there."""
    path = ZOO / "zoo.py"
    if not path.exists():
        sys.exit(f"the zoo is not here: {path} is missing (it lives beside the repository)")
    spec = importlib.util.spec_from_file_location("argand_zoo", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # they do beside the large build of torch: nobody declares others in their place
    if has_operators():
        module._torchvision = lambda: importlib.import_module("torchvision")  # type: ignore[attr-defined]
    return module


@dataclass
class Settings:
    """What to do with each model."""

    backend: str
    mode: str
    rival: bool
    strict: bool
    threads: int


def silence_randomness(model: nn.Module) -> None:
    """Set every dropout rate to zero, so that two runs can be compared in training mode."""
    for module in model.modules():
        for holder in (module, getattr(module, "config", None)):
            for name, value in list(getattr(holder, "__dict__", {}).items()):
                rate = "drop" in name or name.endswith("_prob")
                if rate and isinstance(value, float) and 0 < value < 1:
                    with contextlib.suppress(Exception):
                        setattr(holder, name, 0.0)
        if isinstance(module, nn.Dropout | nn.Dropout1d | nn.Dropout2d | nn.Dropout3d):
            module.p = 0.0


def seed() -> None:
    """The same random numbers for every call."""
    random.seed(0)
    torch.manual_seed(0)


def call(model: Callable[..., Any], module: nn.Module, args: Any, kwargs: Any, mode: str) -> Any:
    """One call, (result, gradients): a forward pass, or one with backward in training mode."""
    seed()
    if mode == "infer":
        with torch.no_grad():
            return model(*args, **kwargs), []
    module.zero_grad(set_to_none=True)
    result = model(*args, **kwargs)
    floats = [t for t in tensors(result) if t.is_floating_point() and t.requires_grad]
    loss = sum((t.float() ** 2).mean() for t in floats)
    assert isinstance(loss, Tensor), "no output needs a gradient"
    loss.backward()
    return result, [p.grad for p in module.parameters()]


@dataclass
class CountingBackend:
    """A backend that counts the graphs it is given and their operators."""

    inner: Callable[..., Any]
    sizes: list[int]

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Any], **rest: Any) -> Any:
        calls = ("call_function", "call_method", "call_module")
        self.sizes.append(sum(node.op in calls for node in graph.graph.nodes))
        return self.inner(graph, inputs, **rest)


def compiler(settings: Settings, sizes: list[int], **arguments: Any) -> Callable[..., Any]:
    """A function from a module to a compiled module, which notes the graphs in ``sizes``."""
    compile_ = argand_compile()
    import argand

    backend = CountingBackend(argand.lookup_backend(settings.backend), sizes)
    return lambda module: compile_(module, backend=backend, options=_options(settings), **arguments)


def _options(settings: Settings) -> dict[str, bool]:
    return {"strict": settings.strict, "fallback_random": settings.mode == "train"}


@contextlib.contextmanager
def counted() -> Iterator[dict[str, int]]:
    """The compiler's own counters (graph breaks, fallbacks, ...) during a block."""
    totals: dict[str, int] = {}
    from argand.support import events

    with events.collect() as collector:
        yield totals
    for event in collector.events:
        if isinstance(event, events.Count):
            totals[event.counter] = totals.get(event.counter, 0) + event.amount


def mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Inputs with every tensor of floats changed."""
    if isinstance(value, dict):
        return {key: mapped(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([mapped(item, change) for item in value])
    return change(value) if isinstance(value, Tensor) and value.is_floating_point() else value


def is_noise(model: nn.Module, args: Any, kwargs: Any, gradients: list[Tensor | None]) -> bool:
    """Whether gradients are about as far from those of float64 as eager's own may be."""
    wide = copy.deepcopy(model).double()
    exact = call(wide, wide, *mapped((args, kwargs), Tensor.double), "train")[1]
    draw = torch.Generator().manual_seed(1)

    def one_rounding_off(value: Tensor) -> Tensor:
        return value * (
            1 + torch.finfo(value.dtype).eps * (2 * torch.rand(value.shape, generator=draw) - 1)
        )

    trials = [(torch.preserve_format, lambda t: t), (torch.channels_last, lambda t: t)]
    for memory_format, change in [*trials, *[(torch.preserve_format, one_rounding_off)] * 3]:
        eager = copy.deepcopy(model).to(memory_format=memory_format)
        given = mapped((args, kwargs), change)
        if excused(gradients, call(eager, eager, *given, "train")[1], exact):
            return True
    return False


def judge(
    compiled: Callable[..., Any],
    module: nn.Module,
    model: nn.Module,
    args: Any,
    kwargs: Any,
    expected: Any,
    mode: str,
) -> Row:
    """Call twice and compare; status ok, noise or wrong, with the distances and the times.

    ``module`` holds the gradients of ``compiled``; ``model`` is the one it was copied from.
    """
    row: Row = {"status": "ok"}
    for name, wanted in zip(("first", "second"), expected, strict=True):
        begin = time.perf_counter()
        result, gradients = call(compiled, module, args, kwargs, mode)
        row[f"{name}_seconds"] = round(time.perf_counter() - begin, 4)
        row[f"{name}_distance"] = distance(result, wanted[0])
        bad = not row[f"{name}_distance"] <= RESULT_LIMIT
        if mode == "train":
            row[f"{name}_gradients"] = gradient_distance(gradients, wanted[1])
            if not bad and not row[f"{name}_gradients"] <= GRADIENT_LIMIT:
                row["status"] = "noise"
                bad = not is_noise(model, args, kwargs, gradients)
        if bad:
            numbers = {k: v for k, v in row.items() if k.startswith(name)}
            return row | {"status": "wrong", "cause": f"{name} call differs: {numbers}"}
    return row


def attempt(
    make: Callable[[nn.Module], Callable[..., Any]],
    model: nn.Module,
    args: Any,
    kwargs: Any,
    expected: Any,
    mode: str,
) -> Row:
    """Compile a copy of the model and judge it; errors become rows."""
    module = copy.deepcopy(model)
    try:
        return judge(make(module), module, model, args, kwargs, expected, mode)
    except NotAvailable as error:
        return {"status": "missing", "cause": str(error)}
    except Exception as error:
        return {"status": "error", "cause": one_line(error), "where": where(error)}


def fullgraph_row(settings: Settings, model: nn.Module, args: Any, kwargs: Any) -> Row:
    """Whether the forward pass is captured in one graph."""
    capture_only = Settings("eager", settings.mode, False, settings.strict, settings.threads)
    import argand

    argand.reset()
    return _one_graph(compiler(capture_only, [], fullgraph=True), model, args, kwargs, settings)


def _one_graph(make: Any, model: nn.Module, args: Any, kwargs: Any, settings: Settings) -> Row:
    try:
        compiled = make(copy.deepcopy(model))
        with torch.set_grad_enabled(settings.mode == "train"):
            compiled(*args, **kwargs)
    except Exception as error:
        return {"fullgraph": False, "fullgraph_cause": one_line(error)}
    return {"fullgraph": True}


def rival_row(settings: Settings, model: nn.Module, args: Any, kwargs: Any, expected: Any) -> Row:
    """The same model under torch.compile, with empty caches."""
    sizes: list[int] = []
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        from torch._dynamo.backends.registry import lookup_backend

        name = RIVAL_BACKENDS[settings.backend]
        backend = CountingBackend(lookup_backend(name), sizes)
        row = attempt(
            lambda m: torch.compile(m, backend=backend),
            model,
            args,
            kwargs,
            expected,
            settings.mode,
        )
        row["graphs"] = len(sizes)
        torch._dynamo.reset()
        make = functools.partial(torch.compile, backend="eager", fullgraph=True)
        row |= _one_graph(make, model, args, kwargs, settings)
    return {f"rival_{key}": value for key, value in row.items()}


def examine(zoo: ModuleType, name: str, settings: Settings) -> Row:
    """Everything the sweep says of one model."""
    torch.set_num_threads(settings.threads)
    model, args, kwargs = zoo.build(name)
    model.train(settings.mode == "train")
    if settings.mode == "train":
        silence_randomness(model)
    reference = copy.deepcopy(model)
    begin = time.perf_counter()
    expected = [call(reference, reference, args, kwargs, settings.mode) for _ in range(2)]
    row: Row = {"status": "ok", "eager_seconds": round((time.perf_counter() - begin) / 2, 4)}
    if settings.backend == "none":  # is the model itself repeatable?
        return row | attempt(lambda m: m, model, args, kwargs, expected, settings.mode)
    sizes: list[int] = []
    with counted() as counters:
        row |= attempt(
            lambda m: compiler(settings, sizes)(m), model, args, kwargs, expected, settings.mode
        )
    row |= {"graphs": len(sizes), "nodes": sum(sizes), "counters": counters}
    if row["status"] in ("ok", "noise") and not any(sizes):
        row |= {"status": "no graph", "cause": "no graph with operators was made"}
    if row["status"] != "missing":
        row |= fullgraph_row(settings, model, args, kwargs)
    if settings.rival:
        row |= rival_row(settings, model, args, kwargs, expected)
    return row


def resized(value: Any, batch: int, cut: int) -> Any:
    """Inputs with another batch, and integer ones (tokens) with a shorter sequence."""
    if isinstance(value, dict):
        return {key: resized(item, batch, cut) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([resized(item, batch, cut) for item in value])
    if not isinstance(value, Tensor) or not value.dim():
        return value
    if cut and value.dim() == 2 and not value.is_floating_point() and value.shape[1] > cut + 4:
        value = value[:, : value.shape[1] - cut]
    return torch.cat([value[:1]] * batch).contiguous()


def examine_sizes(zoo: ModuleType, name: str, settings: Settings) -> Row:
    """One model at four batch sizes and sequence lengths: from the third on nothing should be compiled."""
    torch.set_num_threads(settings.threads)
    model, args, kwargs = zoo.build(name)
    model.train(settings.mode == "train")
    silence_randomness(model)
    reference = copy.deepcopy(model)
    calls = [resized((args, kwargs), batch, cut) for batch, cut in ((2, 0), (3, 1), (4, 2), (6, 4))]
    try:
        expected = [call(reference, reference, *given, settings.mode) for given in calls]
    except Exception as error:
        return {"status": "missing", "cause": f"eager: {one_line(error)}"}
    compiled = argand_compile()(model, backend=settings.backend, options=_options(settings))
    from argand.support import events

    row: Row = {"status": "ok", "compiles": []}
    try:
        for given, (wanted, gradients) in zip(calls, expected, strict=True):
            with events.collect() as seen:
                found, found_gradients = call(compiled, model, *given, settings.mode)
            row["compiles"].append(seen.total("compiles"))
            far = distance(found, wanted) > RESULT_LIMIT
            far |= (
                settings.mode == "train"
                and gradient_distance(found_gradients, gradients) > GRADIENT_LIMIT
            )
            if far:
                return row | {"status": "wrong", "cause": f"call {len(row['compiles'])} differs"}
            if sum(row["compiles"][2:]):
                fixed = [
                    line
                    for text in seen.texts("dynamic")
                    for line in text.splitlines()
                    if " is fixed at " in line
                ]
                row |= {
                    "status": "not open",
                    "cause": (fixed or seen.texts("recompiles") or ["no reason"])[0][:300],
                }
    except Exception as error:
        return row | {"status": "error", "cause": one_line(error), "where": where(error)}
    return row


def summarize(rows: list[Row], settings: Settings) -> str:
    """The sweep in a few lines: counts, graphs, compile times, causes."""
    states = Counter(row["status"] for row in rows)
    captured = states["ok"]
    single = sum(bool(row.get("fullgraph")) for row in rows)
    lines = [
        f"zoo: backend {settings.backend}, mode {settings.mode}: {len(rows)} models",
        f"  captured  {captured} ({captured / max(len(rows), 1):.1%})   fullgraph {single}   {dict(states)}",
    ]
    if states["noise"]:
        lines.append(
            f"  and {states['noise']} whose gradients differ from eager's by over {GRADIENT_LIMIT:.0%}, but from float64's "
            "by at most twice what eager's own may"
        )
    graphs = [row["graphs"] for row in rows if row.get("graphs")]
    if graphs:
        lines.append(f"  graphs    {sum(graphs)} in all, most {max(graphs)} in one model")
    lines += _rival_lines(rows)
    causes = Counter(
        _family(row) for row in rows if row["status"] not in ("ok", "noise", "missing")
    )
    lines += [f"  {count:4} x {cause}" for cause, count in causes.most_common(20)]
    breaks = Counter(row["fullgraph_cause"][:120] for row in rows if row.get("fullgraph_cause"))
    lines += [f"  fullgraph {count:4} x {cause}" for cause, count in breaks.most_common(10)]
    return "\n".join(lines)


def _family(row: Row) -> str:
    cause = str(row.get("cause", ""))
    return f"{row['status']}: {'results differ' if row['status'] == 'wrong' else cause[:140]}"


def _rival_lines(rows: list[Row]) -> list[str]:
    pairs = [
        (row["first_seconds"], row["rival_first_seconds"])
        for row in rows
        if row["status"] == "ok" and row.get("rival_status") == "ok"
    ]
    if not pairs:
        return []
    ours, theirs = sum(a for a, _ in pairs), sum(b for _, b in pairs)
    ok = sum(row.get("rival_status") == "ok" for row in rows)
    single = sum(bool(row.get("rival_fullgraph")) for row in rows)
    return [
        f"  first call on {len(pairs)} models: {ours:.1f} s, torch.compile {theirs:.1f} s "
        f"({theirs / ours:.1f} x); torch.compile captured {ok}, fullgraph {single}"
    ]


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo", description=__doc__)
    parser.add_argument("--backend", default="argand", help="none: only check that eager runs")
    parser.add_argument("--mode", default="infer", choices=("infer", "train"))
    parser.add_argument("--models", default="", help="substrings of names, comma-separated")
    parser.add_argument("--suite", default="", help="tv, timm or hf: all models, not only dev.txt")
    parser.add_argument("--limit", type=float, default=180.0, help="seconds per model")
    parser.add_argument("--first", type=int, default=0, help="only the first so many models")
    parser.add_argument("--jobs", type=int, default=1, help="models at the same time")
    parser.add_argument("--threads", type=int, default=1, help="threads per model")
    parser.add_argument("--rival", action="store_true", help="also run torch.compile")
    parser.add_argument("--dynamic", action="store_true", help="several batch sizes and lengths")
    parser.add_argument("--strict", action="store_true", help="internal errors are not caught")
    parser.add_argument("--fresh", action="store_true", help="forget the rows of earlier runs")
    parser.add_argument("--out", type=Path, default=None, help="file of JSON lines")
    return parser.parse_args()


def main() -> None:
    """Sweep and print the summary."""
    arguments = parse()
    zoo = load_zoo()
    names = zoo.names(arguments.suite) if arguments.suite else (ZOO / "dev.txt").read_text().split()
    parts = [part for part in arguments.models.split(",") if part]
    names = [n for n in names if not parts or any(part in n for part in parts)]
    names = names[: arguments.first or None]
    if not names:
        sys.exit(f"no model of the zoo matches {arguments.models!r}")
    settings = Settings(
        arguments.backend, arguments.mode, arguments.rival, arguments.strict, arguments.threads
    )
    if any(name.startswith("hf:") for name in names):
        zoo.names("hf")  # imported once here, not once in each child
    if any(name.startswith("timm:") for name in names):
        zoo.names("timm")
    kind = f"{settings.backend}-{settings.mode}{'-dynamic' if arguments.dynamic else ''}"
    path = arguments.out or ROOT / "results" / f"zoo-{kind}.jsonl"
    look = examine_sizes if arguments.dynamic else examine
    sweep = Sweep(path, arguments.limit, arguments.jobs, arguments.fresh)
    rows = sweep.run(names, lambda name: look(zoo, name, settings))
    print(summarize(rows, settings))
    print(f"  rows in {os.path.relpath(path)}, output of each model beside it")


if __name__ == "__main__":
    main()
