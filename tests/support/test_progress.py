"""What a long compile shows, from events and a clock of our own."""

import io
import logging

import nbclient
import nbformat
import pytest
import torch

import argand
from argand import progress
from argand.progress import Display, LogLine, NotebookBar, Progress, RichLine, choose_display
from argand.support import events
from argand.support.options import Environment


class Seen(Display):
    def __init__(self) -> None:
        self.texts, self.closed = [], 0

    def show(self, doing):
        self.texts.append(doing.text)

    def close(self):
        self.closed += 1


class Hours:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_nothing_is_shown_before_a_second_and_all_is_closed_after_it():
    seen, clock = Seen(), Hours()
    hear = Progress(seen, clock)
    hear(events.StageStart("compile", "train_step"))
    hear(events.StageStart("capture"))
    assert not seen.texts
    hear(events.Count("capture.graphs"))
    hear(events.Count("native.kernels", 12))
    clock.now = 2.4
    hear(events.StageStart("native.llvm.code"))
    assert seen.texts == [
        "argand compiles train_step: machine code, 1 graphs done, 12 kernels left (2 s)"
    ]
    for stage in ("native.llvm.code", "capture", "compile"):
        assert not seen.closed
        hear(events.StageEnd(stage, 1.0))
    assert seen.closed == 1
    hear(events.StageStart("compile", "again"))  # the clock begins anew
    hear(events.StageEnd("compile", 0.1))
    hear(events.StageEnd("compile", 0.1))  # of somebody who began before us
    assert len(seen.texts) == seen.closed == 1


def test_a_backward_pass_has_no_name():
    seen, clock = Seen(), Hours()
    hear = Progress(seen, clock)
    hear(events.StageStart("native.lower"))
    clock.now = 1
    hear(events.StageStart("native.passes"))
    assert seen.texts == ["argand compiles a backward pass: optimising, 0 graphs done (1 s)"]


def test_a_real_compile_tells_its_graphs_and_kernels(monkeypatch):
    seen, clock = Seen(), Hours()
    hear = Progress(seen, clock)

    def slower(event):
        clock.now += 0.2
        hear(event)

    leave = events.subscribe(slower)
    try:
        argand.compile(lambda x: torch.softmax(x.sin(), -1), options={"cache": False})(
            torch.randn(4, 8)
        )
    finally:
        leave()
    assert any("1 kernels left" in text for text in seen.texts) and seen.closed == 1
    assert any("machine code" in text for text in seen.texts)


def _doing() -> progress.Doing:
    return progress.Doing("f<x>", "machine code", 2, 3, 4.2, 0.6)


class Kept(logging.Handler):
    """The only one that hears, whoever listened before."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def test_one_line_in_the_logs(monkeypatch):
    line, kept, logger = LogLine(), Kept(), logging.getLogger("argand")
    monkeypatch.setattr(logger, "handlers", [kept])
    monkeypatch.setattr(logger, "propagate", False)
    line.show(_doing())
    line.show(_doing())
    assert kept.texts == [_doing().text]


def test_a_bar_in_a_notebook():
    put = []

    class Handle:
        def update(self, data, raw):
            put.append(data["text/html"])

    def display(data, raw, display_id):
        put.append(data["text/html"])
        return Handle()

    bar = NotebookBar(display)
    bar.show(_doing())
    bar.show(_doing())
    bar.close()
    assert '<progress value="0.60"' in put[0] and "f&lt;x&gt;" in put[0] and put[1:] == [put[0], ""]


CELL = """
import torch
import argand
from argand import progress

progress.PATIENCE = 0.0
compiled = argand.compile(lambda x: torch.softmax(x.sin(), -1), options={"cache": False})
compiled(torch.randn(4, 8)).shape
"""


class Watched(nbclient.NotebookClient):
    """A client that keeps what its kernel shows, in the order it came."""

    def process_message(self, msg, cell, cell_index):
        if msg["msg_type"] in ("display_data", "update_display_data"):
            self.shown.append(msg["content"]["data"]["text/html"])
        return super().process_message(msg, cell, cell_index)


def test_a_bar_in_a_real_kernel(tmp_path):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    client = Watched(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}})
    client.shown = []
    client.execute()
    assert "argand compiles &lt;lambda&gt;: machine code" in "".join(client.shown)
    assert all(text.startswith("<progress value=") for text in client.shown[:-1])
    assert client.shown[-1] == ""  # gone when the compile is over
    shown, result = notebook.cells[0].outputs
    assert shown["data"]["text/html"] == ""
    assert result["data"]["text/plain"] == "torch.Size([4, 8])"


def test_a_line_on_a_terminal_is_gone_afterwards(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    line = choose_display("")
    assert isinstance(line, RichLine)
    line.show(_doing())
    line.close()
    assert "3 kernels left" in terminal.getvalue() and "\x1b[2K" in terminal.getvalue()


@pytest.mark.parametrize(("wish", "kind"), [("", type(None)), ("1", LogLine), ("0", type(None))])
def test_nothing_in_a_pipe_unless_wished(wish, kind, monkeypatch):
    monkeypatch.setattr("sys.stderr", io.StringIO())
    monkeypatch.setattr(progress, "read_environment", lambda: Environment(progress=wish))
    assert isinstance(choose_display(wish), kind)
