"""Torch differentiates a norm by groups by another formula where its mean and deviation have no gradient."""

BACKEND, DYNAMIC = "argand", False


def inputs(seed):
    return [
        tensor((1, 5), "float32", "plain", 0 + seed, True),
    ]


def program(a0):
    v0 = torch.sin(F.group_norm(a0, 1))
    return (v0 * v0,)
