"""And ``conj_physical_`` of a real one, which does nothing."""

BACKEND, DYNAMIC = "argand", False


def inputs(seed):
    return [
        tensor((4, 4), "bfloat16", "steps", 98 + seed, False),
    ]


def program(a0):
    v1 = a0.expand(3, 4, 4)
    v2 = torch.minimum(v1, a0)
    v1.conj_physical_()
    return (v2[None],)
