"""Caches: a part of an input is written where it belongs, nothing is copied, and errors leave what eager leaves."""

import copy
import gc

import pytest
import torch

import argand
from argand.runtime import _native
from argand.support import events

R = torch.randn
CACHE = (2, 3, 512, 8)


def by_index_copy(cache, new, place):
    cache.index_copy_(2, place, new)
    return (cache[:, :, :16] * 2).sum(-1)


def by_index_put(cache, new, place):
    cache[:, :, place] = new
    return (cache[:, :, :16] * 2).sum(-1)


def by_two_indices(cache, new, place):
    cache[torch.arange(2), :, place] = new[:, :, 0]
    return cache.sum()


def by_scatter(cache, new, place):
    cache.scatter_(2, place.view(1, 1, 1, 1).expand(2, 3, 1, 8), new)
    return cache.sum()


def by_fill(cache, new, place):
    cache.index_fill_(2, place, 3.0)
    return cache.sum() + new


def by_slice(cache, new, _place):
    cache[:, :, 5:6] = new * 2
    return (cache[:, :, :16] * 2).sum(-1)


def by_narrow(cache, new, _place):
    cache.narrow(2, 7, 1).copy_(new)
    return cache @ cache.transpose(-1, -2)[..., :2]


def by_select(cache, new, _place):
    cache.select(2, 9).copy_(new[:, :, 0])
    return cache


WAYS = (
    by_index_copy,
    by_index_put,
    by_two_indices,
    by_scatter,
    by_fill,
    by_slice,
    by_narrow,
    by_select,
)


def compiled(function, **options):
    argand.reset()
    return argand.compile(function, options={"measure": False, "cache": False, **options})


def check(function, *inputs, slots):
    """Results, inputs and versions as in eager; ``slots``: how many writes are to a part of an input in place."""
    run = compiled(function)
    ours, theirs = copy.deepcopy(inputs), copy.deepcopy(inputs)
    with torch.no_grad(), events.collect() as heard:
        for _ in range(2):
            result, wanted = run(*ours), function(*theirs)
            torch.testing.assert_close(result, wanted)
            torch.testing.assert_close(ours, theirs)
    assert [x._version for x in ours] == [x._version for x in theirs]
    assert heard.total("native.slots") == slots
    return run


def plans():
    return [found for found in gc.get_objects() if type(found) is _native.Plan]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_slot_is_written_in_place(way):
    before = plans()
    run = check(way, R(CACHE), R(2, 3, 1, 8), torch.tensor([11]), slots=1)
    cache = R(CACHE)
    with torch.no_grad(), torch.profiler.profile(profile_memory=True) as profile:
        run(cache, R(2, 3, 1, 8), torch.tensor([11]))
    largest = max((event.cpu_memory_usage for event in profile.events()), default=0)
    assert largest < cache.nbytes // 2, "a copy of the cache was made"
    made = [plan for plan in plans() if not any(plan is other for other in before)]
    assert made and all(plan.arena_bytes < cache.nbytes // 2 for plan in made)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_cache_with_gaps_is_written_in_place(way):
    whole = R(2, 3, 600, 16)
    run, theirs = compiled(way), copy.deepcopy(whole)
    new, place = R(2, 3, 1, 8), torch.tensor([11])
    with torch.no_grad():
        torch.testing.assert_close(
            run(whole[:, :, 40:552, 4:12], new, place), way(theirs[:, :, 40:552, 4:12], new, place)
        )
    torch.testing.assert_close(whole, theirs)


def test_old_values_that_are_read_are_kept():
    def shifted(cache, new, place):
        before = cache.sum()
        cache.index_copy_(2, place, new)
        return before, cache.sum()

    check(shifted, R(CACHE), R(2, 3, 1, 8), torch.tensor([11]), slots=0)

    def returned(cache, new, place):
        old = cache.clone()
        cache[:, :, 5:6] = new
        return old, place

    check(returned, R(CACHE), R(2, 3, 1, 8), torch.tensor([11]), slots=0)

    def own(cache, place):
        cache.index_copy_(2, place, cache[:, :, :1] + 1)

    check(own, R(CACHE), torch.tensor([0]), slots=0)

    def accumulated(cache, new, place):
        cache.index_put_((torch.arange(2), place.expand(2)), new[:, 0, 0, 0], accumulate=True)

    check(accumulated, R(2, 3), R(2, 3, 1, 8), torch.tensor([1]), slots=0)


def test_results_are_tensors_of_their_own():
    def f(cache, new, place):
        cache.index_copy_(2, place, new)
        return cache.clone(), cache, cache[:, 0]

    run = compiled(f)
    cache, new, place = R(CACHE), R(2, 3, 1, 8), torch.tensor([4])
    with torch.no_grad():
        copied, same, view = run(cache, new, place)
    assert same is cache
    assert copied.data_ptr() != cache.data_ptr()
    assert view.data_ptr() == cache.data_ptr()


def test_two_names_of_one_cache():
    def f(one, other, new, place):
        one.index_copy_(2, place, new)
        return other.sum()

    run = compiled(f)
    new, place = R(2, 3, 1, 8), torch.tensor([4])
    with torch.no_grad():
        for apart in (True, False):
            ours, theirs = R(CACHE), None
            theirs = ours.clone()
            wanted = f(theirs, theirs if not apart else ours.clone(), new, place)
            torch.testing.assert_close(
                run(ours, ours if not apart else ours.clone(), new, place), wanted
            )
            torch.testing.assert_close(ours, theirs)


def layers(first, second, count, new, place, table, token):
    count.add_(1)
    first.index_copy_(2, place, new)
    hidden = first.sum() + table[token]
    second.index_copy_(2, place + count, new * hidden)
    return second.sum()


def caught(*arguments):
    try:
        return layers(*arguments)
    except (IndexError, RuntimeError) as error:
        return type(error).__name__


@pytest.mark.parametrize("function", [layers, caught])
@pytest.mark.parametrize(("place", "token"), [(11, 9), (511, 1), (700, 1), (3, 1)])
def test_what_an_error_leaves_behind_is_eagers(function, place, token):
    """A token that is not in the table, a place behind the end of the second cache, of the first, and all is well."""
    run = compiled(function)
    ours = [
        R(CACHE),
        R(CACHE),
        torch.tensor(0),
        R(2, 3, 1, 8),
        torch.tensor([3]),
        R(5),
        torch.tensor(1),
    ]
    theirs = copy.deepcopy(ours)
    with torch.no_grad():
        torch.testing.assert_close(run(*ours), function(*theirs))
        ours[4:] = theirs[4:] = [torch.tensor([place]), ours[5], torch.tensor(token)]
        seen = []
        for call, inputs in ((run, ours), (function, theirs)):
            try:
                seen.append(call(*inputs))
            except (IndexError, RuntimeError) as error:
                seen.append((type(error), str(error)))
    torch.testing.assert_close(seen[0], seen[1]) if isinstance(seen[1], torch.Tensor) else None
    assert isinstance(seen[1], torch.Tensor) or seen[0] == seen[1]
    torch.testing.assert_close(ours, theirs)


def test_a_handler_costs_no_copies():
    """transformers' static cache writes its slots inside of a `try`."""
    run = compiled(caught)
    inputs = [
        R(CACHE),
        R(CACHE),
        torch.tensor(0),
        R(2, 3, 1, 8),
        torch.tensor([3]),
        R(5),
        torch.tensor(1),
    ]
    with torch.no_grad():
        run(*inputs)
        with torch.profiler.profile(profile_memory=True) as profile:
            run(*inputs)
    assert max(event.cpu_memory_usage for event in profile.events()) < inputs[0].nbytes // 2


def test_slots_come_back_from_disk(tmp_path):
    cache, new, place = R(CACHE), R(2, 3, 1, 8), torch.tensor([4])
    wanted = cache.clone().index_copy_(2, place, new)
    for slots in (1, 0):
        argand.reset()
        ours = cache.clone()
        with torch.no_grad(), events.collect() as heard:
            run = argand.compile(
                by_index_copy, options={"measure": False, "cache_dir": str(tmp_path)}
            )
            run(ours, new, place)
        torch.testing.assert_close(ours, wanted)
        assert heard.total("native.slots") == slots
    text = "".join(heard.texts("bytecode"))
    assert "Before" not in text
