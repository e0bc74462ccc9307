"""Follow one first call, one second call and one training step through the tree: ``python -m tools.hops``.

A hop is a call from one folder of the compiler into another, listed once, in the order in which it first happens. What C
does (guards, launch of kernels) is not seen: a second call has few hops because it hardly is in Python. The tool uses only
public names, so that it runs in older trees as well (copy it there).
"""

import pathlib
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

import argand

ROOT = str(pathlib.Path(argand.__file__).parent) + "/"


def program(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """A layer with its activation."""
    return torch.nn.functional.gelu(x @ weight).mean(-1)


def hops(run: Callable[[], Any]) -> list[str]:
    """The calls between folders while something runs, each once."""
    found: dict[str, None] = {}

    def place(frame: FrameType | None) -> str:
        name = frame.f_code.co_filename if frame is not None else ""
        return name.removeprefix(ROOT) if name.startswith(ROOT) else ""

    def watch(frame: FrameType, event: str, _: object) -> None:
        here, function = place(frame), frame.f_code.co_name
        if (
            event != "call"
            or not here
            or function.startswith(("<", "__"))
            or frame.f_code.co_name[0] == "_"
        ):
            return
        before = frame.f_back
        while before is not None and not place(before):
            before = before.f_back
        if (
            pathlib.PurePath(place(before)).parent != pathlib.PurePath(here).parent
            or before is None
        ):
            found[f"{here.removesuffix('.py')}: {frame.f_code.co_qualname}"] = None

    sys.setprofile(watch)
    try:
        run()
    finally:
        sys.setprofile(None)
    return list(found)


def main() -> None:
    """Print the three lists."""
    compiled = argand.compile(program, options={"cache": False})
    plain = (torch.randn(8, 32), torch.randn(32, 16))
    trained = (torch.randn(8, 32), torch.randn(32, 16, requires_grad=True))
    steps: dict[str, Callable[[], Any]] = {
        "first call": lambda: compiled(*plain),
        "second call": lambda: compiled(*plain),
        "training step, first": lambda: compiled(*trained).sum().backward(),
        "training step, second": lambda: compiled(*trained).sum().backward(),
    }
    for name, step in steps.items():
        found = hops(step)
        print(
            f"\n{name}: {len(found)} hops, {len({hop.rpartition('/')[0] for hop in found})} folders"
        )
        print("\n".join(f"  {hop}" for hop in found))


if __name__ == "__main__":
    main()
