"""A byte has no -1: limits are numbers of the type of the result."""

BACKEND, DYNAMIC = "argand", False


def inputs(seed):
    return [
        tensor((7,), "uint8", "plain", 42 + seed, False),
        tensor((0,), "uint16", "plain", 0 + seed, False),
    ]


def program(a0, a1):
    v0 = a0.clamp(-1, 0.5)
    v1 = a1.clamp(-1, 0.5)
    return (v0, v1)
