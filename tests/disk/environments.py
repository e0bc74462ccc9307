"""A cache filled in one virtual environment and used in another: ``python -m tests.disk.environments``.

Two real environments at different paths. Nothing is downloaded: the packages of the running environment are linked into
both, so that torch too has another path in each; Argand is copied, and so is the model's source. The first one fills its
cache and exports it with ``argand cache export``, the second imports it and must find everything in it.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import torch

import argand

MODEL = """
import torch
from torch import nn

SCALE = 2.0

def helper(x):
    return x * SCALE

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
    def forward(self, x):
        x = helper(self.layers(x))
        if x.sum() > 1e9:  # a graph break
            x = -x
        return x.softmax(-1)
"""

RUN = """
import json, sys
import torch
import argand
from argand.support import events
import model

torch.manual_seed(0)
net, x = model.Model(), torch.linspace(-1, 1, 24).reshape(3, 8)
with events.collect() as heard:
    found = argand.compile(net)(x)
    found.sum().backward()
torch.testing.assert_close(found, net(x))
names = ("cache.hit", "cache.miss", "restores", "compiles")
counts = {name: heard.total(name) for name in names}
print(json.dumps({**counts, "places": [torch.__file__, argand.__file__, model.__file__]}))
"""


def make(place):
    """An environment at a place, with its own copy of Argand and of the model."""
    venv.create(place, symlinks=True)
    packages = next(place.glob("lib/python*/site-packages"))
    for item in Path(torch.__file__).parent.parent.iterdir():
        if item.suffix != ".pth" and not item.name.startswith(("__", "argand")):
            os.symlink(item, packages / item.name)
    home = Path(argand.__file__).parent
    shutil.copytree(home, packages / "argand", ignore=shutil.ignore_patterns("__pycache__"))
    (place / "project").mkdir()
    (place / "project" / "model.py").write_text(MODEL)
    (place / "project" / "run.py").write_text(RUN)


def call(place, *arguments):
    """The last line that Python of an environment prints."""
    environment = {"XDG_CACHE_HOME": str(place / "cache"), "PATH": os.environ.get("PATH", "")}
    command = [str(place / "bin" / "python"), *arguments]
    done = subprocess.run(
        command, cwd=place / "project", env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout.splitlines()[-1]


def show(directory):
    """What the second environment found: counters of (first run, second run)."""
    one, two = directory / "one", directory / "deeper" / "two"
    for place in (one, two):
        make(place)
    first = json.loads(call(one, "run.py"))
    bundle = str(directory / "cache.bundle")
    call(one, "-m", "argand", "cache", "export", bundle)
    call(two, "-m", "argand", "cache", "import", bundle)
    second = json.loads(call(two, "run.py"))
    assert not set(first["places"]) & set(second["places"])
    return first, second


def main():
    """Run it."""
    with tempfile.TemporaryDirectory() as directory:
        first, second = show(Path(directory))
    for name, counts in (("first", first), ("second", second)):
        print(
            f"{name:<7}",
            ", ".join(f"{key} {value}" for key, value in counts.items() if key != "places"),
        )
    if second["cache.miss"] or second["compiles"] or not second["restores"]:
        sys.exit("the second environment compiled again")


if __name__ == "__main__":
    main()
