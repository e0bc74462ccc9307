"""argand doctor: what it says of a sound environment, and of broken ones."""

import json
import os
import subprocess
import sys

import argand
from argand.cli.main import main
from argand.report import doctor
from argand.report.doctor import Verdict


def test_a_sound_environment_is_well(capsys):
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert text.endswith("all is well\n") and text.count("equal to eager") == 3
    assert argand.__version__ in text


def test_the_same_as_json(capsys):
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["healthy"] is True
    assert {row["area"] for row in found["findings"]} >= {
        "versions",
        "processor",
        "threads",
        "cache",
        "self-test",
    }


def test_a_wrong_result_is_bad_and_ends_with_1(capsys, monkeypatch):
    monkeypatch.setattr(doctor.pipeline, "compile", lambda program, **_: lambda x: program(x) + 1)
    assert main(["doctor"]) == 1
    text = capsys.readouterr().out
    assert text.count("differs from eager") == 3 and "not well: 3 of" in text


def test_a_failing_look_is_a_finding(monkeypatch):
    def fails():
        raise OSError("no such thing")

    monkeypatch.setattr(doctor, "_AREAS", (("cache", fails),))
    (finding,) = doctor.examine()
    assert finding.verdict is Verdict.BAD and "OSError: no such thing" in finding.value


def test_a_cache_that_cannot_be_used_is_named(tmp_path):
    folder = tmp_path / "argand"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "argand", "doctor", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    rows = [
        row
        for row in json.loads(done.stdout)["findings"]
        if row["area"] == "cache" and row["verdict"] == "bad"
    ]
    assert done.returncode == 1 and "XDG_CACHE_HOME" in rows[0]["hint"]


def test_what_is_left_to_eager_and_idle_cores_are_named(monkeypatch):
    monkeypatch.setattr(doctor, "usable_cores", lambda: 64)
    monkeypatch.setattr(doctor, "_has_device", lambda name: name == "cuda")
    monkeypatch.setattr(
        doctor, "_AREAS", tuple(row for row in doctor._AREAS if row[0] != "self-test")
    )
    found = {(row.area, row.what): row for row in doctor.examine()}
    assert "OMP_NUM_THREADS" in found["threads", "torch"].hint
    devices = found["left to eager", "devices"]
    assert devices.value.startswith("cuda: ") and devices.verdict is Verdict.NOTE
    assert "sparse" in found["left to eager", "tensors"].value
