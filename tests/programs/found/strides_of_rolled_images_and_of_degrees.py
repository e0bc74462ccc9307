"""``roll`` keeps the memory format of images, degrees keep strides of single elements; ``as_strided`` times one is no view."""

BACKEND, DYNAMIC = "argand", False


def inputs(seed):
    return [
        tensor((2, 3, 4, 5), "float32", "last", 52 + seed, False),
        tensor((1, 2, 5), "float32", "plain", 0 + seed, False),
    ]


def program(a0, a1):
    v0 = a0.roll(1, 1)
    v1 = torch.rad2deg(a1[..., None].T)
    v2 = a1.as_strided((2,), (1,)) * 1
    return (v0, v1, v2)
