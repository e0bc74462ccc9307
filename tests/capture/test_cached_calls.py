"""Functions with a cache (`functools.lru_cache`) that are asked by objects and sizes: what the cache holds, as in Python."""

import functools
import gc
import weakref

import pytest
import torch

import argand
from argand.support import events

OWN = {"cache": False, "measure": False}


class Recipe:
    """Known by what it is, as einops' are."""

    def __init__(self, *order):
        self.order = list(order)


class ByValue(Recipe):
    """Two with one order are one key."""

    def __eq__(self, other):
        return self.order == other.order

    def __hash__(self):
        return hash(tuple(self.order))


@functools.lru_cache
def planned(recipe, shape, how=()):
    lengths = [shape[k] for k in recipe.order]
    return lengths if shape else None, {"scale": len(lengths) + len(how)}


def program(x, recipe):
    order, facts = planned(recipe, x.shape, how=(("a", 1),))
    return x.sin().reshape(order) * facts["scale"]


@pytest.fixture(autouse=True)
def _empty():
    planned.cache_clear()
    torch.manual_seed(0)


def told(call, *arguments):
    """A result, and how many breaks and compiles there were."""
    with events.collect() as seen:
        result = call(*arguments)
    return result, seen.total("capture.breaks"), seen.total("compiles")


def test_an_object_that_a_cache_knows_by_identity_is_no_break():
    call, recipe, x = argand.compile(program, options=OWN), Recipe(1, 0), torch.randn(3, 4)
    for expected_compiles in (1, 0):
        result, breaks, compiles = told(call, x, recipe)
        torch.testing.assert_close(result, program(x, recipe))
        assert (breaks, compiles) == (0, expected_compiles)
    other = Recipe(0, 1)
    result, breaks, compiles = told(call, x, other)  # another object: another key
    torch.testing.assert_close(result, program(x, other))
    assert result.shape == (3, 4) and breaks == 0 and compiles == 1


def test_what_the_cache_holds_is_used_though_the_object_has_changed():
    call, recipe, x = argand.compile(program, options=OWN), Recipe(1, 0), torch.randn(3, 4)
    assert call(x, recipe).shape == (4, 3)
    recipe.order.reverse()
    assert call(x, recipe).shape == program(x, recipe).shape == (4, 3)
    planned.cache_clear()
    assert call(x, recipe).shape == program(x, recipe).shape == (3, 4)


def test_sizes_that_ask_a_cache_have_an_entry_each():
    call, recipe = argand.compile(program, options=OWN), Recipe(1, 0)
    for n in (3, 5, 6, 3, 5, 6):
        x = torch.randn(n, 4)
        result, breaks, _ = told(call, x, recipe)
        torch.testing.assert_close(result, program(x, recipe))
        assert not breaks
    planned(recipe, torch.Size((7, 4)), how=(("a", 1),))
    recipe.order.reverse()  # the cache has the old one for 7, none for 8
    for n, shape in ((7, (4, 7)), (8, (8, 4))):
        x = torch.randn(n, 4)
        assert call(x, recipe).shape == program(x, recipe).shape == shape


def test_a_size_that_must_stay_open_is_a_break_and_no_error():
    def scaled(x, recipe):
        return x.sin() * planned(recipe, x.shape)[1]["scale"]

    call, recipe = argand.compile(scaled, options=OWN), Recipe(1, 0)
    for n in (3, 5):
        x = torch.randn(n, 4)
        argand.mark_dynamic(x, 0)
        torch.testing.assert_close(call(x, recipe), scaled(x, recipe))


def test_objects_with_an_equality_of_their_own_are_keys_by_value():
    call, x = argand.compile(program, options=OWN), torch.randn(3, 4)
    for order in ((1, 0), (0, 1), (1, 0)):
        torch.testing.assert_close(call(x, ByValue(*order)), program(x, ByValue(*order)))


def test_the_object_is_not_kept_alive():
    call, recipe, x = argand.compile(program, options=OWN), Recipe(1, 0), torch.randn(3, 4)
    call(x, recipe)
    gone = weakref.ref(recipe)
    del recipe
    planned.cache_clear()
    gc.collect()
    assert gone() is None
    fresh = Recipe(0, 1)
    torch.testing.assert_close(call(x, fresh), program(x, fresh))
