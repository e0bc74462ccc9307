"""Every row of features.md section 2 that other files here do not walk, in its order."""

import ctypes
import importlib.util
import textwrap
import warnings
from typing import List

import pytest
import torch
from torch import Tensor

import argand
from argand.customops import registry
from argand.customops.definition import CustomOp, custom_op, get_op, pointwise
from argand.customops.errors import GradientError, NoImplementation, RegistrationError, SchemaError
from argand.customops.schema import infer_schema
from argand.ops.layout import DataDependent

_library = torch.library.Library("argand_rows_theirs", "DEF")
_library.define("plain(Tensor x) -> Tensor")
_library.define("with_cpu(Tensor x) -> Tensor")
_library.impl("with_cpu", lambda x: x * 2, "CPU")
_library.define("composite(Tensor x) -> Tensor")
_library.impl("composite", lambda x: x * 2, "CompositeImplicitAutograd")
_library.define("with_autograd(Tensor x) -> Tensor")
_library.impl("with_autograd", lambda x: x * 2, "Autograd")
_library.define("with_meta(Tensor x) -> Tensor")
_library.impl("with_meta", lambda x: torch.empty_like(x), "Meta")
_library.define("made(int n) -> Tensor")


@pytest.fixture
def name(request):
    yield f"argand_rows::{request.node.originalname}"
    op = registry.find(f"argand_rows::{request.node.originalname}")
    if op is not None:
        op.destroy()


# --- 2a ----------------------------------------------------------------------------------------------


def test_public_names():
    assert (
        argand.custom_op is custom_op and callable(argand.get_ctx) and argand.CustomOp is CustomOp
    )


def test_definition_keeps_the_names_and_warns_of_nothing(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        @custom_op(name)
        def double(x: Tensor) -> Tensor:
            """Twice."""
            return x * 2

    assert (double.__name__, double.__module__, double.__doc__) == ("double", __name__, "Twice.")
    assert torch.equal(double(torch.ones(2)), torch.full((2,), 2.0))


@pytest.mark.parametrize("namespace", sorted(registry.RESERVED_NAMESPACES))
def test_reserved_namespaces(namespace):
    with pytest.raises(SchemaError, match="reserved namespace"):
        custom_op(f"{namespace}::f", lambda x: x)


def unannotated(x, n=2):
    return x * n


@pytest.mark.parametrize(
    ("schema", "mutates", "words"),
    [
        ("(Tensor(a!) x, int n=2) -> ()", (), r"mutates \['x'\], mutates_args names \[\]"),
        ("(Tensor x, int n=2) -> Tensor", ("x",), r"mutates \[\], mutates_args names \['x'\]"),
        ("(Tensor(a!) x, int n=2) -> Tensor(a!)", ("x",), "view of an argument"),
        ("(Tensor n, int x=2) -> Tensor", (), r"takes \(x, n\), the schema \(n, x\)"),
        ("(Tensor x, int n) -> Tensor", (), "default for 'n'"),
    ],
)
def test_schema_and_function_disagree(name, schema, mutates, words):
    with pytest.raises(SchemaError, match=words):
        custom_op(name, unannotated, schema=schema, mutates_args=mutates)
    with pytest.raises(SchemaError, match="the function takes"):
        custom_op(name, lambda *x: x, schema="(Tensor x) -> Tensor")
    assert registry.find(name) is None


def test_schema_by_hand(name):
    op = custom_op(name, unannotated, schema="(Tensor x, int n=2) -> Tensor")
    assert torch.equal(op(torch.ones(2)), torch.full((2,), 2.0))


def test_an_argument_may_be_called_self(name):
    op = custom_op(name, lambda self: self * 3, schema="(Tensor self) -> Tensor")
    assert op(self=torch.ones(1)).item() == 3 and op(torch.ones(1)).item() == 3


def test_op_name_in_the_schema():
    def f(x: Tensor) -> Tensor: ...

    assert infer_schema(f, op_name="f") == torch.library.infer_schema(
        f, mutates_args=(), op_name="f"
    )


# --- 2c ----------------------------------------------------------------------------------------------


def test_kernels_of_torch_library_are_not_replaced():
    for there in ("with_cpu", "composite"):
        with pytest.raises(
            RegistrationError, match="already has an implementation for cpu, not made here"
        ):
            argand.impl(f"argand_rows_theirs::{there}", "cpu", lambda x: x)
    for there in ("with_meta", "composite"):
        with pytest.raises(RegistrationError, match="already has a Meta implementation"):
            argand.impl_fake(f"argand_rows_theirs::{there}", lambda x: x)


def test_the_family_by_name(name):
    qualname = "argand_rows_theirs::plain"
    argand.impl(qualname, "cpu", lambda x: x.detach() * 2)
    argand.impl_fake(qualname, lambda x: torch.empty_like(x))
    argand.impl_save_for_backward(qualname, lambda inputs, output: None)
    argand.impl_backward(qualname, lambda ctx, saved, grad: {"x": grad * 2})
    argand.impl_vmap(qualname, lambda info, dims, x: (get_op(qualname)(x), dims[0]))
    argand.impl_autocast(qualname, "cpu", torch.bfloat16)
    plain = torch.ops.argand_rows_theirs.plain
    x = torch.ones(2, 3, requires_grad=True)
    plain(x).sum().backward()
    assert torch.equal(x.grad, torch.full((2, 3), 2.0))
    assert torch.equal(torch.vmap(plain)(x), x * 2)
    assert plain(torch.empty(2, device="meta")).shape == (2,)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert plain(x).dtype is torch.bfloat16
    compiled = argand.compile(lambda t: plain(t) + 1, fullgraph=True)
    assert torch.allclose(compiled(x), x * 2 + 1)
    assert argand.get_op(qualname).fake is not None
    argand.impl_factory("argand_rows_theirs::made", lambda n: torch.arange(n))
    assert torch.equal(torch.ops.argand_rows_theirs.made(3), torch.arange(3))
    with pytest.raises(RegistrationError, match="implementation for factory"):
        argand.impl_factory("argand_rows_theirs::made", lambda n: torch.arange(n))


def test_context_for_sizes_that_depend_on_data(name):
    @custom_op(name)
    def nonzero(x: Tensor) -> Tensor:
        return x.nonzero()

    @nonzero.impl_abstract
    def _(x):
        return x.new_empty(argand.get_ctx().new_dynamic_size(min=0), x.ndim, dtype=torch.int64)

    with pytest.raises(argand.UserError, match="outside of a fake"):
        argand.get_ctx()
    with pytest.raises(DataDependent):
        nonzero(torch.empty(3, device="meta"))
    x = torch.tensor([0.0, 1.0, 2.0])
    explained = argand.ExplainWithBackend("eager")
    compiled = argand.compile(lambda t: nonzero(t * 2) + 1, backend=explained)
    assert torch.equal(compiled(x), x.nonzero() + 1)
    assert [reason.row.name for reason in explained.output().breaks] == ["B008"]
    with pytest.raises(argand.CaptureError, match="size that depends on data: argand_rows::"):
        argand.compile(lambda t: nonzero(t), fullgraph=True)(x)


def test_context_of_torch_library_is_understood():
    @torch.library.custom_op("argand_rows_torch::nonzero", mutates_args=())
    def nonzero(x: Tensor) -> Tensor:
        return x.nonzero()

    nonzero.register_fake(
        lambda x: x.new_empty(torch.library.get_ctx().new_dynamic_size(), x.ndim, dtype=torch.int64)
    )
    x = torch.tensor([0.0, 1.0, 2.0])
    assert torch.equal(argand.compile(lambda t: nonzero(t * 2) + 1)(x), x.nonzero() + 1)
    with pytest.raises(argand.CaptureError, match="B008"):
        argand.compile(lambda t: nonzero(t * 2) + 1, fullgraph=True)(x)


def test_a_missing_fake_is_found_out(name):
    @custom_op(name)
    def halves(x: Tensor, n: int = 2) -> List[Tensor]:
        return [
            x[: len(x) // n].clone(),
            torch.from_numpy(x.numpy()[len(x) // n :].astype("float64")),
        ]

    def f(t):
        first, second = halves(t * 2)
        return first.sum() + second

    x = torch.randn(7)
    for backend in ("eager", "aot_eager", "argand"):
        assert torch.allclose(argand.compile(f, backend=backend, fullgraph=True)(x), f(x))
    big = argand.compile(f, dynamic=True, fullgraph=True)
    for size in (5, 8, 12):
        assert torch.allclose(big(torch.ones(size)), f(torch.ones(size)))


def test_what_was_found_out_is_checked_at_every_call(name):
    @custom_op(name)
    def above(x: Tensor) -> Tensor:  # zeros, ones and small integers never reach 2 ** 30
        return x[x < 2**30].clone()

    compiled = argand.compile(lambda t: above(t).sum(), backend="eager", fullgraph=True)
    assert compiled(torch.ones(3)).item() == 3
    with pytest.raises(
        argand.UserError, match=r"other data of the same shapes(.|\n)*register a fake"
    ):
        compiled(torch.tensor([1.0, 2.0, 2.0**31]))


LOG = []


def divmod(x):  # a builtin's name for a function that is seen
    LOG.append(x)


@pytest.mark.parametrize(
    "kind", ["print", "global", "closure", "attribute", "file", "ctypes", "mutates", "shadow"]
)
def test_kernels_that_can_be_seen_are_not_run_to_find_out(name, kind):
    here = []
    library = ctypes.CDLL(None)

    def printing(x):
        print(x)
        return x + 1

    def with_global(x):
        LOG.append(x)
        return x + 1

    def closure(x):
        here.append(x)
        return x + 1

    def attribute(x):
        torch.told = x
        return x + 1

    def file(x):
        torch.save(x, "somewhere")
        return x + 1

    def in_c(x):
        library.abs(3)
        return x + 1

    def shadow(x):
        divmod(x)
        return x + 1

    def mutates(x):
        return x.add_(1).clone()

    function = {"print": printing, "global": with_global, "file": file, "ctypes": in_c}.get(
        kind
    ) or locals()[kind]
    text, written = (
        ("(Tensor(a!) x) -> Tensor", ("x",)) if kind == "mutates" else ("(Tensor x) -> Tensor", ())
    )
    op = custom_op(name, function, schema=text, mutates_args=written)
    with pytest.raises(NoImplementation, match="no fake implementation.*not run to find out"):
        argand.compile(lambda t: op(t), fullgraph=True)(torch.ones(2))
    assert not LOG and not here


# --- 2d ----------------------------------------------------------------------------------------------


def test_only_the_second_half_of_the_pair(name):
    op = custom_op(name, lambda x: x * 2, schema="(Tensor x) -> Tensor")
    op.impl_backward(lambda ctx, saved, grad: {"x": grad})
    with pytest.raises(
        RegistrationError, match=r"impl_backward \(at .*test_rows.*no impl_save_for_backward"
    ):
        op(torch.ones(1, requires_grad=True))


def test_gradient_for_a_number(name):
    op = custom_op(name, lambda x, n: x * n, schema="(Tensor x, int n) -> Tensor")
    op.register_autograd(lambda ctx, grad: (grad, grad))
    with pytest.raises(GradientError, match="gave 'n', no tensor, a gradient"):
        op(torch.ones(2, requires_grad=True), 3).sum().backward()


def test_gradient_by_name_for_a_number(name):
    op = custom_op(name, lambda x, n: x * n, schema="(Tensor x, int n) -> Tensor")
    op.impl_save_for_backward(lambda inputs, output: None)
    op.impl_backward(lambda ctx, saved, grad: {"x": grad, "n": grad})
    with pytest.raises(GradientError, match="returned gradients for n, x, expected x"):
        op(torch.ones(2, requires_grad=True), 3).sum().backward()


def test_numbers_are_not_differentiable_outputs(name):
    op = custom_op(name, lambda x: (x * 2, 3), schema="(Tensor x) -> (Tensor, int)")
    with pytest.raises(RegistrationError, match="True for tensors only"):
        op.impl_backward(output_differentiability=[True, True])


def test_operators_that_are_differentiated_already(name):
    formula = pointwise(name, lambda x: x * 2, schema="(Tensor x) -> Tensor")
    for op in (
        formula,
        get_op("argand_rows_theirs::composite"),
        get_op("argand_rows_theirs::with_autograd"),
    ):
        with pytest.raises(RegistrationError, match="differentiated already"):
            op.register_autograd(lambda ctx, grad: grad)


# --- 2e and the two defects of section 7 -----------------------------------------------------------------


def test_a_module_defines_everything_at_its_top_level(tmp_path):
    """The peer's impl_abstract fails as a decorator at top level, and its class API takes no backward."""
    path = tmp_path / "argand_rows_module.py"
    path.write_text(
        textwrap.dedent(
            """
            import torch
            from torch import Tensor
            import argand

            @argand.custom_op("argand_rows_module::twice")
            def twice(x: Tensor) -> Tensor:
                return x.detach() * 2

            @argand.impl_abstract("argand_rows_module::twice")
            def _(x):
                return torch.empty_like(x)

            @twice.impl_save_for_backward()
            def _(inputs, output):
                return inputs.x

            @twice.impl_backward()
            def _(ctx, saved, grad):
                return {"x": grad * 2}
            """
        )
    )
    spec = importlib.util.spec_from_file_location("argand_rows_module", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    x = torch.ones(2, requires_grad=True)
    argand.compile(lambda t: module.twice(t), fullgraph=True)(x).sum().backward()
    assert torch.equal(x.grad, torch.full((2,), 2.0))
    module.twice.destroy()


def test_tags_reach_torch(name):
    op = custom_op(
        name,
        lambda x: x * 2,
        schema="(Tensor x) -> Tensor",
        tags=(torch.Tag.needs_fixed_stride_order,),
    )
    assert torch.Tag.needs_fixed_stride_order in op.overload.tags


def test_version_for_caches(name):
    op = custom_op(name, lambda x: x * 2, schema="(Tensor x) -> Tensor", version="1")
    first = registry.version_of(name)
    op.version = "2"
    assert first is not None and registry.version_of(name) != first
    assert registry.version_of("argand_rows_theirs::plain") is None
