"""``logical_or_`` writes to a leaf that stays one: its second derivative goes to what was written."""

BACKEND, DYNAMIC = "argand", False


def inputs(seed):
    return [
        tensor((1,), "complex128", "plain", 0 + seed, True),
    ]


def program(a0):
    a0.logical_or_(a0)
    v1 = torch.tanh(a0)
    return (v1,)
