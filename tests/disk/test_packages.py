"""A packaged model runs without its source, on other versions too, and refuses what it was not made for."""

import os
import subprocess
import sys
import typing

import pytest
import torch

import argand
from argand import packages
from argand.support import events
from argand.support.errors import UserError


class Model(torch.nn.Module):
    """Nested arguments and results, a buffer that is written, an input handed through."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.GELU(), torch.nn.Linear(6, 4))
        self.tied = self.inner[0].weight
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, pair, scale=1.0, *, mask):
        """Some of everything."""
        self.calls += 1
        x, y = pair
        z = self.inner(x) * scale + y @ self.tied.t()[:, :4]
        return {"z": z.masked_fill(mask, 0.0), "rest": [x, (z.sum(-1), "text")], "calls": self.calls * 1}


def example():
    torch.manual_seed(1)
    return ([torch.randn(3, 4), torch.randn(3, 4)], 0.5), {"mask": torch.eye(3, 4) > 0}


@pytest.mark.parametrize("beside", [False, True])
def test_package_gives_what_the_model_gives(tmp_path, beside):
    torch.manual_seed(0)
    model = Model()
    args, kwargs = example()
    path = tmp_path / "model.argand"
    argand.package(model, args, path, kwargs=kwargs, safetensors=beside)
    assert (tmp_path / "model.argand.safetensors").exists() == beside
    loaded = argand.load(path)
    with torch.no_grad():
        for _ in range(2):
            got, wanted = loaded(*args, **kwargs), model(*args, **kwargs)
            assert got["rest"][0] is args[0][0] and got["rest"][1][1] == "text"
            torch.testing.assert_close(got["z"], wanted["z"])
            torch.testing.assert_close(got["rest"][1][0], wanted["rest"][1][0])
            assert got["calls"] == wanted["calls"]
    strided = [args[0][0].t().contiguous().t(), args[0][1]]
    torch.testing.assert_close(loaded(strided, 0.5, **kwargs)["z"], wanted["z"])


def test_wrong_arguments_are_refused(tmp_path):
    args, kwargs = example()
    argand.package(Model(), args, tmp_path / "m", kwargs=kwargs)
    loaded = argand.load(tmp_path / "m")
    x, y = args[0]
    for wrong, match in (
        (((x[:2], y), 0.5), "nested like"),
        (([x[:2], y], 0.5), r"tensor of torch.float32 \[3, 4\]"),
        (([x.double(), y], 0.5), "torch.float32"),
        (([x, y], 0.25), "was 0.5"),
    ):
        with pytest.raises(UserError, match=match):
            loaded(*wrong, **kwargs)


def test_other_versions_compile_the_program_again(tmp_path, monkeypatch):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
    x = torch.randn(2, 4)
    argand.package(model, (x,), tmp_path / "m")
    with events.collect() as heard:
        argand.load(tmp_path / "m")(x)
    assert "autograd.trace" not in heard.seconds()
    monkeypatch.setattr(packages, "environment", lambda: {"torch": "99"})
    with events.collect() as heard, torch.no_grad():
        torch.testing.assert_close(argand.load(tmp_path / "m")(x), model(x))
    assert "autograd.trace" in heard.seconds()


def test_key_and_damage(tmp_path):
    x = torch.ones(3)
    argand.package(torch.nn.GELU(), (x,), tmp_path / "m", key=b"secret")
    assert argand.load(tmp_path / "m", key=b"secret")(x).shape == (3,)
    with pytest.raises(UserError, match="another key"):
        argand.load(tmp_path / "m")
    (tmp_path / "m").write_bytes((tmp_path / "m").read_bytes()[:-9])
    with pytest.raises(UserError, match="cannot be used"):
        argand.load(tmp_path / "m", key=b"secret")


class Result(typing.NamedTuple):
    """A type the loading process does not have."""

    value: torch.Tensor


def test_what_cannot_be_packaged_says_so(tmp_path):
    with pytest.raises(argand.CaptureError):
        argand.package(lambda x: print(x.sum().item()) or x, (torch.ones(3),), tmp_path / "m")
    x, hidden = torch.ones(3), torch.ones(3)
    with pytest.raises(UserError, match="share memory"):
        argand.package(lambda x, y: x + y, (x, x), tmp_path / "m")
    argand.package(lambda x, y: x + y, (x, x + 1), tmp_path / "m")
    with pytest.raises(UserError, match="share memory"):
        argand.load(tmp_path / "m")(x, x)
    with pytest.raises(UserError, match="neither computed"):
        argand.package(lambda x: (x + 1, hidden), (x,), tmp_path / "m")
    with pytest.raises(UserError, match="Result"):
        argand.package(lambda x: Result(x + 1), (torch.ones(3),), tmp_path / "m")


def test_process_without_the_source(tmp_path):
    torch.manual_seed(0)
    model = Model()
    args, kwargs = example()
    argand.package(model, args, tmp_path / "m", kwargs=kwargs)
    torch.save((args, kwargs, model(*args, **kwargs)["z"].detach()), tmp_path / "data")
    text = (
        "import sys, torch, argand\n"
        "loaded = argand.load(sys.argv[1] + '/m')\n"
        "args, kwargs, z = torch.load(sys.argv[1] + '/data')\n"
        "torch.testing.assert_close(loaded(*args, **kwargs)['z'], z)\n"
        "print([m for m in ('argand.capture.trace', 'argand.autograd.trace', 'llvmlite.binding', 'tests') if m in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", text, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    assert "capture" not in done.stdout and "tests" not in done.stdout
