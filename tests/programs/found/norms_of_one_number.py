"""The norm of one number is its magnitude: no square of it overflows, nor does that of `renorm` and `normalize`."""

BACKEND, DYNAMIC = "argand", False


def inputs(seed):
    return [
        tensor((3, 1), "float32", "edge", 3 + seed, False),
        tensor((), "float32", "large", 3 + seed, True),
    ]


def program(a0, a1):
    v0 = torch.linalg.vector_norm(a0.clamp(-3e38, 3e38), 2, 1)
    v1 = a0.nan_to_num().renorm(2, 0, 1.0)
    v2 = (a1 * 1e25).norm()
    v3 = F.normalize(a0.nan_to_num(), dim=-1)
    return (v0, v1, v2, v3)
