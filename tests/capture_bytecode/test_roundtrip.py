"""Decoding then assembling is the identity, on thousands of real code objects."""

import dis
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import torch

from argand.capture.bytecode import Instruction, assemble, decode
from argand.capture.bytecode.flow import stack_before
from argand.capture.bytecode.version import dialect


def codes_in(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_in(constant)


def real_codes() -> Iterator[CodeType]:
    library = Path(sysconfig.get_paths()["stdlib"])
    modules = Path(torch.__file__).parent / "nn" / "modules"
    files = [*sorted(library.glob("*.py"))[::4], *(library / "asyncio").glob("*.py"), *modules.glob("*.py")]
    for file in files:
        yield from codes_in(compile(file.read_text(errors="replace"), str(file), "exec"))


def test_real_code_objects_survive() -> None:
    count = 0
    for code in real_codes():
        again = assemble(dialect.read(code), code)
        assert again == code, code
        assert again.co_code == code.co_code
        assert again.co_linetable == code.co_linetable
        assert again.co_exceptiontable == code.co_exceptiontable
        assert again.co_stacksize == code.co_stacksize
        count += 1
    assert count > 3000


def test_normal_form_agrees_with_dis() -> None:
    for code in list(codes_in(compile(Path(dis.__file__).read_text(), "dis.py", "exec"))):
        expected = [i for i in dis.get_instructions(code) if i.opname != "EXTENDED_ARG"]
        decoded = decode(code)
        for ours, theirs in zip(decoded.instructions, expected, strict=True):
            assert ours.offset == theirs.offset
            assert ours.positions == theirs.positions
            if ours.target is not None:
                target = expected[ours.target]
                extended = target.offset - theirs.argval  # dis points at the EXTENDED_ARG
                assert 0 <= extended <= 6 and extended % 2 == 0
            elif theirs.opcode in {*dis.hasconst, *dis.hasname, *dis.haslocal, *dis.hasfree}:
                if theirs.opname != "KW_NAMES":
                    assert ours.argval == theirs.argval


def test_keyword_names_are_on_the_call() -> None:
    code = compile("f(1, a=2, b=g(3))", "x", "eval")
    calls = [i.argval for i in decode(code).instructions if i.op == "CALL"]
    assert calls == [(), ("a", "b")]


def test_every_opcode_has_a_stack_effect() -> None:
    machinery = {"CACHE", "EXTENDED_ARG"}
    for name in set(dis.opmap) - machinery:
        normal = dialect.NORMAL[dis.opmap[name]]
        for arg in (2, 3):
            for jumps in (False, True):
                popped, pushed = dialect.effect(normal, arg, jumps=jumps)
                expected = dis.stack_effect(
                    dis.opmap[name], arg if dis.opmap[name] >= dis.HAVE_ARGUMENT else None, jump=jumps
                )
                if name not in DIFFERENT:
                    assert pushed - popped == expected, (name, arg, jumps)


# dis.stack_effect tells the effect on another path for these: PRECALL and CALL share one; the rest end a block.
DIFFERENT = {"PRECALL", "CALL", "RERAISE", "GET_LEN", "SEND", "RETURN_VALUE", "RETURN_GENERATOR", "END_ASYNC_FOR"}


def test_jumps_grow_when_code_is_inserted() -> None:
    """200 NOPs in a loop body push the back jump over one byte; the function still runs."""

    def count(n):
        total = 0
        for i in range(n):
            if i % 2:
                continue
            total += i
        return total

    code = count.__code__
    old = decode(code).instructions
    at = next(i.index for i in old if i.op == "FOR_ITER") + 1
    move = lambda index: index if index < at else index + 300
    new = []
    for i in old:
        if i.index == at:
            new += [Instruction(at + k, "NOP", None, None, -1, i.positions, None, i.handler) for k in range(300)]
        target = None if i.target is None else move(i.target)
        new.append(Instruction(move(i.index), i.op, i.arg, i.argval, i.offset, i.positions, target, i.handler))
    longer = assemble(new, code)
    assert longer.co_code.count(bytes((dis.opmap["EXTENDED_ARG"],))) >= 2
    assert type(count)(longer, {})(10) == 20 or type(count)(longer, {"range": range})(10) == 20


def test_depths_match_the_exception_table() -> None:
    for code in codes_in(compile(Path(dis.__file__).read_text(), "dis.py", "exec")):
        stacks = stack_before(code)
        for instruction in decode(code).instructions:
            stack, handler = stacks[instruction.index], instruction.handler
            if stack is not None and handler is not None:
                entry = stacks[handler.target]
                assert entry is not None
                assert len(entry) == handler.depth + 1 + handler.lasti
