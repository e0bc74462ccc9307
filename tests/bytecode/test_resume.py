"""Stop a function at every instruction it executes, resume it there, and compare with an undisturbed run."""

import copy
import sys
import threading
import traceback
from types import CellType, FunctionType

import pytest

from argand.bytecode import decode, live_locals, make_resume, stack_before
from argand.support.errors import CaptureBreak

from . import samples
from .frame_state import NULL, State, place_of, trace_opcodes

VISITS = 2  # how often each instruction is resumed at: first and second time through a loop


def outcome(call):
    """What a caller can see: the result, or the exception with its context."""
    try:
        return ("returned", copy.deepcopy(call()))  # the stopped run goes on and changes it
    except Exception as error:
        return ("raised", describe(error))


def describe(error):
    if error is None:
        return None
    line = error.__traceback__ and traceback.extract_tb(error.__traceback__)[-1].lineno
    return (type(error), str(error), line, describe(error.__context__), describe(error.__cause__))


def in_new_thread(call):
    """Run where no exception is being handled, as in the caller of the frame."""
    box = []
    trace = sys.gettrace()
    sys.settrace(None)  # 3.12.1 crashes when two threads trace instructions at once
    thread = threading.Thread(target=lambda: box.append(outcome(call)))
    thread.start()
    thread.join()
    sys.settrace(trace)
    return box[0]


def resume_function(state, *, stack, **options):
    code = state.code
    wanted = live_locals(code, state.index)
    known = {**state.values, **state.locals}
    bound = tuple(name for name in wanted if name in known)
    given = state.given(stack)
    made = make_resume(code, state.index, stack=given, bound=bound, **options)
    closure = state.closure(len(stack))
    assert all(isinstance(cell, CellType) for cell in closure)
    function = FunctionType(made, state.globals, made.co_name, None, closure)
    arguments = [value for value, is_given in zip(stack, given, strict=True) if is_given]
    arguments += [known[name] for name in bound]
    return function, arguments


def run_with_stop(sample, at, visit_number, stop):
    """Run a fresh instance of the sample; at the given visit of instruction `at` call `stop(state)`."""
    function, arguments, effects = sample()
    seen = 0
    results = []

    def visit(frame):
        nonlocal seen
        if place_of(frame) != at or results:
            return
        seen += 1
        if seen == visit_number:
            result = stop(State.of(frame))
            results.append((result, copy.deepcopy(effects)))

    sys.settrace(trace_opcodes(function.__code__, visit))
    try:
        outcome(lambda: function(*arguments))
    finally:
        sys.settrace(None)
    return results[0] if results else None


def plain_run(sample):
    function, arguments, effects = sample()
    return outcome(lambda: function(*arguments)), copy.deepcopy(effects)


def first_body_index(code):
    return next(i.index for i in decode(code).instructions if i.op == "resume") + 1


@pytest.mark.parametrize("sample", samples.ALL, ids=lambda sample: sample.__name__)
def test_resume_everywhere(sample):
    expected = plain_run(sample)
    code = sample()[0].__code__
    resumed = 0
    for at in range(first_body_index(code), len(decode(code).instructions)):
        for visit_number in range(1, VISITS + 1):

            def stop(state):
                function, arguments = resume_function(state, stack=state.stack_arguments())
                return in_new_thread(lambda: function(*arguments))

            found = run_with_stop(sample, at, visit_number, stop)
            if found is None:
                break
            resumed += 1
            assert found == expected, f"at {decode(code).instructions[at]} visit {visit_number}"
    assert resumed > 5


def call_thunk(state, instruction):
    """A thunk that does the CALL the frame stands before, and the stack below its operands."""
    count = instruction.arg
    below, operands = state.stack[: -count - 2], state.stack[-count - 2 :]
    first, second, *rest = operands
    if NULL in (first, second):
        function, arguments = (second if first is NULL else first), rest
    else:
        function, arguments = first, [second, *rest]
    names = instruction.argval
    split = len(arguments) - len(names)
    keywords = dict(zip(names, arguments[split:], strict=True))
    return (lambda: function(*arguments[:split], **keywords)), below


@pytest.mark.parametrize("sample", samples.ALL, ids=lambda sample: sample.__name__)
def test_every_call_by_a_thunk(sample):
    """As for the outer frames of an inlined callee: the call is done by a thunk inside the resume function."""
    expected = plain_run(sample)
    code = sample()[0].__code__
    calls = [instruction for instruction in decode(code).instructions if instruction.op == "call"]
    compared = 0
    for instruction in calls:
        for visit_number in range(1, VISITS + 1):

            def stop(state):
                thunk, below = call_thunk(state, instruction)
                if thunk.__closure__ and super in [
                    cell.cell_contents for cell in thunk.__closure__ if cell is not None
                ]:
                    return expected[0]  # super() looks at its caller's frame: never by a thunk
                stack = state.stack_arguments()[: len(below)]
                function, arguments = resume_function(state, stack=stack, thunk=True)
                return in_new_thread(lambda: function(thunk, *arguments))

            found = run_with_stop(sample, instruction.index, visit_number, stop)
            if found is None:
                break
            if "super" not in code.co_names and "locals" not in code.co_names:
                assert strip_lines(found[0]) == strip_lines(expected[0]), instruction
                assert found[1] == expected[1], instruction
                compared += 1
    assert compared or not calls or {"super", "locals"} & {*code.co_names}


def strip_lines(result):
    """A thunk that raises is one frame deeper than the call it stands for."""
    if isinstance(result, tuple) and len(result) == 5 and isinstance(result[0], type):
        return (*result[:2], strip_lines(result[3]), strip_lines(result[4]))
    return tuple(strip_lines(r) for r in result) if isinstance(result, tuple) else result


class Injected(Exception):
    pass


def raise_natively(sample, at):
    """What the sample does when instruction `at` raises, by raising from the trace function."""
    function, arguments, effects = sample()
    done = []

    def visit(frame):
        if place_of(frame) == at and not done:
            done.append(True)
            raise Injected("injected")

    sys.settrace(trace_opcodes(function.__code__, visit))
    try:
        result = outcome(lambda: function(*arguments))
    finally:
        sys.settrace(None)
    return (result, copy.deepcopy(effects)) if done else None


@pytest.mark.parametrize("sample", samples.ALL, ids=lambda sample: sample.__name__)
def test_an_exception_at_every_call(sample):
    """`raises` and a thunk that raises: the frame's own handlers see the exception as if the call had raised it."""
    code = sample()[0].__code__
    ops = ("call", "binary_op", "load_method", "store_subscr")
    places = [instruction for instruction in decode(code).instructions if instruction.op in ops]
    compared = 0
    for instruction in places:
        expected = raise_natively(sample, instruction.index)
        if expected is None:
            continue
        compared += 1

        def stop(state):
            stack = state.stack_arguments()
            function, arguments = resume_function(state, stack=stack, raises=True)
            return in_new_thread(lambda: function(Injected("injected"), *arguments))

        def stop_by_thunk(state):
            def thunk():
                raise Injected("injected")

            _, below = call_thunk(state, instruction)
            stack = state.stack_arguments()[: len(below)]
            function, arguments = resume_function(state, stack=stack, thunk=True)
            return in_new_thread(lambda: function(thunk, *arguments))

        found = run_with_stop(sample, instruction.index, 1, stop)
        assert strip_lines(found) == strip_lines(expected), instruction
        if instruction.op == "call":
            found = run_with_stop(sample, instruction.index, 1, stop_by_thunk)
            assert strip_lines(found) == strip_lines(expected), instruction
    assert compared or not places


NESTED = [
    s
    for s in samples.ALL
    if s.__name__
    in {
        "nested_handlers",
        "with_in_handler",
        "closures",
        "comprehension_hides_a_cell",
        "comprehension_has_a_cell",
        "comprehensions_have_cells",
        "zero_argument_super",
        "super_with_captured_self",
        "return_in_finally",
        "operators",
    }
]


@pytest.mark.parametrize("sample", NESTED, ids=lambda sample: sample.__name__)
def test_resume_of_a_resume(sample):
    """The resume function is itself resumed, at every seventh pair of places."""
    expected = plain_run(sample)
    code = sample()[0].__code__
    places = range(first_body_index(code), len(decode(code).instructions), 7)

    for at in places:
        made = []

        def stop(state):
            function, arguments = resume_function(state, stack=state.stack_arguments())
            made.append((function, arguments))
            return None

        if run_with_stop(sample, at, 1, stop) is None:
            continue
        again = made[0][0].__code__
        body = first_body_index(again)
        for inner in range(body, len(decode(again).instructions), 7):

            def stop_inner(state):
                function, arguments = resume_function(state, stack=state.stack_arguments())
                return in_new_thread(lambda: function(*arguments))

            def stop_outer(state):
                function, arguments = resume_function(state, stack=state.stack_arguments())
                fresh = lambda: (function, arguments, [])

                def run():
                    found = run_with_stop(fresh, inner, 1, stop_inner)
                    return found and found[0]

                return in_new_thread(run)

            found = run_with_stop(sample, at, 1, stop_outer)
            assert found is not None
            result = found[0][1]
            if result is not None:
                assert result == expected[0], (at, inner)


def test_what_a_resume_function_looks_like():
    code = samples.loops.__code__
    at = next(i.index for i in decode(code).instructions if i.op == "call") + 1
    stack = stack_before(code)[at]
    made = make_resume(code, at, stack=(True,) * len(stack), bound=("n", "log", "total"))
    assert made.co_name == code.co_name  # tracebacks show it
    assert made.co_qualname == code.co_qualname
    assert made.co_filename == code.co_filename
    assert made.co_argcount == len(stack) + 3
    assert made is make_resume(code, at, stack=(True,) * len(stack), bound=("n", "log", "total"))


def test_dead_locals_are_not_wanted():
    def f(a, b):
        c = a + b
        d = c * 2
        return d

    code = f.__code__
    ret = next(i.index for i in decode(code).instructions if i.op == "return_value")
    assert live_locals(code, ret) == ()
    assert live_locals(code, ret - 1) == ("d",)
    assert live_locals(code, 1) == ("a", "b")


def test_handler_keeps_locals_alive():
    def f(a):
        try:
            b = a.x
        except AttributeError:
            return a
        return b

    code = f.__code__
    store = next(i.index for i in decode(code).instructions if i.op == "load_attr")
    assert "a" in live_locals(code, store)


def test_the_frame_holds_no_more_than_before():
    """An iterator handed to a resume function dies when the loop ends, not when the function returns."""
    import weakref

    class Items:
        def __iter__(self):
            return self

        def __next__(self):
            raise StopIteration

    def f(items, seen):
        for _ in items:
            pass
        return seen()

    code = f.__code__
    at = next(i.index for i in decode(code).instructions if i.op == "for_iter")
    made = make_resume(code, at, stack=(True,), bound=("seen",))
    items = Items()
    reference = weakref.ref(items)
    holder = [items]
    del items
    gone = FunctionType(made, {})(holder.pop(), lambda: reference() is None)
    assert gone


def test_refusals():
    def generator():
        yield 1

    async def coroutine():
        pass

    def plain(xs):
        for x in xs:
            pass

    with pytest.raises(CaptureBreak, match="B020.*generator or coroutine"):
        make_resume(generator.__code__, 3, stack=(), bound=())
    with pytest.raises(CaptureBreak, match="B020.*generator or coroutine"):
        make_resume(coroutine.__code__, 3, stack=(), bound=())
    with pytest.raises(CaptureBreak, match="body of a class or module"):
        make_resume(compile("x = 1", "m", "exec"), 2, stack=(), bound=())
    with pytest.raises(CaptureBreak, match="not inside its body"):
        make_resume(plain.__code__, 0, stack=(), bound=())
    loop = next(i.index for i in decode(plain.__code__).instructions if i.op == "for_iter")
    with pytest.raises(CaptureBreak, match="1 slots, 0 given"):
        make_resume(plain.__code__, loop, stack=(), bound=())
    with pytest.raises(CaptureBreak, match="for_iter cannot be done by a call"):
        make_resume(plain.__code__, loop, stack=(True,), bound=(), thunk=True)


def test_traceback_points_at_the_users_line():
    def f(log):
        log.append(1)
        return log.missing

    code = f.__code__
    call = next(i.index for i in decode(code).instructions if i.op == "call")
    made = make_resume(code, call, stack=(), bound=("log",), thunk=True)
    with pytest.raises(AttributeError) as caught:
        FunctionType(made, {})(lambda: None, [])
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert last.filename == __file__ and last.line == "return log.missing"
    raising = make_resume(code, call, stack=(), bound=(), raises=True)
    with pytest.raises(KeyError) as caught:
        FunctionType(raising, {})(KeyError("k"))
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert last.line == "log.append(1)"


def test_a_break_in_a_loop_makes_one_resume_function():
    """The copy of the loop breaks at the copy of the place: that resumes in the very same code object."""
    code = samples.loops.__code__
    at = next(i.index for i in decode(code).instructions if i.op == "list_append" or i.op == "call")
    at = next(i.index for i in decode(code).instructions if i.op == "call" and i.index > at) + 1
    stack = tuple(True for _ in stack_before(code)[at])
    made = make_resume(code, at, stack=stack, bound=live_locals(code, at))
    copied = [
        i.index
        for i in decode(made).instructions
        if i.positions == decode(code).instructions[at].positions
        and i.op == decode(code).instructions[at].op
    ]
    again = make_resume(made, copied[-1], stack=stack, bound=live_locals(made, copied[-1]))
    assert again is made


def test_a_break_below_a_thunk_comes_back_to_the_same_function():
    code = samples.calls.__code__
    at = next(i.index for i in decode(code).instructions if i.op == "call")
    below = stack_before(code)[at][: -2 - decode(code).instructions[at].arg]
    stack = tuple(True for _ in below)
    made = make_resume(code, at, stack=stack, bound=live_locals(code, at), thunk=True)
    call = next(i.index for i in decode(made).instructions if i.op == "call")
    assert live_locals(made, call) == live_locals(code, at)
    again = make_resume(made, call, stack=stack, bound=live_locals(made, call), thunk=True)
    assert again is made


def test_a_value_nobody_reads_is_not_read():
    """The loop variable of `for _ in ...` and the result of a statement must not become guards."""

    def f(items, x):
        for _ in items:
            print()
            x = x + 1
        return x

    code = f.__code__
    instructions = decode(code).instructions
    for op in ("for_iter", "call"):
        at = next(i.index for i in instructions if i.op == op) + 1
        made = make_resume(code, at, stack=(True, True), bound=live_locals(code, at))
        reads = [
            i.argval for i in decode(made).instructions if i.op in ("load_fast", "delete_fast")
        ]
        assert "___stack_0" in reads and "___stack_1" not in reads
        assert FunctionType(made, {"print": lambda: None})(iter([1, 2]), object(), 1) == 4
