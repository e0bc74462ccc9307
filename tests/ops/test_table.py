"""One row per op: each column is complete, and what other rooms know of ops is about ops that exist."""

import pytest
import torch

from argand.autograd.functional import is_composite
from argand.native.lower.table import KEPT
from argand.native.lower.table import TABLE as LOWERINGS
from argand.ops import facts
from argand.ops.decompositions import decompositions
from argand.ops.rows import TABLE, draws, row_of
from argand.ops.table import Draws, Kind, Raises
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
