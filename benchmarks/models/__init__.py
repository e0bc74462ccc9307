"""benchmarks.models: the programs we measure, in plain PyTorch, as real libraries write them.

A ``Case`` is a name and a recipe; nothing is built before it is asked for. ``CASES`` is the table.
"""

from __future__ import annotations

from benchmarks.models import convolutional, micro, recurrent, small, transformers, vision
from benchmarks.models.case import Case, Program

CASES: dict[str, Case] = {
    case.name: case
    for module in (small, transformers, convolutional, vision, recurrent, micro)
    for case in module.CASES
}

# The six of the design's table: what `--models main` means.
MAIN = ("norm_gelu", "mlp", "bert", "gpt2", "llama", "resnet18")
MODELS = tuple(name for name, case in CASES.items() if case.group == "model")
MICRO = tuple(name for name, case in CASES.items() if case.group == "micro")
GROUPS = {"main": MAIN, "models": MODELS, "micro": MICRO, "all": tuple(CASES)}


def select(text: str) -> list[Case]:
    """The cases named in a comma-separated list of names and groups; raises KeyError with the list."""
    chosen: dict[str, Case] = {}
    for name in (part.strip() for part in text.split(",") if part.strip()):
        if name not in GROUPS and name not in CASES:
            known = ", ".join([*GROUPS, *CASES])
            raise KeyError(f"no model {name!r}; groups and models: {known}")
        chosen |= {member: CASES[member] for member in GROUPS.get(name, (name,))}
    return list(chosen.values())


__all__ = ["CASES", "GROUPS", "Case", "Program", "select"]
