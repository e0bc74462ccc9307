"""call 1: gradients: result 0: 24 of 24 values differ"""

BACKEND, DYNAMIC = 'argand', True


def inputs(seed):
    return [
        tensor((2, 3, 4), 'complex128', 'plain', 68 + seed, True),
    ]


def program(a0):
    with torch.no_grad(): v0 = a0 * 2
    v0.index_put_((torch.tensor([0, 0]),), a0, accumulate=True)
    return (v0, )
