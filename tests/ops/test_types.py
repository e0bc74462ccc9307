"""Type rules against eager, on a sample of torch's op database (the whole: ``sweep.py``)."""

import warnings

import pytest
import torch

from .sweep import Compare, show, sweep


@pytest.mark.parametrize(
    ("dtypes", "layouts", "limit"),
    [
        (["f32"], ["same", "transposed"], 2),
        (["f32"], ["channels_last", "gaps"], 2),
        (["bf16", "i64"], ["same"], 2),
    ],
)
def test_rules_agree_with_eager(dtypes: list[str], layouts: list[str], limit: int) -> None:
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    mode = Compare()
    sweep("", dtypes, limit, layouts, mode)
    wrong = [
        f"{name}{show(args)} {show(kwargs)}: rule {show(guess)}, eager {show(actual)}"
        for name, cases in mode.wrong.items()
        for (_, args, kwargs), guess, actual in cases
    ]
    assert not wrong, "\n".join(wrong)
    # Results that depend on data, and odd empty inputs, are the only calls rules leave to torch.
    left = {"index.Tensor", "repeat_interleave.Tensor", "gather", "pixel_unshuffle"}
    assert set(mode.refused) <= left
    assert sum(mode.right.values()) > 1000
