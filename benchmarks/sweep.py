"""benchmarks.sweep: run many tasks, each in a forked child with a time limit, and keep the results.

In: task names and a function from a name to a dictionary. Out: one JSON line per task in a file; a
task already in the file is not run again, so a sweep that was stopped goes on where it was.

The parent imports what the children need and must not have run a parallel region: forked children
cannot use an OpenMP pool that the parent started.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Work = Callable[[str], Row]


def one_line(error: BaseException, limit: int = 300) -> str:
    """Type and first telling line of an error, for a table."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {' | '.join(lines[:3])}"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def where(error: BaseException) -> str:
    """The innermost frames of an error: file:line function, outermost first."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    return " > ".join(f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in frames)


@dataclass
class _Child:
    task: str
    pid: int
    pipe: int
    started: float
    text: bytearray = field(default_factory=bytearray)


def _serve(task: str, work: Work, pipe: int, log: Path) -> None:
    """In the child: run one task, write its row to the pipe, leave without cleaning up."""
    os.setsid()  # so that the time limit can end the task's own children too
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    try:
        row = work(task)
    except BaseException as error:
        traceback.print_exc()
        row = {"status": "error", "cause": one_line(error), "where": where(error)}
    data = json.dumps(row).encode()
    while data:
        data = data[os.write(pipe, data) :]
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _start(task: str, work: Work, logs: Path) -> _Child:
    read_end, write_end = os.pipe()
    log = logs / f"{task.replace('/', '_').replace(':', '_')}.log"
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        _serve(task, work, write_end, log)
    os.close(write_end)
    return _Child(task, pid, read_end, time.monotonic())


def _finish(child: _Child, *, timed_out: bool) -> Row:
    """Wait for a child that closed its pipe or must be ended; its row."""
    if timed_out:
        os.killpg(child.pid, signal.SIGKILL)
    os.close(child.pipe)
    _, status = os.waitpid(child.pid, 0)
    seconds = round(time.monotonic() - child.started, 2)
    head: Row = {"task": child.task}
    if timed_out:
        return head | {"status": "timeout", "cause": f"over {seconds} s", "seconds": seconds}
    try:
        return head | json.loads(child.text.decode()) | {"seconds": seconds}
    except ValueError:
        code = os.waitstatus_to_exitcode(status)
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return head | {"status": "crash", "cause": name, "seconds": seconds}


def read_rows(path: Path) -> list[Row]:
    """The rows of an earlier run; a line cut off in the middle is left out."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


@dataclass
class Sweep:
    """Settings of a sweep."""

    path: Path
    limit: float = 120.0
    jobs: int = 1
    fresh: bool = False
    show: Callable[[Row], str] = lambda row: str(row.get("cause", ""))

    def forget(self, tasks: Iterable[str]) -> None:
        """Drop the rows of these tasks from the file."""
        gone = set(tasks)
        kept = [row for row in read_rows(self.path) if row["task"] not in gone]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text("".join(json.dumps(row) + "\n" for row in kept))

    def run(self, tasks: Iterable[str], work: Work) -> list[Row]:
        """Run what is not in the file yet; the rows of all tasks."""
        wanted = list(tasks)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.fresh:
            self.path.unlink(missing_ok=True)
        done = {row["task"]: row for row in read_rows(self.path)}
        waiting = [task for task in wanted if task not in done]
        if len(waiting) < len(wanted):
            print(f"{len(wanted) - len(waiting)} of {len(wanted)} are in {self.path} already")
        logs = self.path.with_suffix(".logs")
        logs.mkdir(exist_ok=True)
        running: list[_Child] = []
        total, finished = len(waiting), 0
        with self.path.open("a") as file:
            while waiting or running:
                while waiting and len(running) < self.jobs:
                    running.append(_start(waiting.pop(0), work, logs))
                for row in self._poll(running):
                    done[row["task"]] = row
                    finished += 1
                    file.write(json.dumps(row) + "\n")
                    file.flush()
                    self._progress(finished, total, row)
        return [done[task] for task in wanted]

    def _poll(self, running: list[_Child]) -> list[Row]:
        """Read what the children wrote; the rows of those that ended."""
        rows = []
        ready, _, _ = select.select([child.pipe for child in running], [], [], 0.5)
        for child in list(running):
            late = time.monotonic() - child.started > self.limit
            ended = False
            if child.pipe in ready:
                data = os.read(child.pipe, 1 << 16)
                child.text += data
                ended = not data
            if ended or late:
                rows.append(_finish(child, timed_out=late and not ended))
                running.remove(child)
        return rows

    def _progress(self, finished: int, total: int, row: Row) -> None:
        line = f"[{finished}/{total}] {row['status']:<9} {row['task']:<44} {row['seconds']:6.1f} s"
        print(f"{line}  {self.show(row)}".rstrip(), flush=True)
