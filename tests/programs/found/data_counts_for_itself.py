"""A write to ``.data`` after a break does not raise the version of the tensor it was taken from."""

BACKEND, DYNAMIC = "argand", False


def inputs(seed):
    return [
        tensor((2, 3, 4), "int8", "plain", 0 + seed, False),
        tensor((2, 3), "float64", "plain", 0 + seed, True),
    ]


def program(a0, a1):
    v0 = a0.data
    v1 = v0.chunk(2)[0]
    v2 = a1.data
    v3 = torch.equal(v0, v0)
    v1.remainder_(3)
    v2.round_()
    return (v0, v2)
