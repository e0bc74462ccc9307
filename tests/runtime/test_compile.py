"""argand.compile with the eager backend: the forms it takes, and when it compiles again."""

import copy
import functools
import gc
import inspect
import io
import pickle
import subprocess
import sys
import threading
import warnings
import weakref

import pytest
import torch

import argand
from argand.runtime import _native
from argand.support import events


class Counting:
    """The eager backend, counting the graphs it gets."""

    def __init__(self):
        self.graphs = []

    def __call__(self, gm, inputs):
        self.graphs.append(gm)
        return gm.forward


@pytest.fixture
def backend():
    yield Counting()
    assert not _native.hook_is_installed()
    assert argand.runtime.stance.current() == "default"


X = torch.arange(6.0).reshape(2, 3)


# ---- forms ----


def plain(x, y=2):
    """Doc."""
    return torch.relu(x) * y


def test_function_in_call_form(backend):
    compiled = argand.compile(plain, backend=backend)
    assert torch.equal(compiled(X), plain(X)) and torch.equal(compiled(X), plain(X))
    assert len(backend.graphs) == 1
    assert (compiled.__name__, compiled.__doc__) == ("plain", "Doc.")
    assert inspect.signature(compiled) == inspect.signature(plain)
    assert compiled.__wrapped__ is plain


def test_decorators(backend):
    @argand.compile(backend=backend)
    def f(x):
        return x + 1

    assert torch.equal(f(X), X + 1) and len(backend.graphs) == 1

    class Thing:
        def __init__(self):
            self.scale = 3.0

        @argand.compile(backend=backend)
        def method(self, x):
            return x * self.scale

        @argand.compile(backend=backend)
        @staticmethod
        def static(x):
            return x - 1

        @classmethod
        def make(cls, x):
            return x - 2

    assert torch.equal(Thing().method(X), X * 3) and torch.equal(Thing.static(X), X - 1)
    assert torch.equal(Thing().static(X), X - 1)
    assert len(backend.graphs) == 3


def test_methods_partials_callables_and_classes(backend):
    class Scale:
        def __init__(self, by):
            self.by = by

        def __call__(self, x):
            return x * self.by

        def method(self, x):
            return x + self.by

    two = Scale(2.0)
    assert torch.equal(argand.compile(two.method, backend=backend)(X), X + 2)
    assert torch.equal(argand.compile(two, backend=backend)(X), X * 2)
    assert torch.equal(argand.compile(functools.partial(plain, y=5), backend=backend)(X), X * 5)
    assert len(backend.graphs) == 3
    assert argand.compile(Scale, backend=backend) is Scale
    assert torch.equal(two(X), X * 2) and len(backend.graphs) == 4
    with pytest.raises(TypeError, match="callable"):
        argand.compile(3)
    with pytest.raises(TypeError, match="cannot be called"):
        argand.compile(type("Empty", (), {}))


def test_disable_returns_the_argument():
    assert argand.compile(plain, disable=True) is plain
    module = torch.nn.Linear(2, 2)
    assert argand.compile_in_place(module, disable=True)._compiled_call_impl is None


def test_unknown_backend_and_options_fail_at_once():
    with pytest.raises(argand.InvalidBackend, match="eager"):
        argand.compile(plain, backend="eagre")
    with pytest.raises(argand.UserError, match="recompile_limit"):
        argand.compile(plain, backend="argand", options={"recompile_limt": 3})


def test_one_function_with_several_backends_and_options(backend):
    other = Counting()
    one = argand.compile(plain, backend=backend)
    two = argand.compile(plain, backend=other, fullgraph=True)
    assert torch.equal(one(X), two(X))
    assert (len(backend.graphs), len(other.graphs)) == (1, 1)


def test_pickle_and_copy_of_a_function(backend):
    compiled = argand.compile(plain, backend=backend)
    assert copy.deepcopy(compiled) is compiled
    assert pickle.loads(pickle.dumps(decorated)) is decorated


@argand.compile(backend="eager")
def decorated(x):
    return x


# ---- modules ----


class Net(torch.nn.Module):
    made = []

    def __init_subclass__(cls, **keywords):
        Net.made.append(cls)

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(3, 3)
        self.register_buffer("shift", torch.ones(3))
        self.scale = 2.0

    def forward(self, x):
        y = self.fc(x) * self.scale + self.shift
        return torch.nn.functional.dropout(y, 0.5, self.training)

    def twice(self, x):
        return self(self(x))


def test_a_compiled_module_is_the_module(backend):
    net = Net().eval()
    compiled = argand.compile(net, backend=backend)
    assert torch.equal(compiled(X), net(X)) and torch.equal(compiled(X), net(X))
    assert len(backend.graphs) == 1
    assert isinstance(compiled, Net) and compiled.__class__ is Net and type(net) is Net
    assert (
        list(compiled.state_dict()) == list(net.state_dict()) == ["shift", "fc.weight", "fc.bias"]
    )
    assert repr(compiled) == repr(net)
    assert [id(p) for p in compiled.parameters()] == [id(p) for p in net.parameters()]
    assert Net.made == [Rich]


def test_attributes_flags_and_state_are_shared(backend):
    net = Net().eval()
    compiled = argand.compile(net, backend=backend)
    compiled(X)
    compiled.scale = 5.0
    assert net.scale == 5.0
    assert torch.equal(compiled(X), net(X))
    net.scale = 7.0
    assert torch.equal(compiled(X), net(X))
    compiled.load_state_dict({name: value + 1 for name, value in net.state_dict().items()})
    assert torch.equal(compiled(X), net(X))
    compiled.train()
    assert net.training and net.fc.training
    net.eval()
    assert not compiled.training
    compiled.fc = torch.nn.Linear(3, 3)
    assert net.fc is compiled.fc and torch.equal(compiled(X), net(X))
    compiled.double()
    assert torch.equal(compiled(X.double()), net(X.double()))


def test_copies_and_pickles_are_plain(backend):
    net = Net().eval()
    compiled = argand.compile(net, backend=backend)
    buffer = io.BytesIO()
    torch.save(compiled, buffer)
    buffer.seek(0)
    copies = [
        copy.deepcopy(compiled),
        pickle.loads(pickle.dumps(compiled)),
        torch.load(buffer, weights_only=False),
    ]
    for twin in copies:
        assert type(twin) is Net and torch.equal(twin(X), net(X))
    assert not backend.graphs


def test_hooks_and_methods(backend):
    net = Net().eval()
    compiled = argand.compile(net, backend=backend)
    calls = []
    handle = compiled.register_forward_hook(lambda module, args, out: calls.append(module))
    compiled(X)
    net(X)
    assert calls == [net, net]
    handle.remove()
    with torch.no_grad():
        compiled(X)
        assert torch.equal(compiled.twice(X), net.twice(X))
    assert len(calls) == 2 and len(backend.graphs) == 2


def test_in_place(backend):
    net = Net().eval()
    expected = net(X)
    assert argand.compile_in_place(net, backend=backend) is net
    assert torch.equal(net(X), expected) and torch.equal(net(X), expected)
    assert len(backend.graphs) == 1 and type(net) is Net
    assert list(net.state_dict()) == ["shift", "fc.weight", "fc.bias"]
    twin = pickle.loads(pickle.dumps(net))
    assert torch.equal(twin(X), expected) and len(backend.graphs) == 1


def test_gradients_reach_the_original(backend):
    net = Net().eval()
    argand.compile(net, backend=backend)(X).sum().backward()
    grad = net.fc.weight.grad.clone()
    net.zero_grad()
    net(X).sum().backward()
    assert torch.equal(grad, net.fc.weight.grad)


def test_torch_modules_and_scripted_modules(backend):
    linear = torch.nn.Linear(3, 3)
    assert torch.equal(argand.compile(linear, backend=backend)(X), linear(X))
    assert len(backend.graphs) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(linear)
    assert argand.compile(scripted) is scripted


def test_a_compiled_module_inside_another(backend):
    class Outer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = argand.compile(Net().eval(), backend=backend)

        def forward(self, x):
            return self.inner(x) + 1

    outer = Outer().eval()
    assert list(outer.state_dict())[0] == "inner.shift"
    expected = outer(X)
    assert len(backend.graphs) == 1
    assert torch.equal(argand.compile(outer, backend=backend)(X), expected)


# ---- under other tracers ----


def test_calls_traced_by_fx_and_jit_are_plain(backend):
    compiled = argand.compile(plain, backend=backend)
    compiled(X)

    class Holder(torch.nn.Module):
        def forward(self, x):
            return compiled(x)

    graph = torch.fx.symbolic_trace(Holder())
    assert "relu" in graph.code and torch.equal(graph(X), plain(X))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(lambda x: compiled(x), X)
    assert torch.equal(traced(X), plain(X))
    assert "argand" not in str(traced.graph) and "eval_with_key" not in str(traced.graph)


def test_calls_inside_torch_func_and_modes_are_plain(backend):
    from torch.utils._python_dispatch import TorchDispatchMode

    compiled = argand.compile(plain, backend=backend)
    assert torch.equal(torch.func.vmap(compiled)(X), plain(X))
    assert torch.equal(torch.func.grad(lambda x: compiled(x).sum())(X), 2.0 * (X > 0))
    seen = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, kinds, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Watch():
        compiled(X)
    assert seen == ["aten.relu.default", "aten.mul.Tensor"]
    assert not backend.graphs
    compiled(X)
    seen.clear()
    with Watch():
        compiled(X)
    assert len(seen) == 2 and len(backend.graphs) == 1


def test_default_device(backend):
    compiled = argand.compile(lambda x: x + torch.ones(3), backend=backend)
    with torch.device("cpu"):
        assert torch.equal(compiled(X), X + 1)
    assert len(backend.graphs) == 1


# ---- recompilation ----


def test_recompile_limit_warns_once_and_names_the_change(backend):
    def f(x, n):
        return x * n

    compiled = argand.compile(f, backend=backend, dynamic=False, options={"recompile_limit": 3})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in range(2, 9):
            assert torch.equal(compiled(X, n), X * n)
    assert len(backend.graphs) == 3
    (warning,) = caught
    text = str(warning.message)
    assert warning.category is argand.ArgandWarning
    assert (
        "`n` was 4, is 5" in text
        and "recompile_limit" in text
        and "hint: pass `n` as a tensor" in text
    )
    assert torch.equal(compiled(X, 3), X * 3)  # what is compiled stays in use
    assert len(backend.graphs) == 3


def test_recompile_limit_under_fullgraph(backend):
    def f(x, flag):
        return x + 1 if flag == "a" else x - 1

    compiled = argand.compile(f, backend=backend, fullgraph=True, options={"recompile_limit": 1})
    compiled(X, "a")
    with pytest.raises(argand.RecompileLimitExceeded, match="`flag` was 'a', is 'b'"):
        compiled(X, "b")


def test_reason_of_a_recompilation_is_told(backend):
    net = Net().eval()
    compiled = argand.compile(net, backend=backend)
    compiled(X)
    net.scale = 3.0
    with events.collect() as heard:
        compiled(X)
    (text,) = heard.texts("recompiles")
    assert "`self.scale` was 2.0, is 3.0 [" in text and "test_compile.py:" in text


def test_shapes_dtypes_and_grad_mode(backend):
    compiled = argand.compile(plain, backend=backend, dynamic=False)
    inputs = [X, X.double(), X[:1], X.t(), X.clone().requires_grad_()]
    for _ in range(2):
        for x in inputs:
            assert torch.equal(compiled(x), plain(x))
    assert len(backend.graphs) == 5
    with torch.no_grad():
        assert not compiled(inputs[-1]).requires_grad
    assert compiled(inputs[-1]).requires_grad


class Rich(Net):
    """A module that reads state of every kind."""

    factor = 3.0

    def __init__(self):
        super().__init__()
        self.table = {"a": [1.0, 2.0], "b": {"c": (3.0,)}}
        self.maybe = None
        self.layers = torch.nn.ModuleList([torch.nn.Linear(3, 3), torch.nn.ReLU()])
        self.order = {"one": 1.0, "two": 2.0}

    def forward(self, x):
        y = self.fc(x) * self.scale + self.shift
        for layer in self.layers:
            y = layer(y)
        for i, (name, value) in enumerate(self.order.items()):
            y = y + value * i + len(name)
        if self.maybe is not None:
            y = y * self.maybe
        if self.training:
            y = y + 1
        if hasattr(self, "extra"):
            y = y - 5
        return y * self.factor + self.table["a"][0] + self.table["b"]["c"][0] + OFFSET


OFFSET = 1.0


def swap_order(net):
    net.order = dict(reversed(net.order.items()))


def reorder_in_place(net):
    net.order["one"] = net.order.pop("one")


CHANGES = {
    "attribute": lambda net: setattr(net, "scale", 3.0),
    "type of an attribute": lambda net: setattr(net, "scale", 2),
    "attribute from None": lambda net: setattr(net, "maybe", 2.0),
    "attribute appears": lambda net: setattr(net, "extra", 1),
    "attribute over a class attribute": lambda net: setattr(net, "factor", 4.0),
    "training": lambda net: net.train(),
    "list in a dict": lambda net: net.table["a"].__setitem__(0, 7.0),
    "nested dict": lambda net: net.table["b"].update(c=(8.0,)),
    "dict replaced": lambda net: setattr(net, "table", {"a": [5.0], "b": {"c": (0.0,)}}),
    "order of a dict": swap_order,
    "order of a dict in place": reorder_in_place,
    "key added": lambda net: net.order.update(three=3.0),
    "layer appended": lambda net: net.layers.append(torch.nn.Tanh()),
    "layer replaced": lambda net: net.layers.__setitem__(1, torch.nn.Sigmoid()),
    "layer replaced by one of its kind": lambda net: setattr(net, "fc", torch.nn.Linear(3, 3)),
    "parameter replaced": lambda net: setattr(
        net.fc, "weight", torch.nn.Parameter(torch.ones(3, 3))
    ),
    "parameter removed": lambda net: setattr(net.fc, "bias", None),
    "parameter frozen": lambda net: net.fc.weight.requires_grad_(False),
    "data of a parameter": lambda net: setattr(net.fc.weight, "data", torch.ones(3, 3)),
    "values in place": lambda net: net.fc.weight.data.fill_(2.0),
    "buffer replaced": lambda net: setattr(net, "shift", torch.zeros(3)),
    "buffer of another shape": lambda net: setattr(net, "shift", torch.zeros(1)),
    "hook": lambda net: net.fc.register_forward_hook(lambda m, a, out: out * 2),
    "hook before": lambda net: net.layers[0].register_forward_pre_hook(lambda m, a: (a[0] * 2,)),
    "forward on an instance": lambda net: setattr(net.fc, "forward", lambda x: x),
    "class of a child": lambda net: setattr(net.layers[1], "__class__", torch.nn.Identity),
}


@pytest.mark.parametrize("name", CHANGES)
def test_after_a_change_the_next_call_is_right(name, backend):
    net = Rich().eval()
    compiled = argand.compile(net, backend=backend)
    for _ in range(3):
        assert torch.equal(compiled(X), net(X))
    CHANGES[name](net)
    for _ in range(2):
        result, expected = compiled(X), net(X)
        assert torch.equal(result, expected) and result.dtype == expected.dtype
        assert result.requires_grad == expected.requires_grad


@pytest.mark.parametrize(
    ("place", "name", "value"), [("module", "OFFSET", 9.0), ("class", "factor", 9.0)]
)
def test_after_a_change_of_a_global_or_a_class(place, name, value, backend, monkeypatch):
    net = Rich().eval()
    compiled = argand.compile(net, backend=backend)
    assert torch.equal(compiled(X), net(X)) and torch.equal(compiled(X), net(X))
    monkeypatch.setattr(sys.modules[__name__] if place == "module" else Rich, name, value)
    assert torch.equal(compiled(X), net(X))


def test_reset(backend):
    compiled = argand.compile(plain, backend=backend)
    compiled(X)
    argand.reset()
    compiled(X)
    compiled(X)
    assert len(backend.graphs) == 2


# ---- stances ----


def test_force_eager(backend):
    compiled = argand.compile(plain, backend=backend)
    with argand.set_stance("force_eager"):
        assert torch.equal(compiled(X), plain(X))
        assert not backend.graphs
    compiled(X)
    assert len(backend.graphs) == 1


def test_eager_on_recompile(backend):
    compiled = argand.compile(plain, backend=backend, dynamic=False)
    with argand.set_stance("eager_on_recompile"):
        compiled(X)
        assert torch.equal(compiled(X[:1]), plain(X[:1]))
        assert len(backend.graphs) == 1
    compiled(X[:1])
    assert len(backend.graphs) == 2


def test_fail_on_recompile(backend):
    compiled = argand.compile(plain, backend=backend, dynamic=False)
    compiled(X)
    with argand.set_stance("fail_on_recompile"):
        compiled(X)
        with pytest.raises(argand.RecompileLimitExceeded, match=r"`x.shape\[0\]` was 2, is 1"):
            compiled(X[:1])


def test_eager_then_compile(backend):
    compiled = argand.compile(plain, backend=backend)
    with argand.set_stance("eager_then_compile"):
        assert torch.equal(compiled(X), plain(X)) and not backend.graphs
        assert torch.equal(compiled(X), plain(X)) and len(backend.graphs) == 1


def test_stance_as_function_and_decorator(backend):
    compiled = argand.compile(plain, backend=backend)

    @argand.set_stance("force_eager")
    def run():
        return compiled(X)

    run()
    assert not backend.graphs
    argand.set_stance("force_eager")
    compiled(X)
    argand.set_stance("default")
    assert not backend.graphs
    compiled(X)
    assert len(backend.graphs) == 1
    with pytest.raises(argand.UserError, match="force_eager"):
        argand.set_stance("force_eagr")


# ---- threads ----


def test_threads_compile_and_call_the_same_and_different_functions(backend):
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # threads meet where they rarely do
    shared = argand.compile(plain, backend=backend)
    errors, barrier = [], threading.Barrier(4)

    def work(i):
        def own(x):
            return torch.sin(x) + i

        mine = argand.compile(own, backend=Counting())
        barrier.wait()
        try:
            for _ in range(30):
                assert torch.equal(shared(X), plain(X))
                assert torch.equal(mine(X), own(X))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(interval)
    assert not errors
    assert len(backend.graphs) == 1


# ---- lifetime ----


def test_a_dropped_model_is_collected(backend):
    net = Net().eval()
    compiled = argand.compile(net, backend="eager")
    compiled(X)
    refs = [weakref.ref(net), weakref.ref(net.fc.weight), weakref.ref(compiled)]
    del net, compiled
    gc.collect()
    assert [ref() for ref in refs] == [None, None, None]


def test_a_function_called_with_many_models_keeps_none(backend):
    def run(net, x):
        return net(x) + 1

    compiled = argand.compile(run, backend=backend)
    refs = []
    for _ in range(3):
        net = Net().eval()
        assert torch.equal(compiled(net, X), run(net, X))
        refs.append(weakref.ref(net))
    del net
    gc.collect()
    assert [ref() for ref in refs] == [None] * 3


def test_compile_and_drop_leaves_nothing():
    def cycle():
        def f(x):
            return torch.relu(x) * 2

        compiled = argand.compile(f, backend="eager")
        compiled(X)
        compiled(X)

    def level(rounds):
        for _ in range(rounds):
            cycle()
        gc.collect()
        return len(gc.get_objects())

    before = level(200)  # the first ones fill caches of torch and of Python
    assert level(100) - before < 20


def test_import_is_light():
    program = (
        "import sys, argand; assert 'torch' not in sys.modules;"
        "assert set(argand.__all__) <= set(dir(argand));"
        "[getattr(argand, name) for name in argand.__all__]"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_nothing_forbidden_is_imported():
    program = (
        "import sys, torch\n"
        "before = set(sys.modules)\n"
        "import argand\n"
        "f = argand.compile(lambda x: torch.relu(x) + 1, backend='eager')\n"
        "f(torch.ones(3)); f(torch.ones(3))\n"
        "bad = [m for m in set(sys.modules) - before if m.startswith(('torch._dynamo', 'torch._inductor',"
        " 'torch.export', 'torch.fx.experimental', 'sympy'))]\n"
        "assert not bad, bad\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_what_a_module_does_when_it_is_imported_is_not_compiled(tmp_path, monkeypatch):
    (tmp_path / "argand_imported.py").write_text(
        "import torch\n\ndef make():\n    return torch.ones(2) * 3\n\nvalue = make()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    watched = argand.ExplainWithBackend("eager")

    def f(x):
        argand.graph_break()
        import argand_imported

        return x + argand_imported.value

    assert torch.equal(argand.compile(f, backend=watched)(torch.ones(2)), torch.full((2,), 4.0))
    assert not any("argand_imported" in str(frame.where) for frame in watched.frames)


def test_hooks_of_saved_tensors_see_no_fakes():
    """torch.utils.checkpoint is made of them: it counts, and hooks may copy to disk."""
    packed = []

    def pack(tensor):
        packed.append(tensor.detach().clone())
        return tensor

    def f(x):
        return (x.sin() * x).exp()

    x = torch.randn(5, requires_grad=True)
    run = argand.compile(f, options={"strict": True, "cache": False})
    counts = []
    for _ in range(2):  # compiled, and again
        packed.clear()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            (gradient,) = torch.autograd.grad(run(x).sum(), x)
        counts.append(len(packed))
        torch.testing.assert_close(gradient, torch.autograd.grad(f(x).sum(), x)[0])
        assert all(
            type(tensor) is torch.Tensor and tensor.device.type == "cpu" for tensor in packed
        )
    assert counts[0] == counts[1] > 0


def test_detection_of_anomalies_does_not_tell_of_our_traces():
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU(), torch.nn.LayerNorm(16))
    run = argand.compile(model, options={"strict": True, "cache": False})
    with warnings.catch_warnings(), torch.autograd.set_detect_anomaly(True):
        warnings.simplefilter("error")
        run(torch.randn(4, 16)).sum().backward()
        assert torch.is_anomaly_enabled() and torch.is_anomaly_check_nan_enabled()


@pytest.mark.parametrize("compiled_before", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_forward_mode_derivatives_are_eagers(grad, compiled_before):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU())
    run = argand.compile(model, options={"strict": True, "cache": False})
    x = torch.randn(3, 4)
    with torch.set_grad_enabled(grad):
        for _ in range(2 if compiled_before else 0):
            run(x)
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
            ours, eagers = (
                torch.autograd.forward_ad.unpack_dual(f(dual)).tangent for f in (run, model)
            )
        torch.testing.assert_close(ours, eagers)
        with events.collect() as seen:
            torch.testing.assert_close(run(x), model(x))
        assert seen.total("compiles") == (0 if compiled_before else 1)  # outside, all is as before
