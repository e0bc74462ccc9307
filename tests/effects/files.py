"""Files, streams, sockets, databases, logs."""

from __future__ import annotations

import contextlib
import csv
import io
import logging
import os
import socket
import sqlite3
import sys
import tempfile

from tests.effects.world import case


@case
def file():
    handle = tempfile.TemporaryFile("w+")

    def run(x, cut):
        handle.write("a")
        cut()
        handle.write("b")
        return x + 1

    def look():
        handle.flush()
        return handle.tell()

    return run, look


@case
def file_made_inside():
    folder = tempfile.mkdtemp()

    def run(x, cut):
        with open(os.path.join(folder, "log"), "a") as handle:
            handle.write("line\n")
            cut()
        return x + 1

    return run, lambda: {
        name: len(open(os.path.join(folder, name)).read()) for name in os.listdir(folder)
    }


@case
def streams():
    text, data = io.StringIO(), io.BytesIO(b"0123456789" * 9)

    def run(x, cut):
        text.write("a")
        cut()
        return x + len(data.read(2))

    return run, lambda: (text.getvalue(), data.tell())


@case
def printing():
    into = io.StringIO()

    def run(x, cut):
        print("one", file=into)
        with contextlib.redirect_stdout(into):
            print("two")
            cut()
        return x + 1

    return run, lambda: (into.getvalue(), sys.stdout is into)


@case
def csv_writer():
    into = io.StringIO()
    writer = csv.writer(into)

    def run(x, cut):
        writer.writerow([1, 2])
        cut()
        return x + 1

    return run, into.getvalue


@case
def sockets():
    left, right = socket.socketpair()
    left.setblocking(False)
    right.setblocking(False)

    def run(x, cut):
        left.send(b"ab")
        cut()
        return x + 1

    def look():
        with contextlib.suppress(BlockingIOError):
            return right.recv(100)

    return run, look


@case
def pipe():
    reader, writer = os.pipe()
    os.set_blocking(reader, False)

    def run(x, cut):
        os.write(writer, b"ab")
        cut()
        return x + 1

    def look():
        with contextlib.suppress(BlockingIOError):
            return os.read(reader, 100)

    return run, look


@case
def folders():
    folder = tempfile.mkdtemp()

    def run(x, cut):
        os.makedirs(os.path.join(folder, "a", "b"), exist_ok=True)
        cut()
        with tempfile.TemporaryDirectory(dir=folder):
            return x + len(os.listdir(folder))

    return run, lambda: sorted(os.listdir(folder))


@case
def database():
    base = sqlite3.connect(":memory:")
    base.execute("create table t (n)")

    def run(x, cut):
        base.execute("insert into t values (1)")
        cut()
        return x + 1

    return run, lambda: base.execute("select count(*) from t").fetchall()


@case
def logger():
    records: list[str] = []
    log = logging.getLogger("strangers")
    log.handlers = [logging.Handler()]
    log.handlers[0].emit = lambda record: records.append(
        (record.getMessage(), record.funcName, record.lineno > 10)
    )
    log.setLevel(logging.INFO)
    log.propagate = False

    def run(x, cut):
        log.info("one %d", 1)
        cut()
        log.debug("never")
        log.warning("two")
        return x + 1

    return run, lambda: list(records)


@case
def logger_settings():
    log = logging.getLogger("settings")
    log.setLevel(logging.INFO)

    def run(x, cut):
        before = log.level
        log.setLevel(logging.ERROR)
        cut()
        y = x + log.getEffectiveLevel()
        log.setLevel(before + 1)
        return y

    return run, lambda: log.level
