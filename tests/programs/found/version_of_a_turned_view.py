"""call 0: input 1: its version rose by 0 instead of 1"""

BACKEND, DYNAMIC = 'argand', False


def inputs(seed):
    return [
        tensor((0,), 'complex64', 'plain', 0 + seed, False),
    ]


def program(a0):
    v2 = a0.reshape(-1)
    v2.unsqueeze_(0)
    return (v2, )
