"""The cache on the command line, and bundles of it on other machines."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import argand
from argand.cli.main import main
from argand.native import build
from argand.native.codegen import target
from argand.runtime.disk.format import decode
from argand.support import events
from argand.support.errors import UserError


def program(x):
    """Something with a kernel."""
    return torch.nn.functional.gelu(x).sum(-1)


def hits(directory, dynamic=False):
    argand.reset()
    x = torch.randn(4, 8)
    with events.collect() as heard:
        got = argand.compile(program, dynamic=dynamic, options={"cache_dir": str(directory)})(x)
    torch.testing.assert_close(got, program(x))
    rows = [e for e in heard.events if isinstance(e, events.Count)]
    missed = [e for e in rows if e.counter == "cache.miss"]
    return sum(e.counter == "cache.hit" for e in rows) > 0 and not missed


def test_bundle_fills_another_directory(tmp_path):
    assert not hits(tmp_path / "one") and hits(tmp_path / "one")
    data = argand.save_cache_artifacts(directory=tmp_path / "one")
    assert argand.load_cache_artifacts(data, directory=tmp_path / "two") >= 3
    assert hits(tmp_path / "two")


def test_key_of_a_bundle(tmp_path):
    hits(tmp_path / "one")
    data = argand.save_cache_artifacts(key=b"secret", directory=tmp_path / "one")
    for wrong in (b"", b"other"):
        with pytest.raises(UserError, match="another key"):
            argand.load_cache_artifacts(data, key=wrong, directory=tmp_path / "two")
    changed = bytearray(data)
    changed[len(data) // 2] ^= 1
    with pytest.raises(UserError):
        argand.load_cache_artifacts(bytes(changed), key=b"secret", directory=tmp_path / "two")
    assert argand.load_cache_artifacts(data, key=b"secret", directory=tmp_path / "two")


def test_wider_machine_takes_code_and_narrower_does_not(tmp_path, monkeypatch):
    hits(tmp_path / "one")
    data = argand.save_cache_artifacts(directory=tmp_path / "one")
    here = target.host_target()
    wider = target.Target("newer", here.features + ",+amx-new", here.vector_bytes)
    narrower = target.Target("older", here.features.replace("+sse2", "-sse2"), 16)
    with monkeypatch.context() as patch:
        patch.setattr(target, "_machine_name", lambda: "another machine")
        patch.setattr(target, "host_target", lambda: wider)
        argand.load_cache_artifacts(data, directory=tmp_path / "wider")
        assert hits(tmp_path / "wider")
        patch.setattr(target, "host_target", lambda: narrower)
        with events.collect() as heard:
            argand.load_cache_artifacts(data, directory=tmp_path / "narrower")
        assert heard.total("cache.bypass") >= 2
    assert not hits(tmp_path / "narrower")


@contextlib.contextmanager
def narrower_machine(monkeypatch):
    """Compile and load as a machine with AVX2 does, or with SSE where there is no AVX-512 here."""
    here = target.host_target()
    name, vector_bytes, without = (
        ("haswell", 32, "avx512") if here.vector_bytes == 64 else ("nehalem", 16, ("avx", "fma"))
    )
    features = [f"-{f[1:]}" if f[1:].startswith(without) else f for f in here.features.split(",")]
    made = target.Target(name, ",".join(features), vector_bytes)
    with monkeypatch.context() as patch:
        patch.setattr(target, "_machine_name", lambda: name)
        for module in (target, build):
            patch.setattr(module, "host_target", lambda: made)
        yield


@pytest.mark.parametrize("dynamic", [False, True])
def test_code_runs_on_wider_machines_only(tmp_path, monkeypatch, dynamic):
    with narrower_machine(monkeypatch):
        assert not hits(tmp_path / "narrow", dynamic) and hits(tmp_path / "narrow", dynamic)
        narrow = argand.save_cache_artifacts(directory=tmp_path / "narrow")
    assert not hits(tmp_path / "narrow", dynamic)  # another machine
    argand.load_cache_artifacts(narrow, directory=tmp_path / "one")
    assert hits(tmp_path / "one", dynamic)
    assert not hits(tmp_path / "wide", dynamic)
    wide = argand.save_cache_artifacts(directory=tmp_path / "wide")
    with narrower_machine(monkeypatch):
        with events.collect() as heard:
            argand.load_cache_artifacts(wide, directory=tmp_path / "two")
        assert heard.total("cache.bypass") >= 2
        assert not hits(tmp_path / "two", dynamic) and hits(tmp_path / "two", dynamic)
    argand.load_cache_artifacts(narrow, directory=tmp_path / "wide")  # what was made here stays
    paths = list((tmp_path / "wide").rglob("v1/??/*"))
    assert paths
    for path in paths:
        said = json.loads(decode(path.read_bytes())["about"])
        assert said.get("cpu", "") not in ("haswell", "nehalem") or said["kind"] == "object"


def test_features_of_one_vendor_are_not_used():
    """Code made on a machine of one vendor runs on wider ones of another."""
    used = {name for name in target.host_target().features.split(",") if name[0] == "+"}
    assert "+sse2" in used and not used & {"+sse4a", "+clzero", "+xsaves", "+rtm", "+fma4", "+xop"}


def run(capsys, *arguments):
    code = main(["cache", *map(str, arguments)])
    return code, capsys.readouterr().out


def test_commands(tmp_path, capsys):
    hits(tmp_path)
    place = ("--directory", tmp_path)
    code, out = run(capsys, "ls", *place)
    assert code == 0 and "graph" in out and "autograd" in out and "object" in out
    key = next(line.split()[0] for line in out.splitlines() if "autograd" in line)
    code, out = run(capsys, "info", key[:9], *place)
    assert code == 0 and "inputs:" in out and "section program" in out
    assert main(["cache", "info", "zz", *map(str, place)]) == 2
    secret = tmp_path / "secret"
    secret.write_bytes(b"x" * 32)
    bundle = tmp_path / "bundle"
    assert run(capsys, "export", bundle, *place, "--key-file", secret)[0] == 0
    code, out = run(capsys, "import", bundle, "--directory", tmp_path / "b", "--key-file", secret)
    assert code == 0 and "entries taken" in out
    assert hits(tmp_path / "b")


def test_why_names_the_differing_part(tmp_path, capsys):
    script = tmp_path / "script.py"
    text = (
        "import argand, torch\nargand.reset()\n"
        "compiled = argand.compile(torch.nn.Softmax(-1), options={'cache_dir': DIRECTORY})\n"
        "compiled(torch.ones(SIZE, 4))\n"
    )
    text = text.replace("DIRECTORY", repr(str(tmp_path / "c")))
    for size, expected in ((3, "first of its kind"), (3, " hits"), (5, "inputs:")):
        script.write_text(text.replace("SIZE", str(size)))
        code, out = run(capsys, "why", script, "--directory", tmp_path / "c")
        assert code == 0 and expected in out
        assert ("miss" in out) == (expected != " hits")


def test_open_sizes_are_shown(tmp_path, capsys):
    script = tmp_path / "script.py"
    text = (
        "import argand, torch\nargand.reset()\n"
        "compiled = argand.compile(lambda x: x.softmax(-1) if x.shape[0] > CASE else x, dynamic=True, options={'cache_dir': DIRECTORY})\n"
        "for n in SIZES:\n    compiled(torch.ones(n, 4))\n"
    )
    text = text.replace("DIRECTORY", repr(str(tmp_path / "c")))
    place = ("--directory", tmp_path / "c")
    for sizes, case, expected in (
        ("(30, 31)", 20, "first of its kind"),
        ("(40, 50)", 20, " 4 hits"),
        ("(40, 9)", 20, "x.shape[0] > 20` no longer holds"),
        ("(40, 50)", 21, "sizes: "),
    ):
        script.write_text(text.replace("SIZES", sizes).replace("CASE", str(case)))
        code, out = run(capsys, "why", script, *place)
        assert code == 0 and expected in f" {out}", out
    out = run(capsys, "ls", *place)[1]
    lines = [
        line
        for line in out.splitlines()
        if "s1 in 2..; s0 > 21" in line or "x.shape[0] > 21" in line
    ]
    assert sorted(line.split()[1] for line in lines) == ["autograd", "capture"], out
    assert (
        '["s0", "s1"]'
        in run(capsys, "info", next(line for line in lines if "autograd" in line)[:9], *place)[1]
    )


def test_two_environments_at_different_paths(tmp_path):
    """Export where Argand is installed in one place, import where it is in another: hits."""
    source = Path(argand.__file__).parent
    text = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import argand, torch\nfrom pathlib import Path\nfrom argand.support import events\n"
        "assert argand.__file__.startswith(sys.argv[1])\n"
        "bundle, directory = Path(sys.argv[2]), Path(sys.argv[1]) / 'cache'\n"
        "if bundle.exists():\n    argand.load_cache_artifacts(bundle.read_bytes(), directory=directory)\n"
        "with events.collect() as heard:\n"
        "    argand.compile(torch.nn.GELU(), options={'cache_dir': str(directory)})(torch.ones(8))\n"
        "print(heard.total('cache.hit'), heard.total('cache.miss'))\n"
        "if not bundle.exists():\n"
        "    bundle.write_bytes(argand.save_cache_artifacts(directory=directory))\n"
    )
    answers = []
    for name in ("one", "two"):
        shutil.copytree(source, tmp_path / name / "argand")
        source = tmp_path / name / "argand"
        command = [sys.executable, "-c", text, str(tmp_path / name), str(tmp_path / "bundle")]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        answers.append(done.stdout.split())
        assert done.returncode == 0, done.stderr
    assert answers[0][0] == "0" and answers[1][1] == "0" and int(answers[1][0]) >= 3
