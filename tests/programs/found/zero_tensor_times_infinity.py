"""A zero without memory (the derivative of ``sgn``) times infinity or NaN is zero."""

BACKEND, DYNAMIC = "argand", False


def inputs(seed):
    return [
        tensor((5,), "float32", "plain", 0 + seed, True),
    ]


def program(a0):
    v1 = torch.special.entr(a0)
    v1.abs_()
    return (v1,)
