"""Errors that eager raises because of the values in a tensor: compiled code raises them too, of the same type and text.

Each case also runs with nobody reading the result: eager raises all the same, so such a call is never dead.
"""

import pytest
import torch

import argand
from argand.ops.rows import TABLE
from argand.ops.table import Raises

F = torch.nn.functional
INDEX = torch.tensor([0, 9, 1])
BELOW = torch.tensor([0, -9, 1])
TABLE_ = torch.ones(4, 3)
ONES = torch.ones(3)
SINGULAR = torch.zeros(3, 3)
# op -> calls that eager refuses; a call gets its tensors as inputs of the graph
CASES = {
    "index.Tensor": [
        (lambda x, i: x[i], TABLE_, INDEX),
        (lambda x, i: x[:, i], TABLE_, BELOW),
        (lambda x, i: x[i, i], TABLE_, INDEX),
    ],
    "index_put": [(lambda x, i: x.index_put((i,), x[0]), TABLE_, INDEX)],
    "index_select": [
        (lambda x, i: x.index_select(0, i), TABLE_, INDEX),
        (lambda x, i: x.index_select(0, -i), TABLE_, torch.tensor([1])),
        (lambda x, i: x.index_select(1, i), TABLE_, INDEX),
    ],
    "gather": [
        (lambda x, i: x.gather(0, i[None]), TABLE_, INDEX),
        (lambda x, i: x.gather(1, -i[:, None]), TABLE_, torch.tensor([0, 1])),
    ],
    "take": [(lambda x, i: x.take(i * 4), TABLE_, INDEX)],
    "put": [(lambda x, i: x.put(i * 4, torch.ones(3)), TABLE_, INDEX)],
    "scatter.value": [(lambda x, i: x.scatter(0, i[None], 1.0), TABLE_, INDEX)],
    "scatter.src": [(lambda x, i: x.scatter(0, i[None], x), TABLE_, INDEX)],
    "scatter_add": [(lambda x, i: x.scatter_add(0, i[None], x), TABLE_, INDEX)],
    "scatter_reduce.two": [(lambda x, i: x.scatter_reduce(0, i[None], x, "amax"), TABLE_, INDEX)],
    "index_add": [(lambda x, i: x.index_add(0, i, x[:3]), TABLE_, INDEX)],
    "index_copy": [(lambda x, i: x.index_copy(0, i, x[:3]), TABLE_, INDEX)],
    "index_reduce": [(lambda x, i: x.index_reduce(0, i, x[:3], "amax"), TABLE_, INDEX)],
    "index_fill.int_Scalar": [(lambda x, i: x.index_fill(0, i, 1.0), TABLE_, INDEX)],
    "masked_scatter": [(lambda x, m: x.masked_scatter(m > 0, m[:1]), ONES, ONES)],
    "embedding": [
        (lambda i, w: F.embedding(i, w), INDEX, TABLE_),
        (lambda i, w: F.embedding(-i, w), torch.tensor([1]), TABLE_),
    ],
    "nll_loss_forward": [
        (lambda x, t: F.nll_loss(x, t), TABLE_, torch.tensor([0, 1, 2, 5])),
        (lambda x, t: F.nll_loss(x, t, reduction="none"), TABLE_, torch.tensor([0, 1, 2, -1])),
        (lambda x, t: F.cross_entropy(x, t, torch.ones(3)), TABLE_, torch.tensor([0, 1, 2, 3])),
        (lambda x, t: F.nll_loss(x[0], t), TABLE_, torch.tensor(7)),
    ],
    "nll_loss2d_forward": [
        (lambda x, t: F.nll_loss(x, t), torch.ones(1, 3, 2, 2), torch.tensor([[[0, 1], [5, 0]]]))
    ],
    "multi_margin_loss": [
        (lambda x, t: F.multi_margin_loss(x, t), TABLE_, torch.tensor([0, 1, 2, 5]))
    ],
    "bincount": [(lambda i: torch.bincount(i, minlength=4), torch.tensor([-1, 2]))],
    "repeat_interleave.Tensor": [
        (lambda i: torch.repeat_interleave(i, output_size=3), torch.tensor([-1, 2]))
    ],
    "binary_cross_entropy": [
        (lambda x, t: F.binary_cross_entropy(x * 2, t), ONES, ONES),
        (lambda x, t: F.binary_cross_entropy(x, t * 2, reduction="sum"), ONES, ONES),
        (lambda x, t: F.binary_cross_entropy(x.half() * 2, t.half()), ONES, ONES),
        (lambda x, t: F.binary_cross_entropy(x * float("nan"), t), ONES, ONES),
    ],
    "bernoulli": [
        (lambda x: torch.bernoulli(x * 2), ONES),
        (lambda x: torch.bernoulli(x.double() * -1), ONES),
    ],
    "bernoulli.Tensor": [(lambda x: torch.zeros(3).bernoulli_(x * 2), ONES)],
    "multinomial": [(lambda x: torch.multinomial(-x, 1), ONES)],
    "poisson": [(lambda x: torch.poisson(-x), ONES)],
    "normal.Tensor_Tensor": [(lambda x: torch.normal(x, -x), ONES)],
    "normal.float_Tensor": [(lambda x: torch.normal(0.0, -x), ONES)],
    "_assert_async": [(lambda x: torch._assert_async(x.sum()), torch.zeros(3))],
    "_assert_async.msg": [(lambda x: torch._assert_async((x > 9).all(), "too small"), ONES)],
    "_linalg_check_errors": [
        (lambda a: torch.linalg.cholesky(-1 - a), SINGULAR),
        (lambda a: torch.linalg.inv(a * 2), SINGULAR),
        (lambda a: torch.linalg.solve(a * 2, a[0] + 1), SINGULAR),
        (lambda a: torch.linalg.lu_factor(a * 2), SINGULAR),
        (lambda a: torch.linalg.ldl_factor(a * 2), SINGULAR),
        (lambda a: torch.linalg.tensorinv(a * 2, 1), SINGULAR),
    ],
    "cholesky": [(lambda a: torch.cholesky(-1 - a), SINGULAR)],
    "div.Tensor_mode": [(lambda i, j: torch.div(i, j, rounding_mode="floor"), INDEX, INDEX)],
    "floor_divide": [(lambda i, j: i // j, INDEX, INDEX)],
    "remainder.Tensor": [(lambda i, j: i % j, INDEX, INDEX)],
    "fmod.Tensor": [(lambda i, j: torch.fmod(i, j), INDEX, INDEX)],
}
# No call of these reaches a graph whose values could make it raise, or none was found that does.
WITHOUT_CASE = """
    _unsafe_index.Tensor _unsafe_index_put _index_put_impl scatter.reduce scatter.value_reduce index_fill.int_Tensor
    _embedding_bag _embedding_bag_forward_only embedding_renorm multilabel_margin_loss_forward _ctc_loss
    _ctc_loss.Tensor max_unpool2d max_unpool3d bernoulli_.Tensor _sample_dirichlet _assert_scalar
    linalg_cholesky_ex linalg_inv_ex linalg_lu_factor_ex linalg_solve_ex _linalg_solve_ex linalg_ldl_factor_ex
    _linalg_eigh linalg_eig _linalg_svd linalg_lstsq cholesky_inverse
    div.Scalar_mode floor_divide.Scalar remainder.Scalar remainder.Scalar_Tensor fmod.Scalar"""


def raised(function, *args):
    with pytest.raises((RuntimeError, IndexError)) as caught:
        function(*args)
    return type(caught.value), str(caught.value)


def compiled(function):
    return argand.compile(function, options={"cache": False})


@pytest.mark.filterwarnings("ignore:torch.cholesky is deprecated")
@pytest.mark.parametrize(
    ("op", "case"), [(op, case) for op, cases in CASES.items() for case in cases]
)
def test_compiled_code_raises_what_eager_raises(op, case):
    function, *args = case
    expected = raised(function, *args)

    def unread(*args):
        function(*args)
        return args[0] + 1

    assert raised(compiled(function), *args) == expected
    assert raised(compiled(unread), *args) == expected


def test_every_op_that_raises_has_a_case():
    raising = {row.name for row in TABLE.values() if row.raises is not Raises.NEVER}
    assert raising == CASES.keys() | set(WITHOUT_CASE.split())


def test_nothing_is_written_before_an_error():
    def step(x, a):
        y = torch.linalg.inv(a)
        x.add_(1)
        return x + y.sum()

    x = torch.zeros(3)
    raised(compiled(step), x, SINGULAR)
    assert not x.any()


def test_what_is_right_passes():
    def fine(x, i):
        torch._assert_async((x > 0).all(), "too small")
        return (
            F.binary_cross_entropy(x, x),
            x[i],
            F.one_hot(i, 3),
            torch.linalg.inv(torch.diag(x)),
            x.gather(0, i),
        )

    x, index = torch.rand(3) * 0.5 + 0.25, torch.tensor([0, 2, 1])
    for actual, expected in zip(compiled(fine)(x, index), fine(x, index), strict=True):
        torch.testing.assert_close(actual, expected)
        assert actual.stride() == expected.stride()
