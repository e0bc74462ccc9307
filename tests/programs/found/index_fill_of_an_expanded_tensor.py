"""So does ``index_fill_``."""

BACKEND, DYNAMIC = "argand", False


def inputs(seed):
    return [
        tensor((1,), "bool", "plain", 0 + seed, False),
    ]


def program(a0):
    v2 = a0.expand(3, 1)
    v2.index_fill_(0, torch.tensor([0]), 3)
    return (v2 | a0,)
