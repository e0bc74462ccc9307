"""Random programs, stopped at random instructions and resumed natively, end as if nothing had happened."""

import random
import sys
import threading

import pytest
from property.checker import GLOBALS, Picture, inputs, load
from property.program_generator import generate

from .frame_state import State, place_of, trace_opcodes
from .test_resume import resume_function


def picture_after(call, module, arguments):
    """All a caller can see after `call`, taken at once."""
    picture = Picture(exact=True)
    try:
        outcome = ("returned", picture.of(call()))
    except Exception as error:
        outcome = ("raised", type(error).__name__, str(error))
    world = {name: getattr(module, name) for name in GLOBALS}
    return outcome, picture.of(arguments), picture.of(world)


def run_and_stop(program, stop_at):
    """Run, and at the `stop_at`-th instruction go on in a resume function instead; returns (picture, instructions)."""
    module = load(program)
    arguments = inputs(module, program.seed, 0)
    count, pictures = 0, []

    def visit(frame):
        nonlocal count
        if place_of(frame) < 0:  # inside of an instruction of the normal form: nobody resumes there
            return
        count += 1
        if count == stop_at:
            state = State.of(frame)
            function, values = resume_function(state, stack=state.stack_arguments())
            work = lambda: pictures.append(
                picture_after(lambda: function(*values), module, arguments)
            )
            trace = sys.gettrace()
            sys.settrace(None)
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            sys.settrace(trace)

    function = module.program
    sys.settrace(trace_opcodes(function.__code__, visit))
    try:
        ended = picture_after(lambda: function(*arguments), module, arguments)
    finally:
        sys.settrace(None)
    return (pictures[0] if pictures else ended), count


@pytest.mark.parametrize("seed", range(60))
def test_random_stops(seed):
    program = generate(seed)
    expected, count = run_and_stop(program, -1)
    chosen = random.Random(seed)
    for _ in range(8):
        stop_at = chosen.randrange(2, count + 1)
        try:
            found, _ = run_and_stop(program, stop_at)
        except Exception as error:
            raise AssertionError(f"{program.text}\nat {stop_at}") from error
        assert found == expected, f"{program.text}\nat {stop_at}"
