"""States of random numbers."""

from __future__ import annotations

import random

import numpy as np
import torch

from tests.effects.world import case


@case
def random_numbers():
    random.seed(1)

    def run(x, cut):
        y = x + random.random()
        cut()
        return y + random.randint(0, 9)

    return run, random.getstate


@case
def random_seed():
    random.seed(2)
    items = list(range(9))

    def run(x, cut):
        random.seed(3)
        random.shuffle(items)
        cut()
        return x + items[0]

    return run, lambda: (random.getstate(), list(items))


@case
def own_random_state():
    state = random.Random(1)

    def run(x, cut):
        y = x + state.random()
        cut()
        return y + state.choice([1, 2, 3])

    return run, state.getstate


@case
def numpy_random():
    np.random.seed(0)
    state = np.random.default_rng(0)

    def run(x, cut):
        y = x + float(np.random.rand())
        cut()
        return y + float(state.random())

    return run, lambda: (np.random.get_state()[2], str(state.bit_generator.state))


@case
def torch_random():
    torch.manual_seed(1)
    made = torch.Generator().manual_seed(1)

    def run(x, cut):
        y = x + torch.rand(3)
        cut()
        return y + torch.rand(3, generator=made)

    return run, lambda: (torch.get_rng_state().tolist()[:40], made.get_state().tolist()[:40])


@case
def torch_seed():
    def run(x, cut):
        torch.manual_seed(3)
        y = x + torch.randn(3)
        cut()
        with torch.random.fork_rng():
            return y + torch.rand(3)

    return run, lambda: torch.get_rng_state().tolist()[:40]
