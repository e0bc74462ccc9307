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
        self.inner = torch.nn.Sequential(
            torch.nn.Linear(4, 6), torch.nn.GELU(), torch.nn.Linear(6, 4)
        )
        self.tied = self.inner[0].weight
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, pair, scale=1.0, *, mask):
        """Some of everything."""
        self.calls += 1
        x, y = pair
        z = self.inner(x) * scale + y @ self.tied.t()[:, :4]
        return {
            "z": z.masked_fill(mask, 0.0),
            "rest": [x, (z.sum(-1), "text")],
            "calls": self.calls * 1,
        }


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


class Encoder(torch.nn.Module):
    """A batch and a length that are open, a head that is not."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(20, 8)
        self.layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, ids, scale):
        """Sizes in arithmetic, in shapes of results and as results."""
        x = self.layer(self.embed(ids)) * scale
        return {
            "x": x,
            "flat": x.reshape(-1, 8)[1:],
            "count": ids.shape[0] * ids.shape[1],
            "mean": x.sum(1) / ids.shape[1],
        }


def encoder_inputs(batch, length, mark=False):
    torch.manual_seed(batch)
    ids, scale = torch.randint(0, 20, (batch, length)), torch.rand(batch, length, 1)
    if mark:
        for tensor in (ids, scale):
            argand.mark_dynamic(tensor, 0)
            argand.mark_dynamic(tensor, 1, min=3, max=64)
    return ids, scale


@pytest.mark.parametrize("beside", [False, True])
def test_marked_sizes_stay_open(tmp_path, beside, monkeypatch):
    model = Encoder().eval()
    argand.package(model, encoder_inputs(3, 5, mark=True), tmp_path / "m", safetensors=beside)
    for versions in (None, {"torch": "99"}):  # the second: compiled again
        if versions:
            monkeypatch.setattr(packages, "environment", lambda: versions)
        loaded = argand.load(tmp_path / "m")
        with events.collect() as heard, torch.no_grad():
            for batch, length in ((3, 5), (2, 3), (7, 64), (5, 33)):
                args = encoder_inputs(batch, length)
                torch.testing.assert_close(loaded(*args), model(*args), rtol=1e-4, atol=1e-5)
        assert versions or "autograd.trace" not in heard.seconds()
        for (batch, length), match in {
            (4, 65): r"is 65, but the model was packaged for at least 3 and at most 64",
            (4, 2): r"is 2, but",
            (1, 5): r"is 1, but the model was packaged for at least 2$",
        }.items():
            with pytest.raises(UserError, match=match):
                loaded(*encoder_inputs(batch, length))
        ids, scale = encoder_inputs(4, 6)
        with pytest.raises(
            UserError, match=r"argument [01] must be a tensor of torch\.\w+ \[s\d, s\d"
        ):
            loaded(ids, scale[:3])
        with pytest.raises(UserError, match="argument 1 must be a tensor"):
            loaded(ids, scale[..., 0])


def test_facts_of_sizes_are_checked(tmp_path):
    """What the program relied on is an error where it does not hold, not a wrong result."""

    def branching(x, y):
        return (
            x.sum(0) + y[: x.shape[0]].sum(0)
            if x.shape[0] > 30
            else x.mean(0) * y.view(-1, 4, 3).sum((0, 1))
        )

    def example(n, m):
        x, y = torch.randn(n, 3), torch.randn(m, 3)
        argand.mark_dynamic(x, 0)
        argand.mark_dynamic(y, 0)
        return x, y

    for first, fit, unfit in (
        ((5, 8), ((3, 8), (30, 40)), ((31, 8), (5, 9))),
        ((40, 70), ((31, 90), (35, 37)), ((7, 99), (40, 30))),
    ):
        argand.package(branching, example(*first), tmp_path / "m")
        loaded = argand.load(tmp_path / "m")
        for sizes in fit:
            args = example(*sizes)
            torch.testing.assert_close(loaded(*args), branching(*args))
        for sizes in unfit:
            with pytest.raises(UserError, match="packaged|must be"):
                loaded(*example(*sizes))


def test_sizes_that_cannot_be_packaged_say_so(tmp_path):
    x, y = torch.randn(5, 3), torch.randn(4)
    argand.mark_dynamic(x, 0)
    with pytest.raises(UserError, match="marked dynamic, but the program fixes"):
        argand.package(lambda x: x * len(list(range(x.shape[0]))), (x,), tmp_path / "m")
    with pytest.raises(UserError, match="tells the size"):
        argand.package(lambda x, y: y * x.shape[0], (x, y), tmp_path / "m")
    one = torch.randn(1, 3)
    argand.mark_dynamic(one, 0)
    with pytest.raises(UserError, match="not 2 or more"):
        argand.package(lambda x: x * 2, (one,), tmp_path / "m")
