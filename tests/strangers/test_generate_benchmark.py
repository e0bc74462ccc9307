"""The models of `python -m benchmarks.generate`."""

import pytest
import torch

from benchmarks.generate import NAMES, make_model


@pytest.mark.parametrize("name", NAMES)
def test_every_model_runs_at_the_least_size(name):
    model = make_model(name, "tiny", 16)
    with torch.no_grad():
        assert model(torch.ones(1, 4, dtype=torch.long)).logits.shape == (1, 4, 8192)
