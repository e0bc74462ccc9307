"""Hostile cache files: mutated bytes must be refused before anything in them is used.

``python -m tests.disk.fuzz --count 10000``. Two kinds: changed files as they are (the checksum refuses them), and
data changed under a checksum made for it (an attacker who can write the directory): reading may refuse or answer,
but never crash, import or call anything; machine code and plans are not run here, see docs/security.md.
"""

import argparse
import json
import random
import sys
import tempfile
from pathlib import Path

from argand.autograd import stored as programs
from argand.native import stored as graphs
from argand.runtime.disk.format import Damaged, decode, encode
from argand.runtime.disk.graphs import read_graph
from argand.runtime.disk.keys import read_about
from argand.runtime.disk.values import guarded
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
                changed[place : place + 1] = generator.choice((b"[", b"]", b"9" * 9, b"-", b'"', b"null", b"1e999"))
    return bytes(changed)


def read_all(sections):
    """Everything a process does with an entry before it runs it."""
    read_about(sections)
    if "program" in sections:
        guarded(lambda: programs._read(sections))
        guarded(lambda: read_graph(json.loads(sections["program"]), b"", values=False))
    elif "data" in sections:
        graphs._read(sections, {})


def fuzz(count, seed):
    """Counts of (files refused by their checksum, data refused, data read as something)."""
    generator = random.Random(seed)
    refused = damaged = read = 0
    with tempfile.TemporaryDirectory() as scratch:
        run(Path(scratch))
        files = [path.read_bytes() for path in entries(scratch)]
    RECORDING.append(True)
    files = [data for data in files if "capture" not in str(decode(data).get("about"))]
    for number in range(count):
        data = generator.choice(files)
        if number % 2:
            sections = decode(data)
            name = generator.choice([name for name in sections if sections[name]])
            sections[name] = mutate(sections[name], generator)
            try:
                read_all(decode(encode(sections)))
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
    sys.addaudithook(lambda name, args: ran.append((name, args)) if name in WATCHED and RECORDING else None)
    refused, damaged, read = fuzz(options.count, options.seed)
    print(f"{options.count} files: {refused} refused by their checksum, {damaged} with hostile data refused,")
    print(f"{read} read as data; processes started or code compiled meanwhile: {len(ran)}")


if __name__ == "__main__":
    main()
