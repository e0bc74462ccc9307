"""``out=`` of another type and shape is resized in the eyes of what follows, too."""

BACKEND, DYNAMIC = "argand", False


def inputs(seed):
    return [
        tensor((7,), "float64", "plain", 0 + seed, False),
        tensor((4, 4), "int16", "plain", 0 + seed, False),
    ]


def program(a0, a1):
    v1 = torch.angle(a1)
    torch.add(a0, 1, out=v1)
    v5 = F.pad(v1, (-1, 1), value=3)
    return (v5 * v5.dim(),)
