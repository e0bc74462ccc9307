"""``fill_`` takes a tensor whose elements are one place in memory."""

BACKEND, DYNAMIC = "argand", False


def inputs(seed):
    return [
        tensor((4,), "float64", "plain", 0 + seed, False),
    ]


def program(a0):
    v3 = a0.expand(3, 4)
    v3.fill_(1)
    return (a0 * 2,)
