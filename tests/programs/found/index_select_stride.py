"""result 0: stride (1, 1) instead of (2, 1)"""

BACKEND, DYNAMIC = 'argand', False


def inputs(seed):
    return [
        tensor((1, 5), 'float32', 'plain', 0 + seed, False),
    ]


def program(a0):
    v2 = a0.index_select(1, torch.tensor([0, 0]))
    return (v2, )
