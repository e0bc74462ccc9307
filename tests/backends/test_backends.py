"""Counterparts of torch's test/dynamo/test_backends.py (features.md 3a), written anew."""

import subprocess
import sys
import textwrap

import pytest
import torch
from torch import nn

import argand
from argand.backends import registry
from argand.backends.failing import ReluCompileError, ReluRuntimeError
from argand.support.errors import ArgandError, BackendCompilerFailed, InternalError, InvalidBackend


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(10, 10), nn.Linear(10, 10)

    def forward(self, x):
        return torch.sigmoid(self.second(torch.relu(self.first(x))))


@pytest.fixture(autouse=True)
def clean():
    yield
    argand.reset()


LADDER = [
    "eager",
    "eager_noexcept",
    "eager_debug",
    "aot_eager",
    "aot_eager_default_partitioner",
    "aot_eager_decomp_partition",
    "ts",
    "aot_ts",
    "onnxrt",
    "argand",
]


@pytest.mark.parametrize("name", LADDER)
def test_backend_equals_eager(name):
    torch.manual_seed(0)
    model, x = Small().eval(), torch.randn(2, 10)
    compiled = argand.compile(model, backend=name, fullgraph=True)
    for _ in range(2):
        assert torch.allclose(compiled(x), model(x), atol=1e-5)


@pytest.mark.parametrize("name", LADDER)
def test_backend_trains_like_eager(name):
    torch.manual_seed(0)
    model, x = Small(), torch.randn(2, 10)
    model(x).sum().backward()
    expected = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    argand.compile(model, backend=name, fullgraph=True)(x).sum().backward()
    for gradient, parameter in zip(expected, model.parameters(), strict=True):
        assert torch.allclose(gradient, parameter.grad, atol=1e-5)


def test_example_inputs_can_run_the_graph():
    seen = []

    def backend(gm, example_inputs):
        seen.append(gm(*example_inputs))
        assert all(type(value) is torch.Tensor for value in example_inputs)
        return gm.forward

    def f(a, pair, d):
        b, c = pair
        return a + b * c + d

    a, b, c = (torch.randn(3, 4).t() for _ in range(3))
    result = argand.compile(f, backend=backend, fullgraph=True)(a, (b, c), 2)
    (outputs,) = seen
    expected = f(a, (b, c), 2)
    for value in (outputs[0], result):
        assert torch.equal(value, expected)
        assert (value.stride(), value.dtype) == (expected.stride(), expected.dtype)


def test_returned_function_is_what_runs():
    def backend(gm, example_inputs):
        return lambda *inputs: tuple(value + 1 for value in gm(*inputs))

    x = torch.randn(3)
    assert torch.equal(argand.compile(lambda t: t.sin(), backend=backend)(x), x.sin() + 1)


def test_in_place_keeps_dtype():
    def f(x, y):
        x += y
        return x.sin()

    expected = f(torch.ones(3), torch.ones(3, dtype=torch.float64))
    got = argand.compile(f, backend="aot_eager")(torch.ones(3), torch.ones(3, dtype=torch.float64))
    assert torch.equal(got, expected) and got.dtype == torch.float32


def test_register_and_compile_by_name():
    ran = []

    @argand.register_backend(name="by_name_in_test")
    def backend(gm, example_inputs):
        ran.append(gm)
        return gm.forward

    try:
        argand.compile(torch.sin, backend="by_name_in_test")
        argand.compile(lambda x: x.sin() * 2, backend="by_name_in_test")(torch.randn(3))
    finally:
        registry.unregister_backend("by_name_in_test")
    assert len(ran) == 1


def test_aot_autograd_factory():
    seen = []

    def compiler(name):
        def compile_graph(gm, example_inputs):
            seen.append(name)
            return argand.make_boxed_func(gm.forward)

        return compile_graph

    backend = argand.aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
    )
    f = argand.compile(lambda x: x.sin().sum(), backend=backend)
    with torch.no_grad():
        f(torch.randn(3))
    assert seen == ["inference"]
    x = torch.randn(3, requires_grad=True)
    y = f(x)
    assert seen == ["inference", "forward"]
    y.backward()
    assert seen == ["inference", "forward", "backward"]
    assert torch.allclose(x.grad, x.cos())


def test_list_of_backends_runs():
    def declines(gm, example_inputs):
        raise NotImplementedError("not mine")

    x = torch.randn(3)
    f = argand.compile(lambda t: t * 2, backend=["tensorrt", declines, "eager"])
    assert torch.equal(f(x), x * 2)


def test_backend_composed_by_lookup():
    def composed(gm, example_inputs):
        for name in ("tensorrt", "argand"):
            try:
                return argand.lookup_backend(name)(gm, example_inputs)
            except InvalidBackend:
                continue
        return gm.forward

    x = torch.randn(3)
    f = argand.compile(lambda t: t.relu() * 2, backend=composed, fullgraph=True)
    assert torch.allclose(f(x), x.relu() * 2)


def test_backend_sees_which_inputs_are_parameters():
    """Counterpart of the freezing test: a backend that freezes must tell weights from data."""
    seen = []

    def backend(gm, example_inputs):
        seen.append([isinstance(value, nn.Parameter) for value in example_inputs])
        return gm.forward

    model = nn.Linear(3, 4)
    with torch.no_grad():
        argand.compile(model, backend=backend, fullgraph=True)(torch.randn(2, 3))
    assert sorted(seen[0]) == [False, True, True]


def test_explain_with_backend():
    def innermost(x):
        x = x.sin()
        argand.graph_break()
        return x.cos()

    def third(x):
        return innermost(x) + 1

    def second(x):
        return third(x) * 2

    def outermost(x):
        return second(x) - 3

    watched = argand.ExplainWithBackend("argand")
    x = torch.randn(4)
    compiled = argand.compile(outermost, backend=watched)  # a reset is about what is still alive
    assert torch.allclose(compiled(x), outermost(x), atol=1e-5)
    found = watched.output()
    # Two graphs around one break; torch's own wrapper counts eight graphs and seven breaks here.
    assert (found.graph_count, found.graph_break_count, found.op_count) == (2, 1, 5)
    assert [reason.row.name for reason in found.breaks] == ["B005"]
    assert found.ops_per_graph == (
        ("Tensor.sin",),
        ("Tensor.cos", "operator.add", "operator.mul", "operator.sub"),
    )
    assert "2 graphs, 1 graph breaks, 5 operations" in str(found)
    argand.reset()
    assert watched.output().graph_count == 0


def test_explain_with_backend_tells_frames_left_to_python():
    def numbers(x):
        if len(x) > 5:
            late = x  # may be unset where it yields: such a generator is Python's
        yield x + 1
        if len(x) > 5:
            yield late

    watched = argand.ExplainWithBackend("eager")
    x = torch.randn(2)
    (got,) = argand.compile(numbers, backend=watched)(x)
    assert torch.equal(got, x + 1)
    assert watched.output().graph_count == len(watched.frames) == 0


def test_unknown_backend_fails_at_compile():
    with pytest.raises(InvalidBackend, match="no backend named 'nope'"):
        argand.compile(lambda x: x, backend="nope")


def test_changed_options_recompile_equal_ones_do_not():
    counted = []

    def backend(gm, example_inputs, options=None):
        counted.append(options)
        if options and options.get("fail"):
            raise ValueError("asked to fail")
        return gm.forward

    def f(x):
        return x + 1

    x = torch.randn(3)
    for _ in range(2):
        argand.compile(f, backend=backend, options={"fail": False})(x)
    with pytest.raises(BackendCompilerFailed, match="asked to fail"):
        argand.compile(f, backend=backend, options={"fail": True}, fullgraph=True)(x)
    assert {"fail": True} in counted


def test_failing_backend_falls_back_with_one_warning():
    def backend(gm, example_inputs):
        raise ValueError("inner words")

    def f(x):
        return x + 1

    compiled = argand.compile(f, backend=backend)
    x = torch.randn(3)
    with pytest.warns(UserWarning, match="inner words"):
        assert torch.equal(compiled(x), x + 1)
    assert torch.equal(compiled(x), x + 1)
    with pytest.raises(BackendCompilerFailed, match="inner words") as caught:
        argand.compile(f, backend=backend, fullgraph=True)(x)
    assert isinstance(caught.value.inner_exception, ValueError)


def test_backends_that_fail_on_purpose():
    def f(x):
        return torch.relu(x)

    x = torch.tensor([-1.0, 2.0])
    with pytest.raises(BackendCompilerFailed) as caught:
        argand.compile(f, backend="relu_compile_error_TESTING_ONLY", fullgraph=True)(x)
    assert isinstance(caught.value.inner_exception, ReluCompileError)
    # eager does not raise: its result is the answer
    with pytest.warns(RuntimeWarning, match="ReluRuntimeError"):
        assert torch.equal(argand.compile(f, backend="relu_runtime_error_TESTING_ONLY")(x), f(x))
    with pytest.raises(InternalError) as caught:
        argand.compile(f, backend="relu_runtime_error_TESTING_ONLY", fullgraph=True)(x)
    assert isinstance(caught.value.__cause__, ReluRuntimeError)
    wrong = argand.compile(f, backend="relu_accuracy_error_TESTING_ONLY")(x)
    assert torch.equal(wrong, x + 1)


def test_eager_noexcept_marks_exceptions():
    def f(x, i):
        return x[i]

    compiled = argand.compile(f, backend="eager_noexcept", fullgraph=True)
    x = torch.randn(3)
    compiled(x, torch.tensor([0, 1]))
    with pytest.raises(ArgandError, match="unexpected exception"):
        compiled(x, torch.tensor([0, 7]))


def test_reset_reaches_the_backend():
    class Resettable:
        count = 0

        def __call__(self, gm, example_inputs):
            return gm.forward

        def reset(self):
            Resettable.count += 1

    compiled = argand.compile(lambda x: x + 1, backend=Resettable())
    compiled(torch.randn(2))
    argand.reset()
    assert Resettable.count == 1


def test_packages_with_entry_points_are_found_in_both_directions(tmp_path):
    (tmp_path / "theirs.py").write_text(
        "calls = []\ndef backend(gm, inputs):\n    calls.append(gm)\n    return gm.forward\n"
    )
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[argand_backends]\ntheirs = theirs:backend\n[torch_dynamo_backends]\nof_torch = theirs:backend\n"
    )
    program = textwrap.dedent(
        """
        import sys; sys.path.insert(0, sys.argv[1])
        import torch
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU())
        x = torch.randn(2, 4)
        y = torch.compile(model, backend="argand")(x)  # with nothing of ours imported
        assert torch.allclose(y, model(x), atol=1e-5)
        y.sum().backward()
        assert model[0].weight.grad is not None
        assert torch.equal(torch.compile(lambda t: t + 3, backend="of_torch")(x), x + 3)

        import argand, theirs
        assert "theirs" in argand.list_backends() and len(theirs.calls) == 1
        assert torch.equal(argand.compile(lambda t: t + 1, backend="theirs")(x), x + 1)
        assert torch.equal(argand.compile(lambda t: t * 2, backend="of_torch")(x), x * 2)
        assert len(theirs.calls) == 3
        """
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)


@pytest.mark.parametrize("mode", ["default", "fast-compile", "max-performance", "reduce-overhead"])
def test_every_mode_equals_eager(mode):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 16), nn.GELU(), nn.LayerNorm(16), nn.Softmax(-1))
    x = torch.randn(5, 10)
    model(x).square().sum().backward()
    expected = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    result = argand.compile(model, mode=mode)(x)
    result.square().sum().backward()
    assert torch.allclose(result, model(x), atol=1e-5)
    for gradient, parameter in zip(expected, model.parameters(), strict=True):
        assert torch.allclose(gradient, parameter.grad, atol=1e-5)


def test_devices_and_dtypes_of_inputs():
    from argand.backends.aot import device_from_inputs, dtype_from_inputs

    inputs = [3, torch.ones(1, dtype=torch.float64, device="meta"), torch.ones(1)]
    assert (device_from_inputs(inputs).type, dtype_from_inputs(inputs)) == ("meta", torch.float64)
    assert (device_from_inputs([3]).type, dtype_from_inputs([])) == ("cpu", torch.float32)


@pytest.mark.parametrize("backend", ["ts", "aot_ts", "onnxrt", "openvino"])
def test_backends_for_fixed_sizes_take_open_graphs(backend):
    def f(x):
        return torch.softmax(x @ x.t(), -1).sum(0) + x.size(0)

    compiled = argand.compile(f, backend=backend, dynamic=True, fullgraph=True)
    for size in (5, 7):
        x = torch.randn(size, 3)
        assert torch.allclose(compiled(x), f(x), atol=1e-5)
