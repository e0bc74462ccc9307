"""call 1: gradients: result 1: 5 of 5 values differ"""

BACKEND, DYNAMIC = 'aot_eager', False


def inputs(seed):
    return [
        tensor((5, 1), 'float64', 'plain', 0 + seed, True),
    ]


def program(a0):
    v0 = -a0
    v1 = torch.atan(v0)
    v2 = v1.view(1, 5, 1)
    v2.mul_(3)
    v3 = v2 * v2 * v0
    return (v3, v0, )
