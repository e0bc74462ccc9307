"""ops.facts: the columns of the table that few ops have, each with the names of those ops.

Rows of ops that have a type rule are in the families; an op that is only named here has a row too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from argand.ops.table import Blas, Draws, Raises

# torch tags most ops that draw; these are tagged, but draw only when an argument asks for it.
WITH_DROPOUT: Final = """
    scaled_dot_product_attention _scaled_dot_product_attention_math _scaled_dot_product_flash_attention
    _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_efficient_attention
    _scaled_dot_product_fused_attention_overrideable"""

ON_VALUES: Final = """
    index.Tensor _unsafe_index.Tensor index_put _unsafe_index_put _index_put_impl index_select gather take put
    scatter.src scatter.value scatter.reduce scatter.value_reduce scatter_add scatter_reduce.two
    index_add index_copy index_reduce index_fill.int_Scalar index_fill.int_Tensor masked_scatter
    embedding _embedding_bag _embedding_bag_forward_only embedding_renorm nll_loss_forward nll_loss2d_forward
    multi_margin_loss multilabel_margin_loss_forward _ctc_loss.Tensor _ctc_loss max_unpool2d max_unpool3d
    bincount repeat_interleave.Tensor
    binary_cross_entropy bernoulli bernoulli.Tensor bernoulli_.Tensor multinomial poisson
    normal.Tensor_Tensor normal.float_Tensor _sample_dirichlet
    _assert_async _assert_async.msg _assert_scalar _linalg_check_errors
    linalg_cholesky_ex linalg_inv_ex linalg_lu_factor_ex linalg_solve_ex _linalg_solve_ex linalg_ldl_factor_ex
    _linalg_eigh linalg_eig _linalg_svd linalg_lstsq cholesky cholesky_inverse"""

ON_INTEGERS: Final = """
    div.Tensor_mode div.Scalar_mode floor_divide floor_divide.Scalar
    remainder.Tensor remainder.Scalar remainder.Scalar_Tensor fmod.Tensor fmod.Scalar"""

# torch tags most of those that answer with Python values or sizes of the data; these it does not tag.
DATA_DEPENDENT: Final = """
    equal is_nonzero _local_scalar_dense allclose item _pack_padded_sequence"""

# Composite functions that take indices or lengths from the memory of a tensor.
READS_MEMORY: Final = """
    tensor_split.tensor_indices_or_sections _pad_packed_sequence lstm.input lstm.data gru.input gru.data
    rnn_tanh.input rnn_tanh.data rnn_relu.input rnn_relu.data"""

CHANGES_STORAGE: Final = """
    resize_ resize_as_ set_ set_.source_Storage set_.source_Storage_storage_offset set_.source_Tensor
    set_.source_Tensor_storage_offset set_data"""

# Running statistics.
HIDDEN_WRITES: Final = """
    native_batch_norm batch_norm instance_norm _batch_norm_impl_index"""

# Both traces of a program with an open float make the same graph of these, whatever the float is.
OPEN_FLOATS: Final = """
    add.Tensor add.Scalar sub.Tensor sub.Scalar rsub.Tensor rsub.Scalar mul.Tensor mul.Scalar div.Tensor
    div.Scalar pow.Tensor_Scalar pow.Scalar clamp clamp_min clamp_max full full_like fill.Scalar
    masked_fill.Scalar scalar_tensor where.Scalar where.ScalarOther where.ScalarSelf addcmul addcdiv
    eq.Scalar ne.Scalar lt.Scalar le.Scalar gt.Scalar ge.Scalar"""

# (column, its value, the ops that have it)
COLUMNS: Final = (
    ("draws", Draws.WITH_DROPOUT, WITH_DROPOUT),
    ("raises", Raises.ON_VALUES, ON_VALUES),
    ("raises", Raises.ON_INTEGERS, ON_INTEGERS),
    ("data_dependent", True, DATA_DEPENDENT),
    ("reads_memory", True, READS_MEMORY),
    ("changes_storage", True, CHANGES_STORAGE),
    ("hidden_writes", True, HIDDEN_WRITES),
    ("open_floats", True, OPEN_FLOATS),
    ("blas", Blas.PLAIN, "mm bmm"),
    ("blas", Blas.BIASED, "addmm baddbmm"),
)

OF_NUMBERS: Final = """
    tensor as_tensor asarray new_tensor new sparse_coo_tensor Tensor FloatTensor DoubleTensor HalfTensor
    BFloat16Tensor LongTensor IntTensor ShortTensor CharTensor ByteTensor BoolTensor"""

# The same for functions of Python, by their names.
FUNCTION_COLUMNS: Final = (
    ("reads_memory", True, " ".join(name.partition(".")[0] for name in READS_MEMORY.split())),
    ("makes_of_numbers", True, OF_NUMBERS),
    ("indexes", True, "getitem setitem __getitem__ __setitem__"),
    ("offset_place", 0, "storage_offset"),
    ("offset_place", 3, "as_strided as_strided_ as_strided_copy"),
    ("offset_place", 4, "as_strided_scatter"),
)


def columns(
    table: Iterable[tuple[str, object, str]] = COLUMNS,
) -> Mapping[str, Mapping[str, object]]:
    """For each name in a table of columns, its columns."""
    found: dict[str, dict[str, object]] = {}
    for column, value, names in table:
        for name in names.split():
            found.setdefault(name, {})[column] = value
    return found
