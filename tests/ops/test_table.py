"""One row per op: each column is complete, and what other rooms know of ops is about ops that exist."""

import operator

import pytest
import torch

from argand.autograd.functional import Action, is_composite, recipe_of
from argand.autograd.geometry import UNDONE
from argand.native.lower.table import KEPT
from argand.native.lower.table import TABLE as LOWERINGS
from argand.ops import facts
from argand.ops.decompositions import decompositions
from argand.ops.rows import FUNCTIONS, TABLE, draws, row_of
from argand.ops.table import Blas, Draws, Kind, Raises
from argand.sizes.formulas import FORMULAS

ATEN = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]


def op_of(name):
    packet, _, overload = name.removeprefix("aten::").partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def names_of(rows):
    return sorted(row.name for row in rows)


@pytest.mark.parametrize("name", TABLE)
def test_a_row_is_about_an_op_of_torch(name):
    assert op_of(name).name() == name


def test_every_op_of_the_families_has_a_type_rule():
    named = {name for _, _, names in facts.COLUMNS for name in names.split()}
    assert not [row.name for row in TABLE.values() if row.infer is None and row.name not in named]


def test_every_op_has_a_row():
    for name in ATEN:
        row = row_of(op_of(name))
        assert row.kind is not Kind.VIEW or op_of(name).is_view or row.infer is not None


def test_torch_and_the_table_agree_on_what_is_random():
    """One answer: the tag of torch, and the rate of attention's dropout."""
    tagged = {name for name in ATEN if torch.Tag.nondeterministic_seeded in op_of(name).tags}
    assert tagged == {name for name in ATEN if row_of(op_of(name)).draws is not Draws.NEVER}
    for row in TABLE.values():
        if row.kind is Kind.RANDOM:
            assert row_of(op_of(f"aten::{row.name}")).draws is Draws.ALWAYS, row.name


def test_attention_draws_when_it_drops():
    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    x = torch.ones(1, 1, 2, 2)
    assert not draws(attention, (x, x, x))
    assert not draws(attention, (x, x, x, 0.0))
    assert draws(attention, (x, x, x, 0.5))
    assert draws(attention, (x, x, x), {"dropout_p": 0.5})


def test_decompositions_have_rows():
    functional = [func for func in decompositions() if not func._schema.is_mutable]
    assert names_of(row_of(func) for func in functional if row_of(func).infer is None) == []


def test_lowerings_have_rows():
    """But for views, and for composite ops: those come in graphs made by hand only."""
    missing = []
    for name in LOWERINGS:
        namespace, packet, overload = name.split(".")
        found = getattr(getattr(getattr(torch.ops, namespace), packet, None), overload, None)
        if found is None or namespace != "aten" or found.is_view or is_composite(found):
            continue
        if row_of(found).infer is None:
            missing.append(name)
    assert not missing


def test_what_is_kept_whole_is_lowered():
    assert not [name for name in KEPT if name not in LOWERINGS]


def test_size_formulas_are_about_ops_of_torch():
    assert not [name for name in FORMULAS if not hasattr(torch.ops.aten, name)]


def test_what_raises_on_integers_has_one_result():
    for row in TABLE.values():
        if row.raises is Raises.ON_INTEGERS:
            assert len(op_of(row.name)._schema.returns) == 1, row.name


def test_products_that_go_to_blas_are_matrix_products_with_the_operands_that_the_column_says():
    operands = {Blas.PLAIN: 2, Blas.BIASED: 3}
    found = {row.name: row for row in TABLE.values() if row.blas is not Blas.NONE}
    assert set(found) == {"mm", "bmm", "addmm", "baddbmm"}
    for row in found.values():
        tensors = [a for a in op_of(row.name)._schema.arguments if str(a.type) == "Tensor"]
        assert row.kind is Kind.MATMUL and len(tensors) == operands[row.blas], row.name


def test_a_write_comes_back_through_every_view_of_dense_memory_but_for_those_named_here():
    """The others are views of sparse and nested tensors, and of forward mode."""
    views = {
        name
        for name in ATEN
        if op_of(name).is_view and recipe_of(op_of(name)).action is Action.VIEW
    }
    missing = {name.removeprefix("aten::") for name in views if op_of(name) not in UNDONE}
    of_others = {
        name
        for name in missing
        if any(word in name for word in ("indices", "values", "nested", "sparse"))
    }
    assert missing - of_others == {
        *("split.Tensor", "split_with_sizes", "unbind.int"),  # taken apart into other views
        *("unfold", "slice_inverse", "lift_fresh"),  # a write through these runs in eager
        *("_fw_primal", "_make_dual", "_test_autograd_multiple_dispatch_view"),
    }
    assert not [func for func in UNDONE if is_composite(func)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_row_of_a_function_is_about_one_of_torch(name):
    found = [hasattr(home, name) for home in (torch, torch.Tensor, torch._VF, operator)]
    assert any(found), name
    assert FUNCTIONS[name] != type(FUNCTIONS[name])(name=name)
