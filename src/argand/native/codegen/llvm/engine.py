"""native.codegen.llvm.engine: LLVM text becomes machine code in this process.

In: module text. Out: object code (what a disk cache stores), and loaded functions by name.
"""

from __future__ import annotations

import functools
import threading
from typing import Any, Final, final

import llvmlite.binding as llvm

from argand.native.codegen.target import Target, host_target
from argand.support import events
from argand.support.errors import InternalError

_lock: Final = threading.Lock()  # LLVM's global registries are set up once


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
    try:
        with events.stage("native.llvm.parse"):
            module = llvm.parse_assembly(text)
    except RuntimeError as error:
        raise InternalError("native.llvm", str(error), dump=text) from error
    with events.stage("native.llvm.optimise"):
        _optimise(module, machine, level)
    with events.stage("native.llvm.code"):
        return bytes(machine.emit_object(module))


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
