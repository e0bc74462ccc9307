"""benchmarks.phases: start the children of each phase. In: settings. Out: rows, one per number."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.child import FRONT, OVERHEAD
from benchmarks.engines import WHOLE
from benchmarks.figures import ratio, spread
from benchmarks.models import Case

ROOT = Path(__file__).resolve().parent.parent
PHASES = ("cold", "warm", "steady", "overhead", *FRONT)
Row = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """What to measure."""

    cases: tuple[Case, ...]
    modes: tuple[str, ...]
    engines: tuple[str, ...]
    phases: tuple[str, ...] = PHASES
    rounds: int = 15
    cold_rounds: int = 1
    round_seconds: float = 0.05
    limit: float = 900.0
    threads: int = 0
    clock: str = "wall"

    def base(self, phase: str) -> str:
        """Whom the others are compared with: eager when running, torch.compile when compiling."""
        return "eager" if phase == "steady" or "torch" not in self.engines else "torch"


def ask(request: Row, settings: Settings, caches: Path) -> Row:
    """Run one request in a fresh process whose compilers keep their caches under ``caches``."""
    environment = os.environ | {
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
        "TRITON_CACHE_DIR": str(caches / "triton"),
        "XDG_CACHE_HOME": str(caches / "xdg"),
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, "-m", "benchmarks.child"]
    request = request | {"threads": settings.threads}
    try:
        done = subprocess.run(
            [*command, json.dumps(request)],
            env=environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=settings.limit,
        )
    except subprocess.TimeoutExpired:
        return {"status": "timeout", "detail": f"over {settings.limit:.0f} s"}
    try:
        return json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        tail = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        return {"status": "crash", "detail": tail[0][:300]}


def finish(phase: str, name: str, mode: str, base: str, answers: dict[str, Row]) -> Iterator[Row]:
    """Rows of one program in one phase: times with spread, ratios against the base."""
    reference = answers.get(base, {}).get("seconds")
    for engine, answer in answers.items():
        row: Row = {"phase": phase, "case": name, "mode": mode, "engine": engine, "base": base}
        row |= {key: value for key, value in answer.items() if key != "seconds"}
        samples = answer.get("seconds")
        if samples:
            row |= {"samples": samples, "seconds": spread(samples).middle}
            compiles = engine != "eager" or phase == "steady"  # eager has nothing to start
            if reference and compiles:
                relative = ratio(reference, samples)
                row |= {
                    "ratio": relative.middle,
                    "ratio_low": relative.low,
                    "ratio_high": relative.high,
                }
        yield row


def merge(answers: list[Row]) -> Row:
    """One answer of several runs: all samples, the largest memory, the first failure."""
    for answer in answers:
        if answer["status"] != "ok":
            return answer
    merged = dict(answers[0])
    merged["seconds"] = [s for answer in answers for s in answer["seconds"]]
    for key in {"compile_mb", "run_mb"} & merged.keys():
        merged[key] = max(answer[key] for answer in answers)
    return merged


def measure_starts(settings: Settings, case: Case, mode: str) -> Iterator[Row]:
    """Cold and warm starts; the cold run fills the cache that the warm run finds."""
    cold: dict[str, list[Row]] = {engine: [] for engine in settings.engines}
    warm: dict[str, list[Row]] = {engine: [] for engine in settings.engines}
    for _ in range(settings.cold_rounds):
        for engine in settings.engines:
            request = {"action": "first", "case_name": case.name, "mode": mode, "engine": engine}
            with tempfile.TemporaryDirectory() as caches:
                cold[engine].append(ask(request, settings, Path(caches)))
                if "warm" in settings.phases and cold[engine][-1]["status"] == "ok":
                    warm[engine].append(ask(request, settings, Path(caches)))
    for phase, runs in (("cold", cold), ("warm", warm)):
        if phase in settings.phases:
            answers = {engine: merge(found) for engine, found in runs.items() if found}
            yield from finish(phase, case.name, mode, settings.base(phase), answers)


def measure_together(settings: Settings, request: Row, phase: str) -> Iterator[Row]:
    """Steady state or overhead: all engines in one process, taking turns."""
    engines = [e for e in settings.engines if phase == "steady" or e not in WHOLE]
    common = {"engines": engines, "rounds": settings.rounds, "seconds": settings.round_seconds}
    common["clock"] = settings.clock
    with tempfile.TemporaryDirectory() as caches:
        answer = ask(request | common | {"action": phase}, settings, Path(caches))
    if "status" in answer:  # the process itself failed
        answer = dict.fromkeys(engines, answer)
    name = request.get("case_name") or request["program"]
    yield from finish(phase, name, request.get("mode", "infer"), settings.base(phase), answer)


def measure_front(settings: Settings, phase: str) -> Iterator[Row]:
    """Capture or joint trace of a 12-layer encoder, each time in a fresh process."""
    runs: dict[str, list[Row]] = {e: [] for e in settings.engines if e not in WHOLE}
    name = "bert_12_layers"
    for _ in range(settings.cold_rounds):
        for engine, found in runs.items():
            request = {"action": "front", "program": name, "engine": engine, "phase": phase}
            with tempfile.TemporaryDirectory() as caches:
                found.append(ask(request, settings, Path(caches)))
    answers = {engine: merge(found) for engine, found in runs.items()}
    yield from finish(phase, name, FRONT[phase][1], settings.base(phase), answers)


def measure(settings: Settings) -> Iterator[Row]:
    """All rows of a run, as they come."""
    for case in settings.cases:
        for mode in (mode for mode in settings.modes if mode in case.modes):
            if "cold" in settings.phases or "warm" in settings.phases:
                yield from measure_starts(settings, case, mode)
            if "steady" in settings.phases:
                request = {"case_name": case.name, "mode": mode}
                yield from measure_together(settings, request, "steady")
    if "overhead" in settings.phases:
        for program in OVERHEAD:
            yield from measure_together(settings, {"program": program}, "overhead")
    for phase in FRONT:
        if phase in settings.phases:
            yield from measure_front(settings, phase)
