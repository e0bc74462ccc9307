"""native.verify_module: the rules of modules of kernels (K1 and K2 of docs/ir.md); LLVM checks the rest itself.

In: KernelModule. Out: the first broken rule, or None.
"""

from __future__ import annotations

import re
from typing import Final

from argand.native.codegen.llvm.module import KernelCall, KernelModule
from argand.native.ir.faults import Fault

_DEFINED: Final = re.compile(r"^(?:define [^@]*@|def )([\w.]+)\(", re.M)  # LLVM's or Triton's
_DECLARED: Final = re.compile(r"^declare [^@]*@([\w.]+)\(", re.M)
_CALLED: Final = re.compile(r"call [^@\n]*@([\w.]+)\(")


def verify_module(module: KernelModule) -> Fault | None:
    """The first broken rule of a module."""
    defined = _DEFINED.findall(module.text)
    for name in module.functions:
        if defined.count(name) != 1:
            return Fault("K1", f"{name} is defined {defined.count(name)} times")
    for item in module.work:
        if isinstance(item, KernelCall) and item.function not in module.functions:
            return Fault("K1", f"{item.function} runs and is not there")
    declared = {*defined, *_DECLARED.findall(module.text)}
    for name in _CALLED.findall(module.text):
        if name not in declared:
            return Fault("K2", f"{name} is called and not declared")
    return None
