"""Whatever reads the values of a tensor is a break or eager's, never a look into the memory of a fake.

As a program (``python -m tools.unreadable tests/capture/test_reads.py``) it runs all of them with unreadable fakes.
"""

import copy
import math
import subprocess
import sys

import numpy
import pytest
import torch
import torch.nn.functional as F

import argand

lp = torch.randn(10, 2, 5, generator=torch.Generator().manual_seed(0)).log_softmax(2)


def written(x):
    y = x * 1
    y[[x[1].long(), x[2].long()],] = 5
    return y


READS = {
    "written": written,
    "stack": lambda x: torch.tensor([x[1], x[2]]) + 1,
    "idx": lambda x: x[[x[3].long(), 4],] * 2,
    "idx2": lambda x: x.view(4, 5)[[0, x[2].long()], [1, x[1].long()]],
    "Tensor": lambda x: torch.Tensor([x[1], x[2]]) + 1,
    "Float": lambda x: torch.FloatTensor([x[1], x[2]]) + 1,
    "new": lambda x: x.new([x[1], x[2]]) + 1,
    "asarray": lambda x: torch.asarray([x[1], x[2]]) + 1,
    "split": lambda x: torch.stack(x.tensor_split(torch.tensor([5, 10, 15]))),
    "ctc": lambda x: F.ctc_loss(
        lp, torch.tensor([[1, 2], [3, 4]]), torch.tensor([10, 9]), torch.tensor([2, 1])
    ),
    "ctc2": lambda x: F.ctc_loss(
        lp,
        torch.tensor([[1, 2], [3, 4]]) + x[0].long(),
        torch.tensor([10, 9]) + x[0].long(),
        torch.tensor([2, 1]) + x[0].long(),
    ),
    "dl": lambda x: torch.from_dlpack(x * 1) + 1,
    "todl": lambda x: torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x * 1)) + 1,
    "np": lambda x: torch.from_numpy((x * 2).numpy()) + 1,
    "sqrtnp": lambda x: torch.as_tensor(numpy.sqrt(x * 2)) + 1,
    "lst": lambda x: sum((x * 1).tolist()),
    "mem": lambda x: torch.tensor((x * 1).numpy().tolist()) + 1,
    "frombuf": lambda x: (x * 1).untyped_storage()[0],
    "deepcopy": lambda x: copy.deepcopy(x * 1) + 1,
    "tensorof": lambda x: torch.tensor(x * 1) + 1,
    "newt": lambda x: x.new_tensor([x[1]]) + 1,
    "arange": lambda x: torch.arange(x[3]) + 1,
    "full": lambda x: torch.full((3,), x[3]) + 1,
    "scalar": lambda x: torch.scalar_tensor(x[3]) + 1,
    "alpha": lambda x: x.add(x, alpha=x[3]),
    "repeat": lambda x: x.repeat(x[3].long()),
    "view": lambda x: x.view(x[4].long(), -1),
    "expand": lambda x: x[:1].expand(x[4].long()),
    "interp2": lambda x: F.interpolate(x.view(1, 1, 20), size=x[2].long()),
    "onehot": lambda x: F.one_hot(x.long()),
    "onehot2": lambda x: F.one_hot(x.long(), 30),
    "linspace": lambda x: torch.linspace(x[1], x[2], 5),
    "clampt": lambda x: x.clamp(x[1], x[3]),
    "cond": lambda x: torch.where(x > 3, x, x[1]),
    "slicet": lambda x: x[x[1].long() : x[5].long()] * 2,
    "sel": lambda x: x[x[1].long()] * 2,
    "rot": lambda x: x.roll(x[1].long()),
    "pad": lambda x: F.pad(x, (x[1].long(), x[2].long())),
    "stackidx": lambda x: x[torch.stack([x[1].long(), x[2].long()])],
    "seqsum": lambda x: sum([x[1], x[2]]),
    "mx": lambda x: max(x[1], x[2]),
    "eq": lambda x: torch.equal(x * 1, x),
    "contains": lambda x: 3.0 in (x * 1),
    "bool": lambda x: x + 1 if (x[1] * 1) else x,
    "hist": lambda x: torch.histc(x, 5, x.min(), x.max()),
    "sizes": lambda x: torch.zeros(x[2].long(), 3) + 1,
    "randint": lambda x: torch.randint(0, x[3].long() + 1, (3,)) * 0,
    "embedbag": lambda x: F.embedding_bag(
        torch.tensor([1, 2, 3]), x.view(10, 2), torch.tensor([0, 2])
    ),
    "pack": lambda x: (
        torch.nn.utils.rnn.pack_padded_sequence(
            x.view(2, 5, 2), torch.tensor([5, 3]) + 0 * x[0].long(), batch_first=True
        ).data
    ),
    "segment": lambda x: torch.segment_reduce(
        x, "sum", lengths=torch.tensor([10, 10]) + 0 * x[0].long()
    ),
    "bag": lambda x: torch.bincount(x.long()),
    "cart": lambda x: torch.cartesian_prod(x[:2], x[:3]),
    "complexs": lambda x: complex(x[1]),
    "index": lambda x: [1, 2, 3, 4][x[1].long()] * x,
    "dictk": lambda x: {1: 2.0}[int(x[1])] * x,
    "rng": lambda x: sum(range(x[3].long())),
    "rnd": lambda x: round(x[3] * 1.5),
    "mathf": lambda x: math.sqrt(x[3] * 1.5),
    "npf": lambda x: numpy.float32(x[3] * 1.5),
    "nparr": lambda x: numpy.array([x[3] * 1.5, x[2]]).sum(),
    "unflatten": lambda x: x.unflatten(0, (x[4].long(), 5)),
    "splitt": lambda x: torch.stack(x.split([x[10].long(), x[10].long()])),
    "split_sizes": lambda x: torch.stack(torch.split(x, x[10].long())),
    "chunk": lambda x: x.chunk(x[2].long())[0],
    "topk": lambda x: x.topk(x[3].long())[0],
    "narrow": lambda x: x.narrow(0, torch.tensor(3) + 0 * x[0].long(), 4),
    "narrowt": lambda x: torch.narrow(x, 0, x[3].long(), 4),
    "idxlist": lambda x: x.view(4, 5)[[x[1].long()]],
    "idxnest": lambda x: x[[[x[1].long()], [x[2].long()]],],
    "diagonal": lambda x: torch.diag(x, x[1].long()),
    "tril": lambda x: torch.tril(x.view(4, 5), x[1].long()),
    "fold": lambda x: x.unfold(0, x[4].long(), 2),
    "svd": lambda x: torch.linalg.svdvals(x.view(4, 5)),
    "matrix_rank": lambda x: torch.linalg.matrix_rank(x.view(4, 5)),
    "matrix_power": lambda x: torch.linalg.matrix_power(x[:16].view(4, 4), x[3].long()),
    "cholesky": lambda x: torch.linalg.cholesky(torch.eye(3) * x[2]),
    "stft": lambda x: torch.stft(x, 8, window=torch.hann_window(8), return_complex=True).abs(),
    "nonzero": lambda x: torch.nonzero(x),
    "argwhere": lambda x: torch.argwhere(x),
    "mask": lambda x: x[x > 3],
    "masked_select": lambda x: torch.masked_select(x, x > 3),
    "tovec": lambda x: torch.nn.utils.parameters_to_vector([x, x]),
    "iter": lambda x: sum(v for v in x),
    "unpack": lambda x: (lambda a, b, *c: a + b)(*x),
    "zip_": lambda x: sum(a * b for a, b in zip(x, x)),
}


def run(function, x):
    torch.manual_seed(1)
    try:
        return torch.as_tensor(function(x)).to(torch.float64)
    except Exception as error:
        return error


def check(name):
    function, x = READS[name], torch.arange(20.0)
    want, found = run(function, x), run(argand.compile(function), x)
    if isinstance(want, Exception):
        assert isinstance(found, type(want)), f"{name}: {found!r} instead of {want!r}"
    else:
        assert not isinstance(found, Exception), f"{name}: {found!r}"
        assert torch.allclose(found, want, equal_nan=True), name


@pytest.mark.parametrize("name", READS)
@pytest.mark.filterwarnings("ignore")
def test_values_are_read_where_they_are(name):
    check(name)


def test_no_fake_is_read():
    command = [sys.executable, "-W", "ignore", "-m", "tools.unreadable", __file__]
    child = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert child.returncode == 0, child.stdout + child.stderr


def test_a_read_is_named(tmp_path):
    path = tmp_path / "reads.py"
    path.write_text(
        "import torch, argand\n"
        "from argand.ops import fakes\n"
        "fakes.check_reads.__code__ = (lambda *_: None).__code__\n"
        "argand.compile(lambda x: x[[x[3].long(), 4],])(torch.arange(20.0))\n"
    )
    child = subprocess.run(
        [sys.executable, "-m", "tools.unreadable", str(path)], capture_output=True, text=True
    )
    assert child.returncode == 1
    assert "a fake was read by getitem" in child.stdout


if __name__ == "__main__":
    for each in READS:
        check(each)
