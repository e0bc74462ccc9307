"""By which C function operators are called: the same operator, with the same arguments, arrives at torch."""

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode

from argand.runtime.bindings import quickest

aten = torch.ops.aten


class Seen(TorchDispatchMode):
    """The operators that arrive, with their arguments; nothing is imported by it."""

    def __init__(self):
        super().__init__()
        self.calls = []

    @classmethod
    def _should_skip_dynamo(cls):
        return False

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        self.calls.append((op, args, kwargs or {}))
        return op(*args, **(kwargs or {}))


def seen(function, *args, **kwargs):
    with torch.no_grad(), Seen() as mode:
        function(*args, **kwargs)
    return mode.calls


def first_calls():
    """What the first sample of every operator of torch's database comes down to."""
    for info in op_db:
        if torch.float32 not in info.dtypes:
            continue
        sample = next(iter(info.sample_inputs("cpu", torch.float32)), None)
        if sample is None:
            continue
        try:
            calls = seen(info, sample.input, *sample.args, **sample.kwargs)
        except Exception:  # not for this machine
            continue
        for op, args, kwargs in calls:
            if not op._schema.is_mutable:
                yield op, args, kwargs


def normal(op, args, kwargs):
    """All arguments by name, defaults written out, as text (tensors by what they are)."""
    given = dict(zip((each.name for each in op._schema.arguments), args, strict=False)) | kwargs
    return {
        each.name: str(given.get(each.name, each.default_value)) for each in op._schema.arguments
    }


def test_the_same_operator_arrives():
    torch.manual_seed(0)
    tried = set()
    for op, args, kwargs in first_calls():
        function = quickest(op)
        if function is op._op:
            continue
        (call,) = seen(function, *args, **kwargs)
        assert call[0] is op
        assert normal(*call) == normal(op, args, kwargs), (op, args, kwargs, call)
        tried.add(op)
    assert len(tried) > 100


@pytest.mark.parametrize(
    "op", [aten.add.Tensor, aten.sum.dim_IntList, aten.sin_.default, aten.add.out], ids=str
)
def test_overloads_that_arguments_choose_between_keep_their_own_function(op):
    assert quickest(op) is op._op


@pytest.mark.parametrize(
    "op", [aten.topk.default, aten.cumsum.default, aten._fft_c2r.default], ids=str
)
def test_operators_of_one_form_have_pythons(op):
    assert quickest(op) is not op._op
