"""Random guard programs and plans for the C extension: refused with an error, or run; never a crash.

``python -m tests.runtime.fuzz --count 20000``, best under ``make sanitize``. What the extension must take on trust is right
here: addresses of kernels, and that operands of identity checks are held.
"""

import argparse
import ctypes
import random

import torch

from argand.runtime import _native
from argand.runtime.guards import GuardKind
from argand.runtime.plans import Rows, link

ERRORS = (
    ValueError,
    TypeError,
    OverflowError,
    RuntimeError,
    MemoryError,
    ZeroDivisionError,
    IndexError,
    KeyError,
)
# rows of guards that are no tuples: they are made by us, never read from files
ERRORS += (SystemError,)
KERNEL = ctypes.cast(ctypes.CDLL(None).labs, ctypes.c_void_p).value  # touches nothing


class Thing:
    """Something with attributes."""

    value = 3

    def __init__(self):
        self.a, self.b = 1, [1, 2, {"k": 3}]


def frame(a, b, *rest, key=None):
    """Its view is asked."""
    return (a, b, rest, key)


def views():
    seen = []
    region = _native.Region(lambda view: seen.append(view))
    _native.mark_code(frame.__code__, True)
    for args in ((1, Thing()), (torch.ones(2, 3), [1, 2]), ({"k": 1}, "text", 5, 6)):
        _native.Switch(frame, region)(*args, key=Thing())
    return seen


def number(generator):
    """An integer that may be at a border."""
    small = generator.randrange(-2, 12)
    return generator.choice(
        (small, small, small, -(2**63), 2**63 - 1, 2**31, -(2**31) - 1, 1 << 40, 2**64)
    )


def mostly(generator, valid):
    """A valid number, now and then another one."""
    return valid if generator.random() < 0.97 else number(generator)


NAMES, PLACES = ("a", "b", "value", "k", "__dict__"), (0, 1, 2, 2**70, -1)
THINGS = (
    None,
    1.5,
    (),
    (1, 2),
    [1],
    {},
    {"k": 1},
    Thing(),
    Thing,
    int,
    torch.ones(2),
    frame,
    *NAMES,
    *PLACES,
)


def operand(generator, op):
    """What an operation of a guard program takes: a place, a name, or anything."""
    fitting = PLACES[:3] if op in (0, 8, 10, 14) else NAMES if op in (5, 13) else THINGS
    return generator.choice(fitting if generator.random() < 0.95 else THINGS)


def expected(generator, kind, count):
    """What a check compares with."""
    node = generator.randrange(count)
    side = ((2, (node,)), (1, ((generator.randrange(4), ((1, (node,)),), ((3, ()),)),)))
    fitting = {
        GuardKind.LENGTH: 2, GuardKind.DICT_KEYS: ("a", "b"), GuardKind.HAS_ATTR: "a", GuardKind.NO_ATTR: "b",
        GuardKind.NOT_ALIASED: (node, 0), GuardKind.NO_OVERLAP: (0, node), GuardKind.SAME_OBJECT: (node, node),
        GuardKind.GLOBAL_STATE: (torch.is_grad_enabled, True), GuardKind.RELATION: ("<=", side, side),
        GuardKind.COMPARED: (generator.randrange(6), 1.5, True),
    }  # fmt: skip
    kinds = list(GuardKind)
    found = fitting.get(kinds[kind]) if 0 <= kind < len(kinds) else None
    return found if found is not None and generator.random() < 0.9 else generator.choice(THINGS)


def program(generator):
    """The rows of a guard program, mostly well formed."""
    count = generator.randrange(1, 7)
    nodes, checks = [], []
    for i in range(count):
        op = mostly(generator, generator.randrange(16) if i else generator.randrange(5))
        parent = mostly(generator, -1 if op <= 4 else generator.randrange(i) if i else 0)
        live = mostly(generator, generator.choice((count, i + 1)))
        nodes.append((op, parent, live, generator.random() < 0.5, operand(generator, op)))
    for i in range(generator.randrange(6)):
        node = mostly(generator, generator.choice((-1, min(i, count - 1))))
        kind = mostly(generator, generator.randrange(len(GuardKind)))
        checks.append((kind, node, i, generator.random() < 0.5, expected(generator, kind, count)))
    if generator.random() < 0.95:
        checks.sort(key=lambda row: (row[1] < 0, row[1]))
    collect = [mostly(generator, generator.randrange(count)) for _ in range(generator.randrange(3))]
    held = [row[4] for row in (*nodes, *checks)]
    return nodes, checks, collect, held, [], generator.random() < 0.5


def check_program(generator, seen):
    """Make it and ask it, twice, for each view."""
    rows = program(generator)
    made = _native.Program(*rows)
    for view in seen * 2:
        made.check(view)


def sizes(generator):
    return tuple(mostly(generator, generator.randrange(4)) for _ in range(generator.randrange(4)))


def plan(generator):
    """The rows of a plan: kernels that do nothing, calls that return something."""
    inputs = mostly(generator, generator.randrange(3))
    count = generator.randrange(4)
    buffers = []
    for _ in range(count):
        shape = sizes(generator)
        strides = tuple(1 for _ in shape) if generator.random() < 0.8 else sizes(generator)
        kind = mostly(generator, generator.randrange(7))
        dtype = generator.choice((6, 6, 6, 4, 11))  # torch takes it on trust
        base, offset = mostly(generator, generator.randrange(3)), mostly(generator, 0)
        buffers.append((kind, dtype, base, offset, shape, strides, generator.choice(THINGS)))

    def identifier():
        return mostly(
            generator, generator.randrange(max(inputs + count, 1)) if 0 <= inputs < 9 else 0
        )

    steps = []
    for _ in range(generator.randrange(4)):
        ids = tuple(identifier() for _ in range(generator.randrange(3)))
        match generator.randrange(4):
            case 0:
                steps.append(
                    (
                        0,
                        ids,
                        KERNEL,
                        mostly(generator, 4),
                        mostly(generator, 2),
                        sizes(generator),
                        False,
                    )
                )
            case 1:
                rows = (
                    (0, 7),
                    (1, identifier()),
                    (2, ((1, identifier()),)),
                    (3, -(2**63)),
                    (number(generator), ()),
                )
                arguments = tuple(generator.choice(rows) for _ in range(2))
                steps.append(
                    (
                        2,
                        ids[:1],
                        generator.choice((lambda *given: given[0], lambda *given: None, 5)),
                        arguments,
                        (),
                    )
                )
            case 2:
                steps.append((3, ids))
            case _ if generator.random() < 0.05:
                steps.append(generator.choice(((), (9, ids), (3,), ids, (0, ids, KERNEL))))
            case _:
                pass
    numbers = tuple(
        (mostly(generator, generator.randrange(3, 10)), number(generator), number(generator))
        for _ in range(generator.randrange(3))
    )
    returns = tuple(identifier() for _ in range(generator.randrange(3)))
    arena = generator.choice((0, 64, 4096, 5 << 20, -1, -(2**63)))
    return Rows(inputs, tuple(buffers), tuple(steps), returns, arena, numbers)


def check_plan(generator, _):
    """Link it and run it."""
    rows = plan(generator)
    made = link(rows, {}, None)
    given = [
        generator.choice((torch.ones(2, 3), 5, 2.5, None, torch.ones(0)))
        for _ in range(max(min(rows.inputs, 9), 0))
    ]
    for _ in range(2):
        made(list(given))


def run(count, seed):
    """How many were refused, and how many ran."""
    generator, seen = random.Random(seed), views()
    outcomes = {"refused": 0, "ran": 0}
    for _ in range(count):
        check = generator.choice((check_program, check_plan))
        try:
            check(generator, seen)
            outcomes["ran"] += 1
        except ERRORS:
            outcomes["refused"] += 1
    return outcomes


def main():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print(run(given.count, given.seed))


if __name__ == "__main__":
    main()
