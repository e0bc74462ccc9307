"""native.codegen.elf: our own loader against LLVM's."""

import ctypes

import pytest

from argand.native.codegen.elf import load_object, outside_symbols
from argand.native.codegen.llvm.engine import Loaded, compile_object
from argand.native.codegen.load import load
from argand.native.codegen.target import host_target
from argand.support.errors import InternalError

CONSTANTS = """
define void @scale(ptr %values, i64 %count) {
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %place = getelementptr double, ptr %values, i64 %i
  %old = load double, ptr %place
  %twice = fmul double %old, 2.5
  %new = fadd double %twice, 0.125
  store double %new, ptr %place
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %done
done:
  ret void
}
define void @twice(ptr %values, i64 %count) {
  call void @scale(ptr %values, i64 %count)
  call void @scale(ptr %values, i64 %count)
  ret void
}
"""
OUTSIDE = """
declare double @cbrt(double)
define double @root(double %x) {
  %y = call double @cbrt(double %x)
  ret double %y
}
"""


def run(loaded, name):
    values = (ctypes.c_double * 4)(1.0, -2.0, 3.0, 0.5)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(loaded.address(name))
    function(ctypes.addressof(values), 4)
    return list(values)


@pytest.mark.parametrize("name", ["scale", "twice"])
def test_functions_do_the_same_as_with_llvm(name):
    code = compile_object(CONSTANTS, host_target(), 1)
    ours = load_object(code)
    assert ours is not None
    assert run(ours, name) == run(Loaded(code), name)


def test_a_symbol_from_outside_is_left_to_llvm():
    code = compile_object(OUTSIDE, host_target(), 1)
    assert load_object(code) is None
    loaded = load(code)
    function = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(loaded.address("root"))
    assert function(27.0) == pytest.approx(3.0)


NOWHERE = """
declare double @argand_is_nowhere(double)
define double @lost(double %x) {
  %y = call double @argand_is_nowhere(double %x)
  ret double %y
}
"""


def test_a_symbol_that_nobody_has_is_refused_before_anything_runs():
    with pytest.raises(InternalError, match="kernels call argand_is_nowhere, which nobody"):
        compile_object(NOWHERE, host_target(), 1)
    code = compile_object(OUTSIDE, host_target(), 1)
    assert outside_symbols(code) == {"cbrt"}
    with pytest.raises(InternalError, match="the object calls abra, which nobody"):
        Loaded(code.replace(b"cbrt", b"abra"))


def test_what_is_no_object_is_refused():
    code = compile_object(CONSTANTS, host_target(), 1)
    assert load_object(b"") is None
    assert load_object(b"\x7fELF" + bytes(200)) is None
    for cut in range(64, len(code), 97):
        load_object(code[:cut])  # whatever it says, it does not crash
