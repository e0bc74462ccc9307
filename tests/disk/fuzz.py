"""Hostile cache files: mutated bytes must be refused before anything in them is used.

``python -m tests.disk.fuzz --count 10000``. Two kinds: changed files as they are (the checksum refuses them), and
data changed under a checksum made for it (an attacker who can write the directory): reading may refuse or answer,
but never crash, import or call anything; machine code, plans and the text of captures are not run here, see
docs/security.md. Captures are put over the frames they were made of, guards and resume functions included.
"""

import argparse
import json
import random
import sys
import tempfile
from pathlib import Path
from unittest import mock

import torch

import argand
from argand.autograd import program_cache as programs
from argand.capture.frame_stage import FrameStage
from argand.capture.stored.restore import Restorer
from argand.native import graph_cache as graphs
from argand.runtime.disk.format import Damaged, decode, encode
from argand.runtime.disk.graphs import read_graph
from argand.runtime.disk.keys import about, read_about
from argand.runtime.disk.values import Writer, guarded
from argand.sizes.expressions import Expr, Symbol
from argand.sizes.table import SizeTable
from tests.disk.faults import entries, run

WATCHED = ("os.system", "os.exec", "subprocess.Popen", "compile", "exec", "pickle.find_class")
RECORDING = []


def mutate(data, generator):
    """Some bytes changed, moved, dropped or repeated."""
    changed = bytearray(data)
    for _ in range(generator.choice((1, 1, 2, 4, 16))):
        place = generator.randrange(len(changed) + 1)
        match generator.randrange(5):
            case 0:
                changed[place : place + 1] = generator.randbytes(1)
            case 1:
                del changed[place : place + generator.randrange(1, 64)]
            case 2:
                changed[place:place] = generator.randbytes(generator.randrange(1, 64))
            case 3:
                start = generator.randrange(len(changed) + 1)
                changed[place:place] = changed[start : start + 32]
            case _:
                changed[place : place + 1] = generator.choice(
                    (b"[", b"]", b"9" * 9, b"-", b'"', b"null", b"1e999")
                )
    return bytes(changed)


def broken(x, scale, seen):
    """A program with graph breaks, in itself and in what it calls."""

    def inner(y):
        try:
            y.tolist()
            return y * scale["by"]
        except ValueError:
            return y

    x = inner(x.sin() + 1)
    seen.append(x)
    if x.sum() > 0:
        x = x * 2
    return inner(x.cos())


def fill(directory):
    """Entries of all kinds: {key: (bytes, the frame it was made of)}."""
    views = {}

    def key(stage):
        found = original(stage)
        views[found] = stage.view
        return found

    original = FrameStage.key
    with mock.patch.object(FrameStage, "key", key):
        run(directory)
        run(directory, dynamic=True)
        compiled = argand.compile(broken, options={"cache_dir": str(directory), "strict": True})
        compiled(torch.ones(2, 3), {"by": 2.0}, [])
    fact = Writer().write(("<", Expr.of(Symbol("s0")), Expr.of(9)))
    index = {"about": about("autograd", {}), "facts": json.dumps([fact]).encode(), "key": b"0" * 40}
    return [
        (encode(index), None),
        *((path.read_bytes(), views.get(path.name)) for path in entries(directory)),
    ]


def read_all(sections, view):
    """Everything a process does with an entry before it runs it."""
    read_about(sections)
    if "program" in sections:
        sizes = guarded(lambda: programs._read(sections))[0].sizes
        sizes = sizes and sizes.table
        guarded(lambda: read_graph(json.loads(sections["program"]), b"", sizes, values=False))
        rows, tensors = sections["backward"], sections["backward.tensors"]
        guarded(lambda: rows and read_graph(json.loads(rows), tensors, sizes, values=True))
    elif "facts" in sections:
        table = SizeTable()
        table.symbol("s0", 5)
        guarded(lambda: programs._facts(sections, table))
    elif "data" in sections:
        graphs._read(sections, {})
    elif view is not None:
        for name in sections.keys() - {"about"}:
            try:
                restorer = Restorer(guarded(lambda name=name: json.loads(sections[name])), view)
                restorer.check()
                restorer.namespace()
            except Exception as error:  # as the shelf does
                raise Damaged(str(error)) from None


def fuzz(count, seed):
    """Counts of (files refused by their checksum, data refused, data read as something)."""
    generator = random.Random(seed)
    refused = damaged = read = 0
    with tempfile.TemporaryDirectory() as scratch:
        files = fill(Path(scratch))
    assert sum(view is not None for _, view in files) >= 5
    for data, view in files:
        read_all(decode(data), view)  # nothing was changed yet
    RECORDING.append(True)
    for number in range(count):
        data, view = generator.choice(files)
        if number % 2:
            sections = decode(data)
            name = generator.choice([name for name in sections if sections[name]])
            sections[name] = mutate(sections[name], generator)
            try:
                read_all(decode(encode(sections)), view)
                read += 1
            except Damaged:
                damaged += 1
            continue
        changed = mutate(data, generator)
        try:
            decode(changed)
            assert changed == data
        except Damaged:
            refused += 1
    RECORDING.clear()
    return refused, damaged, read


def main():
    """Run it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    ran = []
    fuzz(200, options.seed + 1)  # what is imported late is imported now
    sys.addaudithook(
        lambda name, args: ran.append((name, args)) if name in WATCHED and RECORDING else None
    )
    refused, damaged, read = fuzz(options.count, options.seed)
    print(
        f"{options.count} files: {refused} refused by their checksum, {damaged} with hostile data refused,"
    )
    print(f"{read} read as data; processes started or code compiled meanwhile: {len(ran)}")


if __name__ == "__main__":
    main()
