"""native.codegen.llvm.engine: LLVM text becomes machine code in this process.

In: module text. Out: object code (what a disk cache stores), and loaded functions by name.
"""

from __future__ import annotations

import functools
import os
import struct
from typing import Any, Final, final

import llvmlite.binding as llvm

from argand.native.codegen.elf import outside_symbols
from argand.native.codegen.target import Target, host_target
from argand.support import events
from argand.support.errors import InternalError
from argand.support.locks import make_lock


def _leave() -> None:
    _inside.__exit__(None, None, None)


_lock: Final = make_lock()  # LLVM's global registries are set up once

# A fork waits for the call of LLVM another thread is in (llvmlite lets one in at a time): the child could
# neither wait for that thread nor use the tables it was changing.
_inside: Final = llvm.ffi.lib._lock
os.register_at_fork(before=_inside.__enter__, after_in_parent=_leave, after_in_child=_leave)


# What LLVM calls to convert half numbers where the processor cannot (no F16C): no library here has them.
_HALF_CONVERSIONS: Final = """
define float @__extendhfsf2(half %x) {
  %h = bitcast half %x to i16
  %i = zext i16 %h to i32
  %magnitude = and i32 %i, 32767
  %shifted = shl i32 %magnitude, 13
  %small = bitcast i32 %shifted to float
  %scaled = fmul float %small, 0x46F0000000000000
  %finite = bitcast float %scaled to i32
  %large = or i32 %shifted, 2139095040
  %special = icmp uge i32 %magnitude, 31744
  %bits = select i1 %special, i32 %large, i32 %finite
  %sign = and i32 %i, 32768
  %high = shl i32 %sign, 16
  %all = or i32 %bits, %high
  %result = bitcast i32 %all to float
  ret float %result
}
define half @__truncsfhf2(float %x) {
  %i = bitcast float %x to i32
  %f = and i32 %i, 2147483647
  %nan = icmp ugt i32 %f, 2139095040
  %over = select i1 %nan, i32 32256, i32 31744
  %absolute = bitcast i32 %f to float
  %raised = fadd float %absolute, 5.0e-01
  %raised.bits = bitcast float %raised to i32
  %tiny = sub i32 %raised.bits, 1056964608
  %kept = lshr i32 %f, 13
  %odd = and i32 %kept, 1
  %biased = add i32 %f, 3355447295
  %even = add i32 %biased, %odd
  %normal = lshr i32 %even, 13
  %is.tiny = icmp ult i32 %f, 947912704
  %inside = select i1 %is.tiny, i32 %tiny, i32 %normal
  %is.over = icmp uge i32 %f, 1199570944
  %bits = select i1 %is.over, i32 %over, i32 %inside
  %top = lshr i32 %i, 16
  %sign = and i32 %top, 32768
  %all = or i32 %bits, %sign
  %h = trunc i32 %all to i16
  %result = bitcast i16 %h to half
  ret half %result
}
"""


@functools.cache
def _set_up() -> Any:
    with _lock:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        llvm.load_library_permanently("libm.so.6")
        return llvm.Target.from_default_triple()


def _machine(target: Target, level: int) -> Any:
    return _set_up().create_target_machine(
        cpu=target.cpu, features=target.features, opt=level, jit=True, codemodel="jitdefault"
    )


def compile_object(text: str, target: Target, level: int) -> bytes:
    """Optimise and compile a module; InternalError with the text when LLVM refuses it."""
    machine = _machine(target, level)
    if " half" in text and "+f16c" not in target.features:
        text += _HALF_CONVERSIONS
    try:
        with events.stage("native.llvm.parse"):
            # the global one keeps types and constants for ever
            module = llvm.parse_assembly(text, llvm.create_context())
    except RuntimeError as error:
        raise InternalError("native.llvm", str(error), dump=text) from error
    with events.stage("native.llvm.optimise"):
        _optimise(module, machine, level)
    with events.stage("native.llvm.code"):
        code = bytes(machine.emit_object(module))
    if lacking := unresolved(code):
        raise InternalError(
            "native.llvm",
            f"kernels call {', '.join(lacking)}, which nobody here defines",
            dump=text,
        )
    return code


def unresolved(code: bytes) -> tuple[str, ...]:
    """What an object calls and this process does not have: MCJIT would call address 0 in its place.

    LLVM may turn any instruction into a call of its runtime library; those of libm and libc are here.
    """
    _set_up()
    try:
        outside = outside_symbols(code)
    except (ValueError, struct.error):  # no ELF: LLVM's own loader reports what is missing
        return ()
    return tuple(name for name in sorted(outside) if llvm.address_of_symbol(name) is None)


def _optimise(module: Any, machine: Any, level: int) -> None:
    """Inline the maths, keep accumulators in registers, clean up; the loops are vector loops already."""
    options = llvm.create_pipeline_tuning_options(speed_level=min(level, 3))
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_unrolling = level >= 3
    builder = llvm.create_pass_builder(machine, options)
    if level >= 3:
        builder.getModulePassManager().run(module, builder)
        return
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_global_dead_code_eliminate_pass()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    passes.add_instruction_combine_pass()
    passes.add_new_gvn_pass()
    passes.add_loop_rotate_pass()
    passes.run(module, builder)


@final
class Loaded:
    """Machine code in memory; it lives as long as this object."""

    def __init__(self, code: bytes) -> None:
        if lacking := unresolved(code):
            raise InternalError(
                "native.llvm", f"the object calls {', '.join(lacking)}, which nobody here defines"
            )
        machine = _machine(host_target(), 0)
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()

    def address(self, name: str) -> int:
        """Where a function begins."""
        found = int(self._engine.get_function_address(name))
        if found == 0:
            raise InternalError("native.llvm", f"no function {name} in the object")
        return found
