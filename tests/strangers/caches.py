"""Functions with caches: what a cache holds is one object, call after call."""

import functools

import torch

from tests.strangers.harness import made, rand


@made(*[lambda n=n: (rand(4), n) for n in (2, 2, 3, 2, 2)])
def cached_tensors_are_written():
    config = {"factor": 2.0}

    @functools.lru_cache
    def table(n):
        return torch.ones(n)

    @functools.lru_cache
    def factor():
        return config["factor"]

    @functools.lru_cache(maxsize=1)
    def names(n):
        return ["a"] * n

    class Holder:
        @functools.lru_cache  # noqa: B019
        def buffer(self, n):
            return torch.zeros(n)

    holder = Holder()

    def f(x, n):
        t = table(n)
        t.add_(1)
        b = holder.buffer(n)
        b += x[:n]
        found = names(n)
        found.append("b")
        result = x[:n] + t * factor(), b, len(found), table(n) is t
        config["factor"] += 1  # the cache keeps the old one
        return result

    return f, config


@made(*[lambda: (rand(3),)] * 3)
def a_cached_constant_outlives_what_it_was_made_of():
    state = {"n": 1}

    @functools.cache
    def number():
        return state["n"]

    def f(x):
        return x * number()

    def run(x):
        y = f(x)
        state["n"] += 1
        return y

    return run, state


@made(*[lambda k=k: (rand(3), k) for k in (1, 1, 0, 1)])
def a_cache_is_cleared_between_calls():
    runs = []

    @functools.lru_cache
    def table(n):
        runs.append(n)
        return torch.full((n,), float(len(runs)))

    def f(x, keep):
        if not keep:
            table.cache_clear()
        return x + table(3)

    return f, runs
