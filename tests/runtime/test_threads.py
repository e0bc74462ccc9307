"""The short form of ``make threads`` and of the fuzzer that ``make sanitize`` runs."""

import collections
import random

import pytest
import torch

from tests.runtime import fuzz
from tools import threads

TURNS = {"call": 8, "index": 6, "break": 3, "train": 4, "compile": 2, "reset": 1}


@pytest.fixture
def one_thread_of_torch():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread_of_torch")
def test_eight_threads_compile_train_reset_and_err_at_once():
    bench = threads.run(8, 12, seed=0, kinds=TURNS)
    assert not bench.wrong
    wanted = collections.Counter()
    for number in range(8):
        wanted.update(random.Random(f"0 {number}").choices(list(TURNS), list(TURNS.values()), k=12))
    assert bench.done == wanted


def test_random_rows_are_refused_or_run():
    outcomes = fuzz.run(1500, seed=7)
    assert outcomes["ran"] > 200 and outcomes["refused"] > 200
