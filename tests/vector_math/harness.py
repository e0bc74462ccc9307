"""Compile one maths function to a loop over an array, and measure its error in ULP."""

from __future__ import annotations

import ctypes
import functools
import math

import llvmlite.binding as llvm
import numpy as np

from argand.native.codegen import math as library
from argand.native.codegen.target import host_target

LANES = {"float": host_target().vector_bytes // 4, "double": host_target().vector_bytes // 8}
NUMPY = {"float": np.float32, "double": np.float64}


class Text:
    """The least caller of `emit`: collects lines and definitions."""

    def __init__(self):
        self.lines, self.declared = [], {}

    def value(self, instruction):
        name = f"%t{len(self.lines)}"
        self.lines.append(f"  {name} = {instruction}")
        return name

    def declare(self, text):
        self.declared[text] = None


def loop_text(name, element, lanes, arity=1):
    """`void loop(T *out, T *x, T *y, i64 n)`, n a multiple of lanes."""
    text = Text()
    vector = element if lanes == 1 else f"<{lanes} x {element}>"
    result = library.emit(name, text, ["%x", "%y"][:arity], element, lanes)
    loads = "".join(
        f"  %p{a} = getelementptr {element}, ptr %a{a}, i64 %i\n  %{a} = load {vector}, ptr %p{a}, align 4\n"
        for a in ("x", "y")[:arity]
    )
    body = "\n".join(text.lines)
    head = "\n".join(text.declared)
    return f"""{head}
define void @loop(ptr noalias %out, ptr noalias %ax, ptr noalias %ay, i64 %n) {{
entry:
  br label %head
head:
  %i = phi i64 [0, %entry], [%next, %body]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %body, label %done
body:
{loads}{body}
  %po = getelementptr {element}, ptr %out, i64 %i
  store {vector} {result}, ptr %po, align 4
  %next = add i64 %i, {lanes}
  br label %head
done:
  ret void
}}
"""


@functools.cache
def machine():
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.load_library_permanently("libm.so.6")
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2
    )


def optimise(module):
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = False
    llvm.create_pass_builder(machine(), options).getModulePassManager().run(
        module, llvm.create_pass_builder(machine(), options)
    )


@functools.cache
def compiled(name, element, lanes, arity=1):
    """(engine kept alive, ctypes function)."""
    module = llvm.parse_assembly(loop_text(name, element, lanes, arity))
    module.verify()
    optimise(module)
    engine = llvm.create_mcjit_compiler(module, _fresh_machine())
    engine.finalize_object()
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64)
    return engine, kind(engine.get_function_address("loop"))


def _fresh_machine():
    machine()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2
    )


def run(name, *inputs, lanes=None):
    """The function on numpy arrays of float32 or float64."""
    x = inputs[0]
    element = "float" if x.dtype == np.float32 else "double"
    lanes = lanes or LANES[element]
    size = -(-x.size // lanes) * lanes
    padded = [np.resize(a, size) if a.size else a for a in inputs]
    out = np.empty(size, x.dtype)
    _, function = compiled(name, element, lanes, len(inputs))
    function(out.ctypes.data, padded[0].ctypes.data, padded[-1].ctypes.data, size)
    return out[: x.size]


def ulp_error(actual, exact, floor=0.0):
    """|actual - exact| in units of the last place of the exact value; equal specials count 0.

    Of exact values below `floor`, the last place of `floor` counts.

    `exact` has more precision than `actual` (float64 for float32, longdouble for float64).
    """
    kind = actual.dtype.type
    info = np.finfo(kind)
    with np.errstate(all="ignore"):
        rounded = exact.astype(kind)
        least = np.maximum(np.spacing(kind(floor)), info.smallest_subnormal)
        spacing = np.maximum(np.spacing(np.abs(rounded)), least)
        spacing = np.where(np.isfinite(spacing), spacing, np.spacing(info.max))
        wide = exact.dtype.type
        error = np.abs(actual.astype(wide) - exact) / spacing.astype(wide)
        same = (actual == rounded) | (np.isnan(actual) & np.isnan(rounded))
        error = np.where(same & ~np.isfinite(error), 0, error)
    return np.where(np.isnan(error), np.inf, error)


def every_exponent(kind, per_exponent, low=-math.inf, high=math.inf, seed=0):
    """Random values of every exponent and sign, with denormals and special values."""
    generator = np.random.default_rng(seed)
    unsigned = np.uint32 if kind == np.float32 else np.uint64
    mantissa = np.finfo(kind).nmant
    exponents = 1 << (8 if kind == np.float32 else 11)
    fraction = generator.integers(0, 1 << mantissa, (exponents - 1, per_exponent), dtype=unsigned)
    bits = fraction | (np.arange(exponents - 1, dtype=unsigned)[:, None] << unsigned(mantissa))
    positive = bits.ravel().view(kind)
    special = np.array([0.0, np.inf, np.nan, 1.0, np.finfo(kind).max, np.finfo(kind).tiny], kind)
    values = np.concatenate([positive, special])
    values = np.concatenate([values, -values])
    with np.errstate(invalid="ignore"):
        return values[~((values < low) | (values > high))]


def dense(kind, low, high, count, seed=1):
    return np.random.default_rng(seed).uniform(low, high, count).astype(kind)
