"""Print what every stage makes of a fixed corpus, so that two trees can be compared as text.

``python -m tools.replay OUT`` compiles the corpus and writes one file per program and stage into OUT;
``python -m tools.replay --compare OLD NEW`` lists the programs and stages that differ, with a diff of
each. A refactoring leaves everything equal; a change of behaviour is shown as a text diff. The tool
uses only public names and ``support.events``, so that it runs in older trees as well (copy it there).
"""

import argparse
import difflib
import itertools
import pathlib
import random
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

STAGES = (
    "graph_code",
    "guards",
    "bytecode",
    "aot_joint_graph",
    "aot_graphs",
    "ir",
    "fusion",
    "schedule",
    "output_code",
)
MODELS = (
    "norm_gelu",
    "mlp",
    "bert",
    "gpt2",
    "llama",
    "resnet18",
    "t5",
    "mobilenet_v2",
    "convnext",
    "unet",
    "vit",
    "lstm",
)
ADDRESS = re.compile(r"(?<=\bat )0x[0-9a-f]{6,}|(?<=Const\()\d{6,}")
PATH = re.compile(r"(?:/[\w.+-]+){2,}(?=/(?:src|tests|benchmarks|torch|lib)/)")
MOST_LINES = 30  # of one printed diff


class Entry(NamedTuple):
    """One program of the corpus: its name, and what runs it compiled."""

    name: str
    run: Callable[[], Any]


def everyday() -> Iterator[Entry]:
    """The everyday programs of the tests, at two batch sizes, the second of which opens sizes."""
    import argand  # noqa: PLC0415 - the tool must be importable where the compiler is broken
    from tests.capture.test_everyday import CASES  # noqa: PLC0415 - as above

    for name, function in CASES.items():
        compiled = argand.compile(function, options={"cache": False})

        def run(compiled: Callable[..., Any] = compiled) -> None:
            for rows, train in itertools.product((4, 5), (False, True)):
                torch.manual_seed(0)
                compiled(torch.randn(rows, 6, requires_grad=train))

        yield Entry(f"everyday_{name}", run)


def models() -> Iterator[Entry]:
    """The models of the benchmarks, in inference and in one training step."""
    import argand  # noqa: PLC0415 - as above
    from benchmarks.models import CASES  # noqa: PLC0415 - as above

    for name, mode in itertools.product(MODELS, ("infer", "train")):
        case = CASES[name]
        if mode not in case.modes:
            continue

        def run(case: Any = case, mode: str = mode) -> None:
            program = case.program(mode)
            program.run(argand.compile(program.target, options={"cache": False}))

        yield Entry(f"{name}_{mode}", run)


def normalized(text: str) -> str:
    """Without what differs from process to process: addresses and the place of the tree."""
    return ADDRESS.sub("...", PATH.sub("", text)).rstrip() + "\n"


def write(folder: pathlib.Path, entries: Iterator[Entry]) -> int:
    """Compile every entry; one file per stage that said something. The number of files."""
    from argand.support import events  # noqa: PLC0415 - as above

    written = 0
    folder.mkdir(parents=True, exist_ok=True)
    for entry in entries:
        for seed in (torch.manual_seed, random.seed, np.random.seed):
            seed(0)
        with events.collect() as heard, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                entry.run()
            except (
                Exception
            ) as error:  # a program that raises in eager too: what was said until then counts
                (folder / f"{entry.name}.raised.txt").write_text(normalized(repr(error)))
            for stage in STAGES:
                texts = heard.texts(stage)
                if texts:
                    (folder / f"{entry.name}.{stage}.txt").write_text(
                        normalized("\n----\n".join(texts))
                    )
                    written += 1
    return written


def compare(old: pathlib.Path, new: pathlib.Path) -> int:
    """Print what differs; 1 when anything does."""
    names = sorted({path.name for folder in (old, new) for path in folder.glob("*.txt")})
    differing = 0
    for name in names:
        sides = [
            (folder / name).read_text() if (folder / name).exists() else "" for folder in (old, new)
        ]
        if sides[0] == sides[1]:
            continue
        differing += 1
        lines = list(
            difflib.unified_diff(
                *(side.splitlines() for side in sides), "old", "new", n=1, lineterm=""
            )
        )
        print(f"== {name}: {len(lines)} lines of difference")
        print("\n".join(lines[:MOST_LINES]))
    print(f"replay: {len(names)} texts, {differing} differ")
    return 1 if differing else 0


def main() -> int:
    """Write or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--only", default="", help="part of the names of the programs wanted")
    chosen = parser.parse_args()
    if chosen.compare:
        return compare(*chosen.folders)
    entries = (
        entry for entry in itertools.chain(everyday(), models()) if chosen.only in entry.name
    )
    print(f"replay: {write(chosen.folders[0], entries)} texts")
    return 0


if __name__ == "__main__":
    sys.exit(main())
