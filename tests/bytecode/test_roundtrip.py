"""Decoding and assembling keep what a program can observe, on thousands of real code objects."""

import dis
import sysconfig
import unittest
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType

import pytest

from argand.bytecode import Instruction, decode
from argand.bytecode.assemble import assemble
from argand.bytecode.flow import stack_before
from argand.bytecode.normal import ROWS, effect
from argand.bytecode.version import DIALECT


def codes_in(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_in(constant)


def real_codes() -> Iterator[CodeType]:
    library = Path(sysconfig.get_paths()["stdlib"])
    tests = sorted((library / "test").glob("test_*.py"))[::40]
    for file in [*sorted(library.glob("*.py"))[::8], *(library / "asyncio").glob("*.py"), *tests]:
        try:
            code = compile(file.read_text(errors="replace"), str(file), "exec")
        except SyntaxError:  # some of the tests are there to be refused
            continue
        yield from codes_in(code)


def as_rows(code: CodeType) -> list[tuple[object, ...]]:
    """The normal form with all that a program can observe; constants by their text, for nan and -0.0."""

    def shown(value: object) -> object:
        return value if isinstance(value, CodeType) else repr(value)

    return [
        (i.op, shown(i.argval), i.target, i.handler, i.positions) for i in decode(code).instructions
    ]


def test_real_code_objects_survive() -> None:
    """What is assembled decodes to the same instructions, with the same handlers and places in the source."""
    count = 0
    for code in real_codes():
        again = assemble(decode(code).instructions, code)
        assert as_rows(again) == as_rows(code), code
        count += 1
    assert count > 1500


def assembled(code: CodeType) -> CodeType:
    """The code, and all code in it, taken apart and put together again."""
    constants = tuple(assembled(c) if isinstance(c, CodeType) else c for c in code.co_consts)
    inner = code.replace(co_consts=constants)
    return assemble(decode(inner).instructions, inner)


LIBRARY_TESTS = ["test_with", "test_scope", "test_dictcomps", "test_contextlib", "test_patma"]


@pytest.mark.parametrize("name", LIBRARY_TESTS)
def test_reassembled_programs_run(name: str) -> None:
    """CPython's own tests of its language pass when every function in them was assembled by us."""
    file = Path(sysconfig.get_paths()["stdlib"]) / "test" / f"{name}.py"
    if not file.exists():
        pytest.skip("this Python has no tests of its own installed")

    def outcome(code: CodeType) -> tuple[int, list[str]]:
        scope = {"__name__": f"test.{name}", "__file__": str(file)}
        exec(code, scope)
        cases = [
            value
            for value in scope.values()
            if isinstance(value, type) and issubclass(value, unittest.TestCase)
        ]
        suite = unittest.TestSuite(map(unittest.defaultTestLoader.loadTestsFromTestCase, cases))
        result = unittest.TestResult()
        suite.run(result)
        failed = [case.id() for case, _ in (*result.failures, *result.errors)]
        return result.testsRun, sorted(failed)

    plain = compile(file.read_text(), str(file), "exec")
    expected, found = outcome(plain), outcome(assembled(plain))
    assert expected[0] > 5
    assert found == expected


def test_keyword_names_are_on_the_call() -> None:
    code = compile("f(1, a=2, b=g(3))", "x", "eval")
    calls = [i.argval for i in decode(code).instructions if i.op == "call"]
    assert calls == [(), ("a", "b")]


def test_every_opcode_has_an_answer() -> None:
    """Each opcode of the running Python is one of the normal form, is split, or is never in a code object."""
    machinery = {
        "CACHE",
        "EXTENDED_ARG",
        "INTERPRETER_EXIT",
        "RESERVED",
        "ENTER_EXECUTOR",
        "EXIT_INIT_CHECK",
    }
    parts = {"SET_FUNCTION_ATTRIBUTE", "CALL_KW"}  # read together with the instruction before
    real = {
        name for name, op in dis.opmap.items() if op < 256 and not name.startswith("INSTRUMENTED_")
    }
    unknown = {
        name
        for name in real - machinery - parts - set(DIALECT.split)
        if (DIALECT.renamed.get(name) or name.lower()) not in ROWS
    }
    assert unknown == set()


def test_stack_effects_agree_with_the_compiler() -> None:
    """The depth at which each code object says its handlers find the stack is the depth we compute."""
    checked = 0
    for code in real_codes():
        stacks = stack_before(code)
        for instruction in decode(code).instructions:
            stack, handler = stacks[instruction.index], instruction.handler
            if stack is not None and handler is not None:
                entry = stacks[handler.target]
                assert entry is not None
                assert len(entry) == handler.depth + 1 + handler.lasti
                checked += 1
        assert max((len(s) for s in stacks if s is not None), default=0) <= code.co_stacksize + 1
    assert checked > 1000


def test_every_row_has_an_effect() -> None:
    for op in ROWS:
        for arg in (0, 1, 2, 3):
            popped, pushed = effect(op, arg, jumps=False)
            assert popped >= 0 and pushed >= 0


def test_jumps_grow_when_code_is_inserted() -> None:
    """300 instructions in a loop body push the back jump over one byte; the function still runs."""

    def count(n):
        total = 0
        for i in range(n):
            if i % 2:
                continue
            total += i
        return total

    code = count.__code__
    old = decode(code).instructions
    at = next(i.index for i in old if i.op == "for_iter") + 1
    move = lambda index: index if index < at else index + 300
    new = []
    for i in old:
        if i.index == at:
            new += [
                Instruction(at + k, "nop", None, None, -1, i.positions, None, i.handler)
                for k in range(300)
            ]
        target = None if i.target is None else move(i.target)
        new.append(
            Instruction(
                move(i.index), i.op, i.arg, i.argval, i.offset, i.positions, target, i.handler
            )
        )
    longer = assemble(new, code)
    assert longer.co_code.count(bytes((dis.opmap["EXTENDED_ARG"],))) >= 2
    assert FunctionType(longer, {"range": range})(10) == 20
