"""bisect.suspects: which stage and which part of the compiler a failure needs, found by switching parts off.

In: a test (does it still fail with these options?). Out: a `Culprit`. First the stage, by the switches that leave out everything
from a stage on; then, within it, the rows of a table in order: the first part without which nothing fails is guilty. What a
kernel computes is narrowed to the smallest set of nodes of the aten graph that must be compiled for the failure to stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, final

from argand.bisect.smallest import smallest
from argand.native.passes.simplify import RULES
from argand.native.passes.table import PASSES

FailsWith = Callable[[Mapping[str, Any]], bool]  # with these options

PROGRAM: Final = "program"  # not ours: it fails without Argand
CAPTURE: Final = "capture"
AUTOGRAD: Final = "autograd"
PASS: Final = "pass"
FUSION: Final = "fusion"
KERNEL: Final = "kernel"
NATIVE: Final = "native"  # one of pass, fusion, kernel: not known yet


@final
class Culprit(NamedTuple):
    """A part of the compiler that a failure needs."""

    stage: str
    part: str  # what to switch off, or "" where there is no switch
    says: str
    options: Mapping[str, Any] = {}  # with these it does not fail
    nodes: tuple[str, ...] = ()  # of the aten graph: all others may be torch's


def off(*parts: str) -> dict[str, Any]:
    """Options that switch parts off."""
    return {"off": " ".join(parts)} if parts else {}


def find_stage(fails: FailsWith) -> str:
    """The first stage with which it fails: everything from the next one on is left out."""
    for part, stage in (("capture", PROGRAM), ("autograd", CAPTURE), ("native", AUTOGRAD)):
        if fails(off(part)):
            return stage
    return NATIVE


def find_part(
    stage: str, fails: FailsWith, decomposed: Sequence[str] = (), lowered: Sequence[str] = ()
) -> Culprit:
    """The part of a stage; ``decomposed`` ops and ``lowered`` nodes ("name op") are those of the program."""
    if stage == CAPTURE:
        return _of_capture(fails)
    if stage == AUTOGRAD:
        return _of_autograd(fails, decomposed)
    if stage == NATIVE:
        return _of_passes(fails) or _of_kernels(fails, lowered)
    return Culprit(stage, "", "it fails without Argand as well")


def _of_capture(fails: FailsWith) -> Culprit:
    if not fails(off("entries")):
        says = "guards: a compiled entry is used where it does not fit"
        return Culprit(CAPTURE, "entries", says, off("entries"))
    return Culprit(
        CAPTURE, "", "what capture writes: the graph, its results, or side effects after it"
    )


def _of_autograd(fails: FailsWith, decomposed: Sequence[str]) -> Culprit:
    if not fails(off("partition")):
        says = "what is kept for the backward pass and what is computed again in it"
        return Culprit(AUTOGRAD, "partition", says, off("partition"))
    if not fails(off("decomposition")):
        return _of_decompositions(fails, decomposed)
    return Culprit(
        AUTOGRAD, "", "the trace of forward and backward, or the glue around the compiled graphs"
    )


def _of_decompositions(fails: FailsWith, decomposed: Sequence[str]) -> Culprit:
    """The fewest ops that have to stay whole."""
    parts = [f"decomposition.{op}" for op in decomposed]
    if not parts or fails(off(*parts)):
        return Culprit(AUTOGRAD, "decomposition", "a decomposition", off("decomposition"))
    needed = smallest(parts, lambda some: not fails(off(*some)))
    says = f"the decomposition of {', '.join(part.partition('.')[2] for part in needed)}"
    return Culprit(AUTOGRAD, " ".join(needed), says, off(*needed))


# Parts of the native compiler that can be left out whole, with the stage a failure without them belongs to.
_WHOLE: Final = (
    *((f"pass.{row.name}", PASS, f"the pass {row.name}") for row in PASSES if row.optional),
    ("reuse", PASS, "the memory plan: two values in the same memory"),
    ("writes", PASS, "writes of inputs in place"),
    ("convolutions", KERNEL, "kernels of convolutions, and what is fused into them"),
)


def _of_passes(fails: FailsWith) -> Culprit | None:
    """A rule, a pass, or another part that can be left out as a whole."""
    if not fails(off("pass.simplify")):
        rules = [f"rule.{row.name}" for row in RULES]
        if not fails(off(*rules)):
            needed = smallest(rules, lambda some: not fails(off(*some)))
            names = ", ".join(part.removeprefix("rule.") for part in needed)
            return Culprit(
                PASS,
                " ".join(needed),
                f"the rule {names} of native/passes/simplify.py",
                off(*needed),
            )
    for part, stage, says in _WHOLE:
        if not fails(off(part)):
            return Culprit(stage, part, says, off(part))
    return None


def _of_kernels(fails: FailsWith, lowered: Sequence[str]) -> Culprit:
    """The smallest set of nodes in compiled kernels; fusion is guilty when one kernel for each is right."""
    nodes = smallest(lowered, lambda some: fails(_all_but(lowered, some))) if lowered else []
    named = ", ".join(nodes)
    if not fails({"fusion": False}):
        return Culprit(
            FUSION,
            "fusion",
            f"fusion of {named or 'some operations'}",
            {"fusion": False},
            tuple(nodes),
        )
    operators = dict.fromkeys(f"lowering.{node.split()[1]}" for node in nodes)
    part = " ".join(operators)
    cure = off(*operators)
    if not operators or fails(cure):
        part, cure = "", {}
    if not fails({"opt_level": 0}):
        return Culprit(
            KERNEL,
            part,
            f"LLVM's optimiser at the kernel of {named}",
            {"opt_level": 0},
            tuple(nodes),
        )
    says = (
        f"the lowering or the machine code of {named}"
        if named
        else "a kernel, or the code that launches it"
    )
    return Culprit(KERNEL, part, says, cure, tuple(nodes))


def _all_but(lowered: Sequence[str], kept: Sequence[str]) -> dict[str, Any]:
    return off(*(f"node.{node.split()[0]}" for node in lowered if node not in kept))
