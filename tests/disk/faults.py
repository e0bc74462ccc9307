"""Faults injected into the disk cache, each followed by a compile whose result is compared with eager.

``python -m tests.disk.faults`` prints the whole table; the suite runs the same with fewer cases.
"""

import argparse
import contextlib
import functools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from unittest import mock

import torch

import argand
from argand.native.codegen import target
from argand.runtime.disk import store
from argand.runtime.disk.format import DIGEST_SIZE, digest
from argand.support import events

CHILD = """
import sys, torch, argand
torch.manual_seed(0)
layer, x = torch.nn.Linear(8, 8), torch.randn(4, 8)
compiled = argand.compile(lambda x: torch.nn.functional.gelu(layer(x)), options={"cache_dir": sys.argv[1]})
print("ready", flush=True)
torch.testing.assert_close(compiled(x), torch.nn.functional.gelu(layer(x)))
print("right", flush=True)
"""


def program(x, w):
    """Forward and backward, kernels and a product."""
    return torch.nn.functional.gelu(x @ w).sum(-1)


def run(directory, dynamic=False):
    """Compile and train a step (with open sizes: two) in a directory; (right, hits, warnings)."""
    argand.reset()
    store._store_at.cache_clear()
    answers = []
    with events.collect() as heard, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for function in (
            program,
            argand.compile(program, dynamic=dynamic, options={"cache_dir": str(directory)}),
        ):
            generator = torch.Generator().manual_seed(0)
            answers.append([])
            for size in (4, 7) if dynamic else (4,):
                x, w = (
                    torch.randn(n, 4, generator=generator, requires_grad=True) for n in (size, 4)
                )
                result = function(x, w)
                result.sum().backward()
                answers[-1] += (result, x.grad, w.grad)
    right = all(torch.allclose(a, b, atol=1e-5) for a, b in zip(*answers, strict=True))
    said = sum(issubclass(w.category, store.CacheWarning) for w in caught)
    return right, heard.total("cache.hit"), said


def entries(directory):
    """The files of a cache."""
    return sorted(path for path in Path(directory).glob("v1/??/*") if path.suffix == "")


def each_file(change, places):
    """A fault made of changes to the bytes of one file after the other."""

    def cases(directory):
        for path in entries(directory):
            data = path.read_bytes()
            for place in places(len(data)):
                yield lambda path=path, data=data, place=place: path.write_bytes(
                    change(data, place)
                )

    return cases


def flipped(data, place):
    """One bit changed."""
    changed = bytearray(data)
    changed[place] ^= 1 << (place % 8)
    return bytes(changed)


def of_format(data, version):
    """A file of another format version, whole otherwise."""
    body = data[:8] + version.to_bytes(4, "little") + data[12:-DIGEST_SIZE]
    return body + digest(body)


def wrong_owner(directory):
    """Files of another user."""
    for path in entries(directory):
        if os.getuid() == 0:
            yield lambda path=path: os.chown(path, 12345, -1)
        else:
            yield lambda path=path: path.chmod(0o666)


def clock_change(directory):
    """Everything was used in the far future, or long ago."""
    for moment in (4e9, 0):
        yield lambda moment=moment: [
            os.utime(path, (moment, moment)) for path in entries(directory)
        ]


@contextlib.contextmanager
def full_disk():
    """Nothing can be written."""

    def full(prefix, dir):
        (dir / f"{prefix}full").touch()
        return os.open("/dev/full", os.O_WRONLY), str(dir / f"{prefix}full")

    with mock.patch.object(tempfile, "mkstemp", full):
        yield


@contextlib.contextmanager
def foreign_machine():
    """The cache was filled by another machine."""
    with mock.patch.object(target, "_machine_name", lambda: "another machine"):
        yield


def child(directory):
    """A process that compiles in the same directory."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", CHILD, str(directory)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def kill_writers(directory, count):
    """kill -9 at random moments after compiling began; a process that is let live must be right."""
    generator = random.Random(0)
    for _ in range(count):
        process = child(directory)
        process.stdout.readline()
        time.sleep(generator.random() * 0.8)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        yield
    assert "right" in child(directory).communicate()[0]
    yield


def two_writers(directory, count):
    """Two processes compile the same at once; both must be right."""
    for _ in range(count):
        together = [child(directory), child(directory)]
        assert all("right" in process.communicate()[0] for process in together)
        shutil.rmtree(directory)
        yield


def survive(name, filled, run, cases=None, around=contextlib.nullcontext):
    """One row of the table: (name, cases, right, hits, warnings); each case starts from a filled cache."""
    count = right = hits = said = 0
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch) / "cache"
        shutil.copytree(filled, place)
        for case in cases(place) if cases else [lambda: None]:
            shutil.rmtree(place)
            shutil.copytree(filled, place) if around is not full_disk else place.mkdir(0o700)
            case()
            with around():
                answer = run(place)
            count, right, hits, said = (
                count + 1,
                right + answer[0],
                hits + answer[1],
                said + answer[2],
            )
            right -= not run(place)[0]
    return name, count, right, hits, said


def share(name, fault, processes):
    """The same where other processes are the fault, in a directory that stays as they leave it."""
    count = right = hits = said = 0
    with tempfile.TemporaryDirectory() as scratch:
        for _ in fault(Path(scratch) / "cache", processes):
            answer = run(Path(scratch) / "cache")
            count, right, hits, said = (
                count + 1,
                right + answer[0],
                hits + answer[1],
                said + answer[2],
            )
    return name, count, right, hits, said


def table(step=64, processes=5, dynamic=False):
    """All rows."""
    train = functools.partial(run, dynamic=dynamic)
    with tempfile.TemporaryDirectory() as scratch:
        filled = Path(scratch) / "filled"
        assert train(filled)[0] and train(filled)[1] >= 3
        yield survive("nothing", filled, train)
        truncate = each_file(lambda data, place: data[:place], lambda size: range(0, size, step))
        yield survive(f"truncated at every {step}th byte", filled, train, truncate)
        flips = each_file(flipped, lambda size: range(step // 2, size, step))
        yield survive(f"a bit flipped in every {step}th byte", filled, train, flips)
        yield survive("wrong owner", filled, train, wrong_owner)
        yield survive("disk full", filled, train, around=full_disk)
        yield survive("clock change", filled, train, clock_change)
        yield survive("foreign ISA", filled, train, around=foreign_machine)
        yield survive(
            "older and newer format", filled, train, each_file(of_format, lambda _: (0, 2, 99))
        )
        if processes:
            yield share("kill -9 while writing", kill_writers, processes)
            yield share("two writers", two_writers, processes)


def main():
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--step", type=int, default=64)
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--dynamic", action="store_true", help="with open sizes")
    options = parser.parse_args()
    print(f"{'fault':<36} {'cases':>6} {'right':>6} {'hits':>6} {'warnings':>8}")
    wrong = 0
    for name, count, right, hits, said in table(options.step, options.processes, options.dynamic):
        print(f"{name:<36} {count:>6} {right:>6} {hits:>6} {said:>8}", flush=True)
        wrong += count - right
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
