"""benchmarks.engines: the contenders. In: a function or module. Out: what the user would call.

Each engine is imported when it is first used, so that its import is part of its cold start and a
missing engine is reported, not a crash.
"""

from __future__ import annotations

import importlib.util
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

Backend = Callable[..., Any]
Compile = Callable[..., Callable[..., Any]]


class NotAvailable(Exception):
    """The engine cannot be used here; says why."""


def argand_compile() -> Compile:
    """``argand.compile``, or NotAvailable."""
    try:
        import argand

        return argand.compile
    except (ImportError, AttributeError) as error:
        raise NotAvailable(f"argand.compile is not there yet: {error}") from error


def eager(target: Callable[..., Any], **_: Any) -> Callable[..., Any]:
    """The program itself."""
    return target


def torch_compile(target: Callable[..., Any], **arguments: Any) -> Callable[..., Any]:
    """torch.compile with its defaults."""
    import torch

    return torch.compile(target, **arguments)


def argand(target: Callable[..., Any], **arguments: Any) -> Callable[..., Any]:
    """argand.compile with its defaults."""
    return argand_compile()(target, **arguments)


def onnxruntime(target: Callable[..., Any], **arguments: Any) -> Callable[..., Any]:
    """ONNX Runtime with its defaults: exported at the first call, as a user of it has to. Inference only."""
    if importlib.util.find_spec("onnxruntime") is None:
        raise NotAvailable("onnxruntime is not installed")
    if arguments:
        raise NotAvailable(f"ONNX Runtime takes no {', '.join(arguments)}")
    session: Any = None

    def call(*args: Any) -> Any:
        import torch

        nonlocal session
        if torch.is_grad_enabled():
            raise NotAvailable("ONNX Runtime runs inference only")
        if session is None:
            session = _session(target, args)
        feed = {
            entry.name: arg.numpy() for entry, arg in zip(session.get_inputs(), args, strict=True)
        }
        return torch.from_numpy(session.run(None, feed)[0])

    return call


def _session(target: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    import onnxruntime as runtime
    import torch

    class Program(torch.nn.Module):
        """What is exported must be a module."""

        def __init__(self) -> None:
            super().__init__()
            self.target = target

        def forward(self, *given: Any) -> Any:
            return self.target(*given)

    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.onnx")
        torch.onnx.export(Program().eval(), args, path, dynamo=False, opset_version=18)
        return runtime.InferenceSession(path, providers=["CPUExecutionProvider"])


def slowed(factor: int) -> Compile:
    """Eager made slower by a known factor: it does everything so many times.

    Waiting would be simpler, but a wait on a busy machine takes longer than it was told to.
    """

    def compile_(target: Callable[..., Any], **_: Any) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            for _ in range(factor - 1):
                target(*args)
            return target(*args)

        return call

    return compile_


ENGINES: dict[str, Compile] = {
    "eager": eager,
    "torch": torch_compile,
    "onnxruntime": onnxruntime,
    "argand": argand,
}
# Those without a front half that takes a backend: nothing but whole programs is measured of them.
WHOLE = ("eager", "onnxruntime")


def find(name: str) -> Compile:
    """An engine by name; ``slowed:2`` is eager at half its speed, for the self-test."""
    match = re.fullmatch(r"slowed:([1-9]\d*)", name)
    if match:
        return slowed(int(match[1]))
    if name not in ENGINES:
        raise KeyError(f"no engine {name!r}; engines: {', '.join(ENGINES)}")
    return ENGINES[name]
