"""Random numbers: reproducible, independent of width and place, and random."""

import ctypes
import functools

import llvmlite.binding as llvm
import numpy as np
import pytest
import torch

from argand.native import extern
from argand.native.codegen.math.random import emit_random
from argand.runtime.launch import Made
from tests.launch.plans import Plan
from tests.vector_math import harness


@functools.cache
def compiled(kind, element, lanes):
    text = harness.Text()
    result = emit_random(kind, text, "%seed", 5, "%index", element, lanes)
    stored = "i32" if kind == "bits" else element
    vector = stored if lanes == 1 else f"<{lanes} x {stored}>"
    if lanes == 1:
        index = "%index = add i64 %i, 0"
    else:
        iota = ", ".join(f"i64 {lane}" for lane in range(lanes))
        index = (
            f"%one = insertelement <{lanes} x i64> poison, i64 %i, i32 0\n"
            f"  %all = shufflevector <{lanes} x i64> %one, <{lanes} x i64> poison, "
            f"<{lanes} x i32> zeroinitializer\n"
            f"  %index = add <{lanes} x i64> %all, <{iota}>"
        )
    head, body = "\n".join(text.declared), "\n".join(text.lines)
    source = f"""{head}
define void @loop(ptr noalias %out, i64 %seed, i64 %begin, i64 %n) {{
entry:
  %end = add i64 %begin, %n
  br label %head
head:
  %i = phi i64 [%begin, %entry], [%next, %body]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %body, label %done
body:
  {index}
{body}
  %place = sub i64 %i, %begin
  %po = getelementptr {stored}, ptr %out, i64 %place
  store {vector} {result}, ptr %po, align 4
  %next = add i64 %i, {lanes}
  br label %head
done:
  ret void
}}
"""
    harness.machine()
    module = llvm.parse_assembly(source)
    module.verify()
    harness.optimise(module)
    engine = llvm.create_mcjit_compiler(module, harness._fresh_machine())
    engine.finalize_object()
    kind_ = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 3)
    return engine, kind_(engine.get_function_address("loop"))


def draw(kind, count, seed=0, begin=0, element="float", lanes=8):
    dtype = np.uint32 if kind == "bits" else harness.NUMPY[element]
    out = np.empty(count, dtype)
    compiled(kind, element, lanes)[1](out.ctypes.data, seed, begin, count)
    return out


@pytest.mark.parametrize("kind", ["bits", "uniform", "normal"])
def test_only_seed_and_index_matter(kind):
    whole = draw(kind, 4096, seed=3)
    assert np.array_equal(whole, draw(kind, 4096, seed=3, lanes=1))
    assert np.array_equal(whole[1000:2000], draw(kind, 1000, seed=3, begin=1000, lanes=4))
    assert not np.array_equal(whole, draw(kind, 4096, seed=4))


def test_indices_beyond_32_bits_differ():
    assert not np.array_equal(draw("bits", 64), draw("bits", 64, begin=1 << 32))


@pytest.mark.parametrize("element", ["float", "double"])
def test_uniform_moments_and_range(element):
    u = draw("uniform", 1 << 20, seed=11, element=element).astype(np.float64)
    assert 0.0 <= u.min() and u.max() < 1.0
    assert abs(u.mean() - 0.5) < 4 * np.sqrt(1 / 12 / u.size)
    assert abs(u.var() - 1 / 12) < 4 * np.sqrt(1 / 180 / u.size)
    counts = np.bincount((u * 1024).astype(int), minlength=1024)
    chi = ((counts - u.size / 1024) ** 2 / (u.size / 1024)).sum()
    assert abs(chi - 1023) < 5 * np.sqrt(2 * 1023)


@pytest.mark.parametrize("element", ["float", "double"])
def test_normal_moments_and_tails(element):
    z = draw("normal", 1 << 20, seed=12, element=element).astype(np.float64)
    assert np.isfinite(z).all()
    for power, expected, spread in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((z**power).mean() - expected) < 5 * np.sqrt(spread / z.size)
    assert abs((np.abs(z) > 3).mean() - 0.0026998) < 5 * np.sqrt(0.0027 / z.size)


def test_neighbours_seeds_and_bits_are_uncorrelated():
    count = 1 << 18
    bound = 5 / np.sqrt(count)
    u = draw("uniform", count, seed=1).astype(np.float64) - 0.5
    for lag in (1, 2, 3, 8, 64, 1024):
        assert abs((u[lag:] * u[:-lag]).mean() * 12) < bound, lag
    for seed in (2, 3, 1 << 32, -1):
        other = draw("uniform", count, seed=seed).astype(np.float64) - 0.5
        assert abs((u * other).mean() * 12) < bound, seed
    bits = np.unpackbits(draw("bits", count, seed=7).view(np.uint8)).reshape(count, 32)
    assert np.abs(bits.mean(0) - 0.5).max() < 0.5 * bound
    signs = bits.astype(np.float64) - 0.5
    correlation = signs.T @ signs / count * 4 - np.eye(32)
    assert np.abs(correlation).max() < bound * 1.2


def test_flipping_one_bit_of_the_index_flips_half_the_bits():
    for bit in (0, 1, 5, 12, 20):
        base = draw("bits", 4096, seed=9)
        flipped = draw("bits", 4096, seed=9, begin=1 << bit) if bit >= 12 else None
        if flipped is None:
            flipped = base[np.arange(4096) ^ (1 << bit)]
        share = np.unpackbits((base ^ flipped).view(np.uint8)).mean()
        assert abs(share - 0.5) < 0.01, bit


def test_seed_comes_from_torchs_generator():
    plan = Plan(0, (Made((1,), (1,), torch.int64),), (extern.seed_step(0),), (0,))
    torch.manual_seed(1)
    first, second = plan([])[0].item(), plan([])[0].item()
    torch.manual_seed(1)
    assert plan([])[0].item() == first != second
