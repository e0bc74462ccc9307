"""A wider tensor of one number is an element of the narrow type first: powers and truth jump where that rounds."""

BACKEND, DYNAMIC = "argand", False


def inputs(seed):
    return [
        tensor((3, 4), "float16", "plain", 3 + seed, False),
        tensor((), "float32", "zeros", 0, False),
        tensor((7,), "int8", "plain", 3 + seed, False),
    ]


def program(a0, a1, a2):
    little = a1 + 1e-9
    powers = torch.pow(a0, little), torch.pow(a0, little + 2.0001), torch.pow(-1 - little, a0)
    truths = torch.logical_and(a0, little), torch.logical_or(a0 * 0, little)
    whole = little.long() + 256
    return (*powers, *truths, torch.logical_xor(a2, whole), torch.logical_and(whole, a2))
