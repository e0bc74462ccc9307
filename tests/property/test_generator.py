"""The generator itself: its programs run, repeat exactly, and cover every construct; shrinking works."""

from collections import Counter

from .checker import differences, run
from .program_generator import generate
from .shrink import shrink
from .statements import STATEMENTS

eagerly = lambda function: function


def test_programs_are_deterministic_and_mostly_return():
    outcomes = Counter()
    for seed in range(120):
        program = generate(seed)
        assert program.text == generate(seed).text
        first = run(program, eagerly, exact=True)
        assert first == run(program, eagerly, exact=True), seed
        outcomes[first[0].outcome[0]] += 1
        assert "NameError" not in str(first[0].outcome), program.text
    assert outcomes["returned"] > 80 and outcomes["raised"] > 3, outcomes


def test_every_construct_is_covered():
    made = Counter()
    for seed in range(200):
        made.update(generate(seed).constructs)
    assert not {row.make.__name__ for row in STATEMENTS} - made.keys()
    assert min(made.values()) >= 5, made.most_common()[-5:]


def test_a_wrong_compiler_is_noticed_and_shrunk():
    """A 'compiler' that forgets every print is found, and the failing program is little more than a print."""

    def wrap(function):
        import io

        def wrong(*arguments):
            buffer = function.__globals__["BUFFER"]
            function.__globals__["BUFFER"] = io.StringIO()
            try:
                return function(*arguments)
            finally:
                function.__globals__["BUFFER"] = buffer

        return wrong

    fails = lambda program: differences(program, wrap) is not None
    seed = next(seed for seed in range(100) if fails(generate(seed)))
    small = shrink(generate(seed), fails)
    assert len(small.text.splitlines()) <= 6, small.text
