"""bisect.text: a case as a program of its own, which needs nothing but torch and argand.

In: a `GraphCase`, and for each input the text that makes it (`literal`, or one of `simpler_forms`). Out: the text of a script that
fails by itself: it ends with an exception, a crash, or exit code 1.
"""

from __future__ import annotations

import math
import re
import textwrap
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from torch.fx import Graph

from argand.bisect.case import GraphCase
from argand.report.trials import SLOW

# elements of a tensor that is written down as a list without a try at something simpler
FEW: Final = 64
MOST: Final = 4096  # more go to a file
_FREED: Final = re.compile(r";  (?:\w+ = )+None")
_HEAD: Final = re.compile(r"def forward\(self,? ?")
_TIMES: Final = """\
def seconds(call):
    best = float("inf")
    for arguments in 10 * calls():
        begin = time.perf_counter()
        call(*arguments)
        best = min(best, time.perf_counter() - begin)
    return best


eager, ours = seconds(program), seconds(compiled)
print(f"eager {eager * 1e3:.3f} ms, compiled {ours * 1e3:.3f} ms")
sys.exit(ours > 1.5 * eager)
"""


def script_text(
    case: GraphCase,
    inputs: Sequence[Sequence[str]],
    kind: str,
    said: str,
    options: Mapping[str, Any],
) -> str:
    """The whole program; ``inputs``: a text for each input of each call; ``said``: what is wrong."""
    body, imports = function_text(case.graph)
    rows = ["".join(f"        {text},\n" for text in call) for call in inputs]
    calls = "".join(f"        (\n{textwrap.indent(row, '    ')}        ),\n" for row in rows)
    chosen = dict(options) | ({"dynamic": True} if case.dynamic else {})
    dynamic = ", dynamic=True" if chosen.pop("dynamic", False) else ""
    if kind == SLOW:
        chosen = {name: value for name, value in chosen.items() if name != "verify"} | {
            "measure": False,
            "cache": False,
        }
        imports = ["import sys", "import time", *imports]
    parts = [f'"""{said}"""', "\n".join([*imports, "import torch", "import argand"]), body]
    parts.append(f"def calls():\n    torch.manual_seed(0)\n    return [\n{calls}    ]")
    compiled = f"compiled = argand.compile(program{dynamic}, options={chosen!r})"
    grad = "" if case.grad else "torch.set_grad_enabled(False)\n"
    run = _TIMES if kind == SLOW else "for arguments in calls():\n    compiled(*arguments)\n"
    parts.append(f"{grad}{compiled}\n{run}")
    return "\n\n\n".join(parts)


def function_text(graph: Graph) -> tuple[str, list[str]]:
    """A graph as a Python function called ``program``, and the imports it needs besides torch."""
    code = graph.python_code("self")
    text = _FREED.sub("", _HEAD.sub("def program(", code.src)).strip()
    text = re.sub(r"  # type: ignore.*|  # noqa.*", "", text)
    used = set(re.findall(r"[A-Za-z_]\w*", text))
    needed = (
        (name, value) for name, value in code.globals.items() if name in used and name != "torch"
    )
    return text, sorted({_import(name, value) for name, value in needed})


def _import(name: str, value: Any) -> str:
    if isinstance(value, types.ModuleType):
        return (
            f"import {value.__name__}"
            if value.__name__ == name
            else f"import {value.__name__} as {name}"
        )
    if isinstance(value, float):
        return f"from math import {name}"
    where = getattr(value, "__module__", None) or "torch"
    known = getattr(value, "__qualname__", name)
    return f"from {where} import {known}" + ("" if known == name else f" as {name}")


def literal(value: Any, file: Path | None = None) -> str:
    """The text of any input; a large tensor is put into a ``file``."""
    if isinstance(value, torch.Tensor):
        return _tensor(value, file)
    if isinstance(value, tuple | list):
        parts = ", ".join(
            literal(item, file and file.with_name(f"{file.stem}-{k}.bin"))
            for k, item in enumerate(value)
        )
        return f"({parts},)" if isinstance(value, tuple) else f"[{parts}]"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def _tensor(value: torch.Tensor, file: Path | None) -> str:
    plain = value.detach()
    if value.numel() > MOST and file is not None:
        dense = plain.contiguous()
        file.write_bytes(
            bytes(dense.view(torch.uint8).reshape(-1).tolist()) if dense.numel() else b""
        )
        text = f'torch.from_file("{file.name}", size={value.numel()}, dtype={value.dtype})'
        text = f"{text}.reshape({_shape(value)})"
    else:
        numbers = re.sub(r"\b(nan|inf)\b", r'float("\1")', str(plain.tolist()))
        text = f"torch.tensor({numbers}, dtype={value.dtype})"
        text += "" if value.numel() else f".reshape({_shape(value)})"
    return text + _laid(value) + _wanted(value)


def _shape(value: torch.Tensor) -> str:
    return str(tuple(value.shape))


def _laid(value: torch.Tensor) -> str:
    """What gives a dense tensor the strides of another one."""
    if value.is_contiguous():
        return ""
    order = sorted(range(value.dim()), key=lambda dim: -value.stride(dim))
    dense = value.permute(order).is_contiguous()
    if not dense:
        return (
            f".as_strided({_shape(value)}, {tuple(value.stride())})" if 0 in value.stride() else ""
        )
    back = tuple(order.index(dim) for dim in range(value.dim()))
    return f".permute({tuple(order)}).contiguous().permute({back})"


def _wanted(value: torch.Tensor) -> str:
    return ".requires_grad_()" if value.requires_grad else ""


def simpler_forms(value: Any) -> Iterator[str]:
    """Texts that make a tensor like this one with other numbers in it, the simplest first."""
    if not isinstance(value, torch.Tensor) or not value.numel():
        return
    rest, shape = _laid(value) + _wanted(value), ", ".join(map(str, value.shape)) or "()"
    kind = "" if value.dtype is torch.float32 else f", dtype={value.dtype}"
    if ".as_strided" in rest:
        return
    if value.dtype.is_floating_point:
        yield f"torch.ones({shape}{kind}){rest}"
        yield f"torch.randn({shape}{kind}){rest}"
        yield f"torch.rand({shape}{kind}){rest}"
    elif value.dtype is torch.bool:
        yield f"torch.ones({shape}, dtype=torch.bool){rest}"
        yield f"(torch.randn({shape}) > 0){rest}"
    elif not value.dtype.is_complex:
        yield f"torch.zeros({shape}, dtype={value.dtype}){rest}"
        yield f"torch.arange({value.numel()}, dtype={value.dtype}).reshape({_shape(value)}){rest}"
