"""For each reason why capture stops: a program that meets it, and the same program rewritten.

Each pair is run by tests/docs/test_breaks.py: the first breaks with that id, the second is one graph.
``program`` is what is compiled, ``inputs`` its arguments; an empty rewrite means that there is none.
"""

from typing import NamedTuple

# Ids without an example, and why.
WITHOUT: dict[str, str] = {
    "B024": "In Python the operator itself says what is wrong with the functions it was given.",
    "B001": "No instruction of a supported Python is refused; the row is for new ones.",
    "B012": "What it names is made anew by your program after the break: move its making there.",
    "B015": "Generators and coroutines that a compiled function calls and cannot inline run in Python; what they call is compiled. "
    "Compile them themselves (`argand.compile(generator_function)`): then each step is.",
    "B020": "The message names the reason. The function runs in Python, what it calls is compiled.",
    "B022": "Only eager knows whether the operation raises, so eager runs the block.",
    "B023": "A defect of Argand: please report it.",
}


class Example(NamedTuple):
    """Source text of a program that breaks, and of one that does not."""

    breaks: str
    rewrite: str = ""


EXAMPLES: dict[str, Example] = {
    "B002": Example(
        """
import random

def program(x):
    x = x + 1
    return x * random.random()

inputs = (torch.ones(3),)
""",
        """
def program(x):
    return (x + 1) * torch.rand(())

inputs = (torch.ones(3),)
""",
    ),
    "B003": Example(
        """
def program(x):
    if x.sum() > 0:
        return x * 2
    return x - 1

inputs = (torch.ones(3),)
""",
        """
def program(x):
    return torch.where(x.sum() > 0, x * 2, x - 1)

inputs = (torch.ones(3),)
""",
    ),
    "B004": Example(
        """
def program(x):
    doublings = int(x.sum().item())
    for _ in range(doublings):
        x = x * 2
    return x

inputs = (torch.ones(3),)
""",
        """
def program(x):
    return x * 2 ** x.sum().int()

inputs = (torch.ones(3),)
""",
    ),
    "B005": Example(
        """
import argand

def program(x):
    y = x + 1
    argand.graph_break()
    return y * 2

inputs = (torch.ones(3),)
""",
        """
def program(x):
    return (x + 1) * 2

inputs = (torch.ones(3),)
""",
    ),
    "B006": Example(
        """
import argand

@argand.disable
def helper(x):
    return x * 2

def program(x):
    return helper(x + 1) + 1

inputs = (torch.ones(3),)
""",
        """
def helper(x):
    return x * 2

def program(x):
    return helper(x + 1) + 1

inputs = (torch.ones(3),)
""",
    ),
    "B007": Example(
        """
def program(x):
    y = x * 2
    print("shape", tuple(y.shape))
    return y + 1

inputs = (torch.ones(3),)
""",
        """
def program(x):
    return x * 2 + 1

inputs = (torch.ones(3),)  # print outside, from what program returns
""",
    ),
    "B008": Example(
        """
def program(x):
    return torch.unique(x) * 2

inputs = (torch.ones(3),)
""",
        """
def program(x):
    return x.sort().values * 2

inputs = (torch.ones(3),)
""",
    ),
    "B021": Example(
        """
import inspect

def program(x):
    caller = inspect.stack()[0].function
    return x * len(caller)

inputs = (torch.ones(3),)
""",
        """
def program(x, caller):
    return x * len(caller)

inputs = (torch.ones(3), "caller")
""",
    ),
    "B010": Example(
        """
def program(x):
    return x * 2

inputs = (torch.ones(3).to_sparse(),)
""",
        """
def program(x):
    return x * 2

inputs = (torch.ones(3).to_sparse().to_dense(),)
""",
    ),
    "B009": Example(
        """
import argand

class Scale:
    factor = 2

@argand.allow_in_graph
def scaled(x, scale):
    return x * scale.factor

def program(x):
    return scaled(x, Scale())

inputs = (torch.ones(3),)
""",
        """
import argand

@argand.allow_in_graph
def scaled(x, factor):
    return x * factor

def program(x):
    return scaled(x, 2)

inputs = (torch.ones(3),)
""",
    ),
    "B011": Example(
        """
def program(x, numbers):
    return x * next(numbers)

inputs = (torch.ones(3), iter([2, 3]))
""",
        """
def program(x, number):
    return x * number

inputs = (torch.ones(3), next(iter([2, 3])))
""",
    ),
    "B013": Example(
        """
def program(x):
    known = {id(x): 2}
    return x * known[id(x)]

inputs = (torch.ones(3),)
""",
        """
def program(x):
    known = {"x": 2}
    return x * known["x"]

inputs = (torch.ones(3),)
""",
    ),
    "B017": Example(
        """
def program(x):
    positive = x[x > 0]
    if len(positive) > 3:
        return positive.sum()
    return x.sum()

inputs = (torch.ones(16),)
""",
        """
def program(x):
    positive = x > 0
    many = torch.where(positive, x, 0).sum()
    return torch.where(positive.sum() > 3, many, x.sum())

inputs = (torch.ones(16),)
""",
    ),
}
