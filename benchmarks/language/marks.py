"""benchmarks.language.marks: torch.compiler.* and torch._dynamo.* marks in people's code, read by both compilers."""

from __future__ import annotations

import zlib
from typing import Any

import torch
import torch._dynamo
from torch import Tensor, nn

from benchmarks.language.program import Compile, program, scenario


@torch.compiler.disable
def left_alone(x: Tensor) -> Tensor:
    """A function that is not captured."""
    return x * 2


@torch.compiler.disable(recursive=False)
def left_alone_itself(x: Tensor) -> Tensor:
    """A function that is not captured, though what it calls may be."""
    return x.sin()


@torch.compiler.allow_in_graph
def opaque(x: Tensor) -> Tensor:
    """One node of the graph."""
    return x * 3 if x.numel() > 2 else x


@torch.compiler.assume_constant_result
def constant() -> int:
    """A number for good."""
    return 5


@torch._dynamo.nonstrict_trace
def nonstrict(x: Tensor) -> Tensor:
    """Traced below the graph."""
    return x.sin() * 2


def original(a: int, b: int) -> int:
    """Something that has a substitute."""
    return a * b


@torch.compiler.nested_compile_region
def region(x: Tensor) -> Tensor:
    """A region that is compiled once."""
    return x.sin() + 1


@torch.compiler.substitute_in_graph(zlib.adler32, skip_signature_check=True)
def checksum(data: bytes, value: int = 1, /) -> int:
    """What torch.compile traces in place of a C function."""
    return 150 + len(data)


DISABLED = torch._dynamo.disable(lambda x: x * 5)
PATCHED = torch._dynamo.config.patch(capture_scalar_outputs=True)(lambda x: x.sin())


@program()
def disabled(x: Tensor) -> Tensor:
    """torch.compiler.disable: a break."""
    return left_alone(x.sin()).cos()


@program()
def disabled_not_recursive(x: Tensor) -> Tensor:
    """disable(recursive=False)."""
    return left_alone_itself(x + 1) * 2


@program()
def dynamo_disabled(x: Tensor) -> Tensor:
    """torch._dynamo.disable over a lambda."""
    return DISABLED(x.sin()).cos()


@program(train=True)
def allowed_in_graph(x: Tensor) -> Tensor:
    """torch.compiler.allow_in_graph."""
    return opaque(x.sin()) + 1


@program()
def constant_result(x: Tensor) -> Tensor:
    """torch.compiler.assume_constant_result."""
    return x * constant()


@program(train=True)
def nonstrict_trace(x: Tensor) -> Tensor:
    """torch._dynamo.nonstrict_trace."""
    return nonstrict(x.cos()) + 1


@program(train=True)
def nested_region(x: Tensor) -> Tensor:
    """torch.compiler.nested_compile_region."""
    return region(x) + region(x * 2)


@program()
def graph_break_call(x: Tensor) -> Tensor:
    """torch._dynamo.graph_break()."""
    y = x.sin()
    torch._dynamo.graph_break()
    return y.cos()


@scenario
def is_compiling(compile_: Compile) -> Any:
    """torch.compiler.is_compiling() is true inside of both."""
    seen = []

    def run(x: Tensor) -> Tensor:
        return x * (2 if torch.compiler.is_compiling() else 3)

    result = compile_(run)(torch.ones(2))
    seen.append(bool((result == 2).all()) or compile_ is None)
    return seen[:0]


@program()
def is_exporting(x: Tensor) -> Tensor:
    """torch.compiler.is_exporting() is false."""
    return x * (2 if torch.compiler.is_exporting() else 3)


@program()
def is_scripting(x: Tensor) -> Tensor:
    """The questions of TorchScript."""
    return x * 2 if torch.jit.is_scripting() or torch.jit.is_tracing() else x * 3


def _marked(n: int) -> tuple[Tensor]:
    x = torch.ones(n, 3)
    torch._dynamo.mark_dynamic(x, 0)
    return (x,)


def _maybe_marked(n: int) -> tuple[Tensor]:
    x = torch.ones(n, 3)
    torch._dynamo.maybe_mark_dynamic(x, 0)
    return (x,)


def _marked_static(n: int) -> tuple[Tensor]:
    x = torch.ones(n, 3)
    torch._dynamo.mark_static(x, 0)
    return (x,)


@program(lambda: _marked(4), lambda: _marked(5), lambda: _marked(6))
def mark_dynamic(x: Tensor) -> Tensor:
    """torch._dynamo.mark_dynamic: one graph for all sizes."""
    return x.sum(0) * x.shape[0]


@program(lambda: _maybe_marked(4), lambda: _maybe_marked(5), lambda: _maybe_marked(6))
def maybe_mark_dynamic(x: Tensor) -> Tensor:
    """torch._dynamo.maybe_mark_dynamic."""
    return x.sum(0) * x.shape[0]


@program(lambda: _marked_static(4), lambda: _marked_static(5), lambda: _marked_static(6))
def mark_static(x: Tensor) -> Tensor:
    """torch._dynamo.mark_static: a graph for each size."""
    return x.sum(0) * x.shape[0]


@scenario
def mark_static_address(compile_: Compile) -> Any:
    """torch._dynamo.mark_static_address."""
    weight = torch.ones(3)
    torch._dynamo.mark_static_address(weight)
    run = compile_(lambda x: x * weight)
    return [run(torch.ones(3)) for _ in range(2)]


@scenario
def substitute_in_graph(compile_: Compile) -> Any:
    """torch.compiler.substitute_in_graph over a C function."""
    run = compile_(lambda x: x * (zlib.adler32(b"abc") > 5))
    return [run(torch.ones(3)) for _ in range(2)]


@scenario
def stance_eager(compile_: Compile) -> Any:
    """torch.compiler.set_stance("force_eager") is heard by both."""
    run = compile_(lambda x: x * 2)
    first = run(torch.ones(3))
    with torch.compiler.set_stance("force_eager"):
        second = run(torch.ones(4))
    return first, second, run(torch.ones(3))


@scenario
def stance_fail(compile_: Compile) -> Any:
    """set_stance("fail_on_recompile"): what is compiled runs."""
    run = compile_(lambda x: x * 2)
    first = run(torch.ones(3))
    with torch.compiler.set_stance("fail_on_recompile"):
        return first, run(torch.ones(3))


@scenario
def compiled_by_torch_inside(compile_: Compile) -> Any:
    """A function of torch.compile inside."""
    inner = torch.compile(lambda x: x.sin() * 2, backend="eager")
    run = compile_(lambda x: inner(x + 1).cos())
    return [run(torch.ones(3)) for _ in range(2)]


@scenario
def compiled_module_of_torch_inside(compile_: Compile) -> Any:
    """A module of torch.compile inside of one."""
    torch.manual_seed(0)
    model = nn.Sequential(torch.compile(nn.Linear(3, 3), backend="eager"), nn.ReLU())
    return [compile_(model)(torch.ones(2, 3)).detach() for _ in range(2)]


@scenario
def compiled_inside_of_torch(compile_: Compile) -> Any:
    """Ours inside of a function of torch.compile."""
    inner = compile_(lambda x: x.sin() * 2)
    outer = torch.compile(lambda x: inner(x + 1).cos(), backend="eager")
    return [outer(torch.ones(3)) for _ in range(2)]


@scenario
def compiled_twice(compile_: Compile) -> Any:
    """A compiled function, compiled again."""
    run = compile_(compile_(lambda x: x.sin() * 2))
    return [run(torch.ones(3)) for _ in range(2)]


@scenario
def module_compile_in_place(compile_: Compile) -> Any:
    """module.compile() of a part of a compiled model."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    model[0].compile(backend="eager")
    return [compile_(model)(torch.ones(2, 3)).detach() for _ in range(2)]


@scenario
def disabled_module(compile_: Compile) -> Any:
    """A layer whose forward is disabled."""

    class Layer(nn.Module):
        @torch.compiler.disable
        def forward(self, x: Tensor) -> Tensor:
            return x * 2

    model = nn.Sequential(nn.Tanh(), Layer(), nn.Tanh())
    return [compile_(model)(torch.ones(2, 3)) for _ in range(2)]


@program()
def config_patch_decorated(x: Tensor) -> Tensor:
    """A decorator that patches dynamo's settings."""
    return PATCHED(x) + 1


@program()
def checks_of_values(x: Tensor) -> Tensor:
    """torch._check of what is known."""
    torch._check(x.shape[0] == 4)
    torch._check(x.dim() == 2, lambda: "two dimensions")
    return x * 2


@program()
def error_on_graph_break(x: Tensor) -> Tensor:
    """torch._dynamo.error_on_graph_break as a context."""
    with torch._dynamo.error_on_graph_break(False):
        y = x.sin()
    return y + 1


@program()
def dynamo_questions(x: Tensor) -> Tensor:
    """The older names of is_compiling."""
    return x * 2 if torch._dynamo.is_compiling() == torch.compiler.is_dynamo_compiling() else x
