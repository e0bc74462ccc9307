"""Values survive the disk exactly, and what cannot is refused with a reason."""

import json
import math
import operator
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from argand.runtime.disk.format import Damaged
from argand.runtime.disk.values import Unstorable, dump, load
from argand.runtime.launch import Fresh, Sym

plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
nested = st.recursive(
    plain,
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(nested)
def test_round_trip(value):
    assert repr(load(dump(value))) == repr(value)


def test_torch_values():
    values = (
        torch.float32,
        torch.strided,
        torch.channels_last,
        torch.device("cpu"),
        torch.Size([2, 3]),
        slice(1, None, 2),
        range(3),
        3 - 2j,
        ...,
        -0.0,
        torch.ops.aten.mm.default,
        torch.ops.aten.add.Tensor,
        torch.add,
        torch.nn.functional.gelu,
        torch.nn.functional.layer_norm,
        torch.nn.functional.max_pool2d,
        torch.Tensor.add_,
        torch.linalg.norm,
        operator.getitem,
        math.sqrt,
    )
    back = load(dump(values))
    assert all(a is b or a == b for a, b in zip(values, back, strict=True))
    assert math.copysign(1, back[values.index(-0.0)]) == -1 and math.isnan(load(dump(math.nan)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8, torch.bool])
def test_tensors_keep_bits_and_strides(dtype):
    whole = (torch.randn(4, 6) * 5).to(dtype)
    for tensor in (whole, whole.t(), whole[1:3, ::2], whole[:0], torch.tensor(3).to(dtype)):
        back = load(dump([tensor, 1]))[0]
        assert back.dtype == dtype and back.stride() == tensor.stride()
        assert torch.equal(back, tensor)


def test_records():
    fresh = Fresh((2, Sym(0)), (1, 1), torch.float64)
    records = (Fresh, Sym)
    assert load(dump([fresh], records), records) == [fresh]
    with pytest.raises(Unstorable, match="Fresh"):
        dump(fresh)
    with pytest.raises(Damaged):
        load(dump([fresh], records), (Fresh,))


class _Own:
    """A class of the user's."""


@pytest.mark.parametrize("value", [_Own(), _Own, lambda: 0, print, torch.nn.Linear(1, 1), object])
def test_refused(value):
    with pytest.raises(Unstorable):
        dump((1, [value]))


def test_hostile_data_raises_damaged_only():
    """Whatever stands in the data, reading it is an answer or ``Damaged``."""
    value = (torch.float32, torch.ones(3), {"a": (1, [2.5])}, torch.ops.aten.mm.default, torch.add)
    sections = dump(value)
    text = sections["data"]
    generator = random.Random(0)
    for _ in range(3000):
        changed = bytearray(text)
        for _ in range(generator.randint(1, 4)):
            changed[generator.randrange(len(changed))] = generator.choice(b'[]{}",:019-etornufal"')
        try:
            load({"data": bytes(changed), "tensors": sections["tensors"]})
        except Damaged:
            pass
    for data in (["function", "os", "system"], ["function", "torch", "os.system"]):
        with pytest.raises(Damaged):
            load({"data": json.dumps(data).encode(), "tensors": b""})
    with pytest.raises(Damaged):
        load({"data": b"[" * 100000, "tensors": b""})
