"""Operators implemented by a C function: ctypes, numba, LLVM, from eager and from compiled code."""

import ctypes
import importlib.util
import threading
import warnings

import llvmlite.binding as llvm
import pytest
import torch
from torch import Tensor

import argand
from argand.customops.errors import RegistrationError
from argand.support import events

SIGNATURE = ctypes.CFUNCTYPE(
    None,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_int64),
    ctypes.c_int64,
    ctypes.c_int64,
)
# out[i] = scale * x[i] + y[i]; sizes: x's two, y's two, the bits of scale, the result's two.
AXPY = """
define void @axpy(ptr %buffers, ptr %sizes, i64 %begin, i64 %end) {
entry:
  %px = load ptr, ptr %buffers
  %ay = getelementptr ptr, ptr %buffers, i64 1
  %py = load ptr, ptr %ay
  %ao = getelementptr ptr, ptr %buffers, i64 2
  %po = load ptr, ptr %ao
  %as = getelementptr i64, ptr %sizes, i64 4
  %scale = load double, ptr %as
  %s = fptrunc double %scale to float
  %none = icmp sge i64 %begin, %end
  br i1 %none, label %done, label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %n, %loop ]
  %qx = getelementptr float, ptr %px, i64 %i
  %x = load float, ptr %qx
  %qy = getelementptr float, ptr %py, i64 %i
  %y = load float, ptr %qy
  %m = fmul float %x, %s
  %r = fadd float %m, %y
  %qo = getelementptr float, ptr %po, i64 %i
  store float %r, ptr %qo
  %n = add i64 %i, 1
  %more = icmp slt i64 %n, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


@pytest.fixture(scope="module")
def axpy():
    """An operator whose machine code LLVM made; its Python implementation only counts."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(AXPY), machine)
    engine.finalize_object()
    ran = []

    @argand.custom_op("argand_pointers::axpy", version="1")
    def axpy(x: Tensor, y: Tensor, scale: float = 1.0) -> Tensor:
        ran.append(x.dtype)
        return scale * x + y

    axpy.impl_fake(lambda x, y, scale=1.0: torch.empty_like(x))
    axpy.register_autograd(
        lambda ctx, grad: (grad * ctx.scale, grad, None),
        setup_context=lambda ctx, inputs, output: setattr(ctx, "scale", inputs[2]),
    )
    axpy.impl_c(engine.get_function_address("axpy"), dtypes=torch.float32, grain=64)
    axpy.ran, axpy.engine = ran, engine
    yield axpy
    axpy.destroy()


def test_eager_calls_the_machine_code(axpy):
    x, y = torch.randn(30, 40), torch.randn(30, 40)
    axpy.ran.clear()
    assert torch.allclose(axpy(x, y, 2.5), 2.5 * x + y)
    assert torch.allclose(axpy(x.t(), y.t(), 2.5), (2.5 * x + y).t())
    assert torch.allclose(axpy(x, y), x + y)
    assert not axpy.ran
    assert torch.allclose(axpy(x.double(), y.double(), 2.5), 2.5 * x.double() + y.double())
    assert axpy.ran == [torch.float64]


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_code_calls_it_without_python(axpy, dynamic):
    axpy.ran.clear()
    compiled = argand.compile(
        lambda a, b: axpy(a.sin(), b, 3.0) * 2, fullgraph=True, dynamic=dynamic
    )
    for size in (6, 300, 0, 1):
        x, y = torch.randn(size, 40), torch.randn(size, 40)
        assert torch.allclose(compiled(x, y), (3 * x.sin() + y) * 2, atol=1e-5)
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(compiled(x, y).sum(), x)
    assert torch.allclose(gradient, 6 * x.cos(), atol=1e-5)
    assert not axpy.ran


def test_no_python_frame_runs(axpy):
    import sys

    compiled = argand.compile(lambda a, b: axpy(a, b, 3.0), fullgraph=True)
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    with torch.no_grad():
        compiled(x, y)
        names = []
        sys.setprofile(
            lambda frame, event, _: (
                names.append(frame.f_code.co_filename) if event == "call" else None
            )
        )
        try:
            compiled(x, y)
        finally:
            sys.setprofile(None)
    assert not [name for name in names if "customops" in name or "torch/_ops" in name]


def test_other_layouts_and_types_go_through_the_operator(axpy):
    compiled = argand.compile(lambda a, b: axpy(a, b, 3.0), fullgraph=True)
    x, y = torch.randn(4, 3).t(), torch.randn(4, 3).t()
    assert torch.allclose(compiled(x, y), 3 * x + y)
    axpy.ran.clear()
    assert torch.allclose(compiled(x.double(), y.double()), 3 * x.double() + y.double())
    assert axpy.ran


def test_opcheck_and_threads(axpy):
    samples = (torch.randn(3, 4, requires_grad=True), torch.randn(3, 4), 2.0)
    report = argand.opcheck(axpy, samples)
    assert report.ok, str(report)
    compiled = argand.compile(lambda a, b: axpy(a, b, 2.0) + 1)
    x, y = torch.randn(200, 10), torch.randn(200, 10)
    compiled(x, y)
    wrong = []

    def work():
        for _ in range(20):
            if not torch.allclose(compiled(x, y), 2 * x + y + 1, atol=1e-5):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_in_place_by_ctypes():
    @SIGNATURE
    def add(buffers, sizes, begin, end):
        memory = ctypes.cast(buffers[0], ctypes.POINTER(ctypes.c_float))
        for index in range(begin, end):
            memory[index] += sizes[1]  # sizes: the tensor's one, then `by`

    @argand.custom_op("argand_pointers::bump", mutates_args=("x",))
    def bump(x: Tensor, by: int = 1) -> None:
        raise AssertionError("the C function runs")

    bump.impl_c(add, dtypes=[torch.float32])

    def f(t):
        u = t.clone()
        bump(u, by=3)
        bump(t)
        return u * 2

    ours, theirs = torch.zeros(5), torch.zeros(5)
    assert torch.equal(argand.compile(f, fullgraph=True)(ours), f(theirs))
    assert torch.equal(ours, theirs) and torch.equal(ours, torch.ones(5))
    strided = torch.zeros(4, 2)[:, 0]
    bump(strided, by=2)
    assert torch.equal(strided, torch.full((4,), 2.0))
    bump.destroy()


@pytest.mark.parametrize(
    "kind", ["numba" if importlib.util.find_spec("numba") else "object with an address"]
)
def test_numba_keeps_its_address_in_an_attribute(kind):
    if kind == "numba":
        import numba

        pointers = numba.types.CPointer(numba.types.voidptr)
        numbers = numba.types.CPointer(numba.int64)

        @numba.cfunc(numba.void(pointers, numbers, numba.int64, numba.int64))
        def double(buffers, sizes, begin, end):
            source = numba.carray(buffers[0], end, numba.float32)
            target = numba.carray(buffers[1], end, numba.float32)
            for index in range(begin, end):
                target[index] = 2 * source[index]
    else:

        class double:
            @SIGNATURE
            def kept(buffers, sizes, begin, end):
                source, target = (
                    ctypes.cast(buffers[k], ctypes.POINTER(ctypes.c_float)) for k in (0, 1)
                )
                for index in range(begin, end):
                    target[index] = 2 * source[index]

            address = ctypes.cast(kept, ctypes.c_void_p).value

    op = argand.custom_op("argand_pointers::double", lambda x: x * 2, schema="(Tensor x) -> Tensor")
    op.impl_c(double, dtypes=torch.float32)
    x = torch.randn(6)
    assert torch.equal(op(x), x * 2)
    assert torch.equal(argand.compile(lambda t: op(t), fullgraph=True)(x), x * 2)
    op.destroy()


@pytest.mark.parametrize(
    ("schema", "pointer", "dtypes", "words"),
    [
        ("(Tensor x, str s) -> Tensor", 1, torch.float32, "cannot take str"),
        ("(Tensor[] x, int s) -> Tensor", 1, torch.float32, r"cannot take List\[Tensor\]"),
        ("(Tensor x, int s) -> int", 1, torch.float32, "cannot take int"),
        ("(int x, int s) -> Tensor", 1, torch.float32, "without tensors"),
        ("(Tensor x, int s) -> Tensor", 0, torch.float32, "NULL"),
        ("(Tensor x, Tensor s) -> Tensor", 1, [torch.float32], r"1 dtypes for 2 tensors \(x, s\)"),
    ],
)
def test_wrong_c_functions(schema, pointer, dtypes, words):
    op = argand.custom_op("argand_pointers::wrong", lambda x, s: x, schema=schema)
    try:
        with pytest.raises(RegistrationError, match=words):
            op.impl_c(pointer, dtypes=dtypes)
    finally:
        op.destroy()


def test_registered_twice(axpy):
    with pytest.raises(RegistrationError, match="for these dtypes already"):
        axpy.impl_c(1, dtypes=torch.float32)


def test_plans_outlive_the_operator():
    @SIGNATURE
    def one(buffers, sizes, begin, end):
        memory = ctypes.cast(buffers[1], ctypes.POINTER(ctypes.c_float))
        for index in range(begin, end):
            memory[index] = 1.0

    op = argand.custom_op(
        "argand_pointers::one", lambda x: torch.ones_like(x), schema="(Tensor x) -> Tensor"
    )
    op.impl_c(one, dtypes=torch.float32)
    compiled = argand.compile(lambda t: op(t) + 1, fullgraph=True)
    assert torch.equal(compiled(torch.zeros(3)), torch.full((3,), 2.0))


def test_graphs_with_a_version_are_kept_on_disk(tmp_path):
    def made(version, length):
        op = argand.custom_op(
            "argand_pointers::ones",
            lambda x: torch.ones(length),
            schema="(Tensor x) -> Tensor",
            version=version,
        )

        @SIGNATURE
        def one(buffers, sizes, begin, end):
            for index in range(begin, end):
                ctypes.cast(buffers[1], ctypes.POINTER(ctypes.c_float))[index] = 1.0

        op.impl_fake(lambda x: torch.empty(length))
        op.impl_c(one, dtypes=torch.float32)
        return op

    def compiled_anew(version, length):
        op = made(version, length)
        argand.reset()
        with events.collect() as heard, torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an entry of another version is set aside with one
            run = argand.compile(lambda a: op(a) + 1, options={"cache_dir": str(tmp_path)})
            assert torch.equal(run(torch.zeros(3)), torch.full((length,), 2.0))
        op.destroy()
        counts = [event for event in heard.events if isinstance(event, events.Count)]
        return sum(
            event.counter == "cache.miss" and event.detail.startswith("graph:") for event in counts
        )

    assert [compiled_anew("1", 4), compiled_anew("1", 4), compiled_anew("2", 5)] == [1, 0, 1]
