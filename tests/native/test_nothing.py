"""Tensors without elements: nothing is read, and types are eager's."""

import pytest
import torch

import argand


def check(function, *inputs):
    argand.reset()
    result = argand.compile(function, fullgraph=True, options={"measure": False, "cache": False})(
        *inputs
    )
    wanted = function(*inputs)
    torch.testing.assert_close(result, wanted, equal_nan=True)


@pytest.mark.parametrize("reduce", [torch.sum, torch.prod, torch.mean, torch.linalg.norm])
def test_reductions_of_a_repeated_nothing_read_no_memory(reduce):
    check(lambda x: reduce(x.cos()), torch.empty_strided((0,), (0,), dtype=torch.float64))


def test_rows_of_a_repeated_nothing_read_no_memory():
    check(
        lambda x: (x.cos().sum(0), x.cos().prod(0, keepdim=True)),
        torch.empty_strided((0, 3), (0, 1)),
    )


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool, torch.float16])
@pytest.mark.parametrize("softmax", [torch.softmax, torch.log_softmax])
def test_softmax_of_nothing_keeps_its_type(dtype, softmax):
    check(lambda x: softmax(x, -1), torch.zeros(2, 0, dtype=dtype))
