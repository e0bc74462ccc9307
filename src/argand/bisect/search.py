"""bisect.search: from a script that fails to the guilty part and a minimal script.

In: a script. Out: `Bisected`. The steps: does it fail, and how; in which stage; the graph that fails, taken
out of the program and made smaller (or the script made shorter, where no graph shows it); which part of the stage; the text
of a program of its own, and a run of that in a fresh interpreter. Every test is a program in a child process.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, final

import torch

import argand
from argand.bisect.case import GraphCase, read_case, write_case
from argand.bisect.shrink import shrunk
from argand.bisect.source import refusal, shrunk_source
from argand.bisect.suspects import CAPTURE, PROGRAM, Culprit, find_part, find_stage
from argand.bisect.symptom import Symptom, symptom_of
from argand.bisect.text import FEW, function_text, literal, script_text, simpler_forms
from argand.ops.decompositions import decompositions
from argand.report.trials import (
    CRASHES,
    DIFFERS,
    EXITS,
    HANGS,
    RAISES,
    SLOW,
    ChildProgram,
    Script,
    Trial,
    run_trial,
)
from argand.support import events

Say = Callable[[str], None]
_OPTIONS: Final[Mapping[str, Any]] = {"verify": "results", "strict": True}  # of the minimal script


@final
class Bisected(NamedTuple):
    """What was found."""

    symptom: Symptom | None  # None: nothing fails
    text: str = ""  # of the first failure
    where: str = ""  # the user's line
    culprit: Culprit | None = None
    kernels: tuple[str, ...] = ()  # of the minimal script
    script: str = ""  # its path
    lines: int = 0  # of the minimal script
    nodes: int = 0  # operations in it
    fails_alone: bool = False  # in a fresh interpreter
    trials: int = 0
    seconds: float = 0.0
    notes: tuple[str, ...] = ()


@final
class _GraphRun(NamedTuple):
    """A case as something to run: its inputs are in memory, whatever their size."""

    case: GraphCase
    options: Mapping[str, Any]

    def run(self) -> None:
        """Compile it and call it."""
        body, imports = function_text(self.case.graph)
        names: dict[str, Any] = {"torch": torch}
        exec(compile("\n".join([*imports, body]), "<case>", "exec"), names)
        torch.set_grad_enabled(self.case.grad)
        compiled = argand.compile(
            names["program"], dynamic=self.case.dynamic or None, options=dict(self.options)
        )
        for inputs in self.case.calls:
            compiled(*inputs)


@final
class Laboratory:
    """Runs tests, counts them, and stops when there is no time left: then nothing fails any more."""

    def __init__(self, seconds: float, say: Say, *, slow: bool, longest: float = 120.0) -> None:
        self.begin, self.limit, self.longest = time.monotonic(), seconds, longest
        self.say, self.trials = say, 0
        self.base: dict[str, Any] = {"verify": "times" if slow else "report"}
        self.threads = torch.get_num_threads()
        torch.set_num_threads(1)  # nothing here may start threads: children are forks

    @property
    def has_time(self) -> bool:
        """Whether tests are still run."""
        return time.monotonic() - self.begin < self.limit

    def run(
        self,
        program: ChildProgram,
        options: Mapping[str, Any] = {},
        before: Callable[[], Any] | None = None,
    ) -> Trial:
        """One test."""
        self.trials += 1

        def prepare() -> None:
            torch.set_num_threads(self.threads)
            if before is not None:
                before()

        return run_trial(program, self.base | dict(options), before=prepare, longest=self.longest)

    def fails(
        self, program: ChildProgram, symptom: Symptom, options: Mapping[str, Any] = {}
    ) -> bool:
        """Whether a program fails in this way."""
        return self.has_time and symptom_of(self.run(program, options)) == symptom


class _Keeper:
    """A subscriber in a child that keeps the graph which fails in a folder."""

    def __init__(self, folder: Path, moments: Sequence[str]) -> None:
        self.folder, self.moments, self.done = folder, moments, False

    def __call__(self, event: events.Event) -> None:
        """Keep the last graph of these moments; the first one that differs is the last that counts."""
        if self.done or not isinstance(event, events.Record) or event.name != "program":
            return
        offered = event.make()
        if offered["moment"] in self.moments:
            kept = write_case(
                self.folder,
                offered["graph"],
                offered["calls"],
                grad=offered["grad"],
                dynamic=offered["dynamic"],
            )
            self.done = kept and offered["moment"] == "differs"


def bisect(
    script: Script, output: Path, *, slow: bool = False, seconds: float = 600.0, say: Say = print
) -> Bisected:
    """Find the guilty part for a script, and write a minimal script to ``output``."""
    lab = Laboratory(seconds, say, slow=slow)
    first = _reproduce(lab, script)
    symptom = symptom_of(first)
    if symptom is None:
        note = "" if first.counts.get("verify.calls") else "nothing was compiled"
        return _end(lab, Bisected(None, notes=(note,) if note else ()))
    say(f"{symptom.words}: {first.text}")
    stage = find_stage(lambda options: lab.fails(script, symptom, options))
    say(f"stage: {stage}")
    found = Bisected(symptom, first.text, first.where)
    if stage == PROGRAM:
        return _end(lab, found._replace(culprit=find_part(PROGRAM, lambda _: True)))
    case = None if stage == CAPTURE else _take_graph(lab, script, symptom)
    if case is None:
        return _end(lab, _by_source(lab, script, symptom, stage, found, output))
    return _end(lab, _by_graph(lab, case, symptom, stage, found, output))


def _end(lab: Laboratory, found: Bisected) -> Bisected:
    torch.set_num_threads(lab.threads)
    return found._replace(trials=lab.trials, seconds=time.monotonic() - lab.begin)


def _reproduce(lab: Laboratory, script: Script) -> Trial:
    """A run that fails, if one does: at first as it is, then without falling back to eager."""
    trial = lab.run(script)
    if trial.is_good and lab.base["verify"] != "times":
        strict = lab.run(script, {"strict": True})
        if not strict.is_good:
            lab.base = lab.base | {"strict": True}
            return strict
    return trial


def _take_graph(lab: Laboratory, script: Script, symptom: Symptom) -> GraphCase | None:
    """The graph that fails, if it does so alone."""
    moments = (
        ("differs",) if symptom.kind in (DIFFERS, SLOW) else ("compiling", "calling", "differs")
    )
    with tempfile.TemporaryDirectory() as folder:
        lab.run(script, before=lambda: events.subscribe(_Keeper(Path(folder), moments)))
        case = read_case(Path(folder))
    if case is None:
        lab.say("the graph that fails cannot be taken out of the program")
        return None
    if not lab.fails(_GraphRun(case, lab.base), symptom):
        lab.say("the graph does not fail alone")
        return None
    lab.say(f"a graph of {len(case.nodes)} operations fails alone")
    return case


def _by_graph(
    lab: Laboratory, case: GraphCase, symptom: Symptom, stage: str, found: Bisected, output: Path
) -> Bisected:
    """Shrink the graph, blame a part, write it down."""
    small = shrunk(case, lambda smaller: lab.fails(_GraphRun(smaller, lab.base), symptom))
    lab.say(f"{len(small.nodes)} operations are left")
    program = _GraphRun(small, lab.base)
    last = lab.run(program)
    culprit = find_part(
        stage,
        lambda options: lab.fails(program, symptom, options),
        _decomposed(lab, program),
        last.lowered,
    )
    said = f"{symptom.words}: {culprit.says}. Made by argand bisect."
    text = _simplest_text(lab, small, symptom, said, output)
    output.write_text(text)
    alone = _fails_alone(output, symptom)
    return found._replace(
        culprit=culprit,
        kernels=last.kernels,
        script=str(output),
        lines=len(text.splitlines()),
        nodes=len(small.nodes),
        fails_alone=alone,
        notes=() if alone else ("the minimal script does not fail in a fresh process",),
    )


def _decomposed(lab: Laboratory, program: ChildProgram) -> list[str]:
    """Ops of a program with a decomposition: those that are in its aten graphs when ops stay whole."""
    known = {str(op) for op in decompositions()}
    whole = lab.run(program, {"off": "decomposition"})
    names = dict.fromkeys([*(row.split()[1] for row in whole.lowered), *whole.kernels])
    return [name for name in names if name in known]


def _simplest_text(
    lab: Laboratory, case: GraphCase, symptom: Symptom, said: str, output: Path
) -> str:
    """The text of the script: inputs are made by the simplest expressions with which it still fails."""
    texts = [
        [
            literal(value, output.with_name(f"{output.stem}-{n}-{k}.bin"))
            for k, value in enumerate(call)
        ]
        for n, call in enumerate(case.calls)
    ]

    def fails() -> bool:
        text = script_text(case, texts, symptom.kind, said, _OPTIONS)
        return lab.fails(Script(str(output), (), text), symptom)

    for call, row in zip(case.calls, texts, strict=True):
        for place, value in enumerate(call):
            for form in simpler_forms(value):
                if isinstance(value, torch.Tensor) and value.numel() <= 1 < FEW and "randn" in form:
                    break
                before, row[place] = row[place], form
                if fails():
                    break
                row[place] = before
    return script_text(case, texts, symptom.kind, said, _OPTIONS)


def _by_source(
    lab: Laboratory, script: Script, symptom: Symptom, stage: str, found: Bisected, output: Path
) -> Bisected:
    """Shorten the script itself."""
    text = "" if script.is_module else Path(script.path).read_text()
    reason = "it is a module of a package" if script.is_module else refusal(text)
    notes: tuple[str, ...] = ()
    if reason:
        notes = (f"the script was not shortened: {reason}",)
    else:
        text = shrunk_source(
            text, lambda shorter: lab.fails(Script(script.path, script.arguments, shorter), symptom)
        )
    short = Script(script.path, script.arguments, text)
    trial = lab.run(short)
    culprit = find_part(
        stage,
        lambda options: lab.fails(short, symptom, options),
        _decomposed(lab, short),
        trial.lowered,
    )
    if reason:
        return found._replace(culprit=culprit, kernels=trial.kernels, notes=notes)
    output.write_text(
        _with_options(text, f"{symptom.words}: {culprit.says}. Made by argand bisect.", symptom)
    )
    alone = _fails_alone(output, symptom)
    return found._replace(
        culprit=culprit,
        kernels=trial.kernels,
        script=str(output),
        lines=len(text.splitlines()),
        fails_alone=alone,
    )


def _with_options(text: str, said: str, symptom: Symptom) -> str:
    """A script whose compiles are verified, whatever options they name."""
    verify = "times" if symptom.kind == SLOW else "results"
    head = f'"""{said}"""\n\nimport os\n\nos.environ["ARGAND_OPTIONS"] = "verify={verify},strict=1"\n\n'
    return head + text


def _fails_alone(output: Path, symptom: Symptom) -> bool:
    """Whether the script fails in an interpreter of its own."""
    words = [sys.executable, output.name]
    try:
        ended = subprocess.run(
            words, cwd=output.resolve().parent, capture_output=True, timeout=300, check=False
        )
    except subprocess.TimeoutExpired:
        return symptom.kind == HANGS
    if symptom.kind == CRASHES:
        return ended.returncode < 0
    if symptom.kind == RAISES:
        return symptom.what.partition(":")[0].encode() in ended.stderr
    if symptom.kind == EXITS:
        return symptom.what == f"exit code {ended.returncode}"
    return ended.returncode == 1 and (symptom.kind == SLOW or b"ResultsDiffer" in ended.stderr)
