"""Eager refuses an ``index_put_`` of values that lie where they are put."""

BACKEND, DYNAMIC = "argand", False


def inputs(seed):
    return [
        tensor((2,), "uint8", "plain", 0 + seed, False),
    ]


def program(a0):
    v2 = torch.gt(a0, 1)
    v2.index_put_((torch.tensor([0, 0]),), v2, accumulate=True)
    return (v2,)
