"""Faults to put into the compiler, each with a program that meets it. Nothing in ``src`` knows of them.

``plant(name)`` patches this process; `tests/faults/planted/sitecustomize.py` does so in fresh interpreters, told by the
environment. A fault is wrong where real ones were: in one rule, one lowering, one write, one guard.
"""

import contextlib
import dataclasses
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

VARIABLE = "ARGAND_TESTS_FAULT"


class Fault(NamedTuple):
    """One fault, a program that meets it, and where it should be found."""

    plant: Callable[[], None]
    program: str
    stage: str
    part: str  # a word of what is named as guilty
    slow: bool = False


FAULTS: dict[str, Fault] = {}
HEAD = "import torch\nimport argand\n\ntorch.manual_seed(0)\n"
LAYERS = f"""{HEAD}
model = torch.nn.Sequential(
    torch.nn.Linear(48, 96), torch.nn.GELU(), torch.nn.LayerNorm(96), torch.nn.Linear(96, 48), torch.nn.Tanh(), torch.nn.Softmax(-1)
)
model(torch.randn(24, 48))
compiled = argand.compile(model)
compiled(torch.randn(24, 48)).sum().backward()
"""


def fault(
    stage: str, part: str, program: str, *, slow: bool = False
) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """A row of the table."""

    def add(plant: Callable[[], None]) -> Callable[[], None]:
        FAULTS[plant.__name__] = Fault(plant, program, stage, part, slow)
        return plant

    return add


def plant(name: str) -> None:
    """Put a fault into this process."""
    FAULTS[name].plant()


def _function(body: str, call: str) -> str:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return f"{HEAD}\n\n@argand.compile\ndef program({call.partition('|')[0]}):\n{lines}\n\n\n{call.partition('|')[2]}\n"


# -- capture ------------------------------------------------------------------------------------------------------


@fault(
    "capture",
    "side effects",
    _function(
        "y = x.sin() * 2\nfor k in range(3):\n    y = y + k\n    log.append(k)\nseen['last'] = y.shape[0]\nreturn y.cos()",
        "x, log, seen|program(torch.randn(8), [], {})",
    ),
)
def dropped_append() -> None:
    from argand.capture.write import effects  # noqa: PLC0415

    effects._write_shadow = lambda rebuilder, shadow: None


@fault(
    "capture",
    "guards",
    _function(
        "y = x.sin()\nif scale > 2:\n    y = y * scale\nreturn y + scale",
        "x, scale|for scale in (1, 1, 3):\n    program(torch.randn(8), scale)",
    ),
)
def bad_guard() -> None:
    from argand.runtime import cache, guard_programs  # noqa: PLC0415
    from argand.runtime.guards import GuardKind  # noqa: PLC0415

    make = guard_programs.compile_guards
    cache.compile_guards = lambda rows, *rest: make(
        [r for r in rows if r.kind is not GuardKind.EQUALS], *rest
    )
    from argand.support.options import Options  # noqa: PLC0415

    # else the number is open at its second value
    Options.__init__.__kwdefaults__["dynamic"] = False


@fault(
    "capture",
    "graph",
    _function(
        "a = x.exp() + 1\nb = torch.atan2(a, x)\nreturn b.sum(-1), a",
        "x|program(torch.randn(4, 8))",
    ),
)
def swapped_arguments() -> None:
    from argand.capture.record.recorder import Recorder  # noqa: PLC0415

    call = Recorder.call_function

    def swapped(self: Any, function: Any, args: Any, kwargs: Any) -> Any:
        return call(self, function, args[::-1] if function is torch.atan2 else args, kwargs)

    Recorder.call_function = swapped


# -- autograd -----------------------------------------------------------------------------------------------------


@fault(
    "autograd",
    "glue",
    f"""{HEAD}
model = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
compiled = argand.compile(model)
compiled(torch.randn(32, 16)).sum().backward()
""",
)
def dropped_write() -> None:
    from argand.autograd import runtime  # noqa: PLC0415

    runtime._write_back = lambda *_: None


@fault("autograd", "aten.mish.default", LAYERS.replace("GELU", "Mish"))
def wrong_decomposition() -> None:
    from argand.ops.decompositions import decompositions  # noqa: PLC0415

    decompositions()[torch.ops.aten.mish.default] = lambda x: (
        x * torch.tanh(torch.nn.functional.relu(x))
    )


@fault(
    "autograd",
    "kept",
    _function(
        "a = torch.sigmoid(x @ w)\nb = torch.tanh(x @ v)\nreturn (a * b).sum(), a.mean()",
        "x, w, v|x, w, v = (torch.randn(16, 16, requires_grad=True) for _ in range(3))\nsum(program(x, w, v)).backward()",
    ),
)
def swapped_saved() -> None:
    from argand.autograd import partition  # noqa: PLC0415

    cut = partition.min_cut_partition

    def swapped(*args: Any, **kwargs: Any) -> Any:
        forward, backward = cut(*args, **kwargs)
        given = [
            n for n in backward.graph.nodes if n.op == "placeholder" and "tangent" not in n.name
        ]
        kinds = [tuple(getattr(n.meta["val"], "shape", ())) for n in given]
        pair = next(
            (
                (a, b)
                for j, b in enumerate(given)
                for i, a in enumerate(given[:j])
                if kinds[i] == kinds[j] != ()
            ),
            None,
        )
        if pair is not None:
            _swap(*pair)
        return forward, backward

    partition.min_cut_partition = swapped


def _swap(one: Any, other: Any) -> None:
    users = list(one.users), list(other.users)
    for user in dict.fromkeys((*users[0], *users[1])):
        table = {one: other, other: one}
        user.args = torch.fx.node.map_arg(user.args, lambda n, t=table: t.get(n, n))
        user.kwargs = torch.fx.node.map_arg(user.kwargs, lambda n, t=table: t.get(n, n))


# -- passes -------------------------------------------------------------------------------------------------------


@fault(
    "pass",
    "twice",
    _function("y = -(-(x.sin()))\nreturn (y * 3).softmax(-1)", "x|program(torch.randn(8, 32))"),
)
def wrong_rule() -> None:
    from argand.native.passes import simplify  # noqa: PLC0415

    for op, rows in simplify._BY_OP.items():
        simplify._BY_OP[op] = tuple(
            r._replace(
                apply=lambda build, node: node.inputs[0] if node.inputs[0].op == "neg" else None
            )
            if r.name == "twice"
            else r
            for r in rows
        )


@fault(
    "pass",
    "fold_constants",
    _function(
        "scale = torch.full((), 3.0) * torch.full((), 4.0)\nreturn (x.cos() * scale).relu()",
        "x|program(torch.randn(8, 8))",
    ),
)
def wrong_fold() -> None:
    from argand.native.passes import fold  # noqa: PLC0415

    fold._OPS["mul"] = lambda a, b: a + b


@fault(
    "pass",
    "split_reductions",
    _function("y = x.exp()\nreturn y.sum(), y.mean()", "x|program(torch.randn(512, 1024))"),
)
def wrong_split() -> None:
    from argand.native.passes import split  # noqa: PLC0415

    cut = split._cut
    split._cut = lambda build, node, *rest: build.pointwise("neg", cut(build, node, *rest))


@fault(
    "pass",
    "split_reductions",
    _function("y = x.sigmoid()\nreturn y.sum() + y", "x|program(torch.randn(64, 64))"),
)
def raising_pass() -> None:
    from argand.native.passes import table  # noqa: PLC0415

    def broken(graph: Any, limits: Any) -> Any:
        if any(node.op == "sum" for node in graph.nodes):
            raise ValueError("no sum can be split")
        return graph

    table.split_reductions = broken


@fault(
    "pass",
    "memory plan",
    _function(
        "a = (x @ w).sin()\nb = (a @ w).cos()\nc = (b @ w).tanh()\nreturn (a.cumsum(0) + b.cumsum(0) + c.cumsum(0)).sum(0)",
        "x, w|program(torch.randn(64, 64), torch.randn(64, 64))",
    ),
)
def wrong_lifetime() -> None:
    from argand.native.plan import _Planner  # noqa: PLC0415

    place = _Planner._place

    def shorter(self: Any) -> int:
        self.last = {
            number: max(self.first.get(number, 0), step - 1) for number, step in self.last.items()
        }
        return place(self)

    _Planner._place = shorter


@fault(
    "pass",
    "take_products",
    _function(
        "y = torch.nn.functional.relu(x.exp() @ w)\nreturn torch.sin(y @ w) + 1",
        "x, w|with torch.no_grad():\n    program(torch.randn(64, 64), torch.randn(64, 64))",
    ),
)
def wrong_epilogue() -> None:
    from argand.native.contract import take  # noqa: PLC0415
    from argand.native.ir.loops import Compute  # noqa: PLC0415

    renamed = take._renamed

    def wrong(nest: Any, reader: Any, statements: Any, *rest: Any) -> Any:
        changed = (
            dataclasses.replace(s, op="cos") if isinstance(s, Compute) and s.op == "sin" else s
            for s in statements
        )
        return renamed(nest, reader, tuple(changed), *rest)

    take._renamed = wrong


# -- fusion and kernels -------------------------------------------------------------------------------------------


@fault(
    "fusion",
    "sub",
    _function("y = x.exp()\nreturn (y - x * 2).tanh() + 1", "x|program(torch.randn(8, 32))"),
)
def wrong_fusion() -> None:
    from argand.native.ir.loops import Compute  # noqa: PLC0415
    from argand.native.schedule import nest  # noqa: PLC0415

    arrange = nest.arrange

    def swapped(dtypes: Any, group: Any, extents: Any, rows: Any, loops: Any, *rest: Any) -> Any:
        found = [s for _, _, body in loops for s in body if isinstance(s, Compute)]
        if len(found) > 1:
            loops = [(d, inner, tuple(map(_swapped, body))) for d, inner, body in loops]
        return arrange(dtypes, group, extents, rows, loops, *rest)

    def _swapped(statement: Any) -> Any:
        if isinstance(statement, Compute) and statement.op == "sub":
            return dataclasses.replace(statement, arguments=statement.arguments[::-1])
        return statement

    nest.arrange = swapped


@fault("kernel", "aten.exp.default", LAYERS)
def wrong_lowering() -> None:
    from argand.native.lower.table import TABLE  # noqa: PLC0415

    TABLE["aten.exp.default"] = lambda context, x: context.op("exp", context.op("mul", x, 1.01))


@fault(
    "kernel",
    "aten.sigmoid.default",
    _function("return (x.sigmoid() * x).cumsum(0)", "x|program(torch.randn(16, 16))"),
)
def raising_lowering() -> None:
    from argand.native.lower.table import TABLE  # noqa: PLC0415

    def broken(context: Any, x: Any) -> Any:
        raise TypeError("sigmoid of what?")

    TABLE["aten.sigmoid.default"] = broken


@contextlib.contextmanager
def _compute() -> Iterator[tuple[Any, Callable[[Any], None]]]:
    from argand.native.codegen.llvm import arithmetic  # noqa: PLC0415

    yield arithmetic.compute, lambda new: setattr(arithmetic, "compute", new)


@fault("kernel", "erf", LAYERS)
def wrong_machine_code() -> None:
    with _compute() as (compute, replace):

        def wrong(text: Any, op: str, arguments: Any, operand: Any, result: Any, lanes: int) -> Any:
            value = compute(text, op, arguments, operand, result, lanes)
            return compute(text, "abs", [value], operand, result, lanes) if op == "erf" else value

        replace(wrong)


@fault("kernel", "tanh", LAYERS)
def crash_in_kernel() -> None:
    with _compute() as (compute, replace):

        def crash(text: Any, op: str, *rest: Any) -> Any:
            if op == "tanh":
                text.line("store volatile i32 0, ptr inttoptr (i64 8 to ptr)")
            return compute(text, op, *rest)

        replace(crash)


@fault("kernel", "tanh", LAYERS)
def crash_in_compiler() -> None:
    with _compute() as (compute, replace):

        def crash(text: Any, op: str, *rest: Any) -> Any:
            if op == "tanh":
                os.kill(os.getpid(), signal.SIGABRT)
            return compute(text, op, *rest)

        replace(crash)


SLOW_PROGRAM = _function(
    "y = torch.tanh(x * 2)\nreturn (y + 1).sum(-1), y * 3",
    "x|for _ in range(3):\n    program(torch.randn(256, 1024))",
)


@fault("kernel", "tanh", SLOW_PROGRAM, slow=True)
def slow_kernel() -> None:
    with _compute() as (compute, replace):

        def slow(text: Any, op: str, arguments: Any, operand: Any, result: Any, lanes: int) -> Any:
            value = compute(text, op, arguments, operand, result, lanes)
            # the same value once more, which no optimiser may leave out
            for _ in range(40 if op == "tanh" else 0):
                nothing = compute(text, "sub", [value, value], operand, result, lanes)
                again = compute(text, "add", [arguments[0], nothing], operand, result, lanes)
                value = compute(text, op, [again], operand, result, lanes)
            return value

        replace(slow)


@fault("kernel", "exp", _function("return x.t().exp() * 2, x + 1", "x|program(torch.randn(8, 32))"))
def wrong_stride() -> None:
    from argand.native.lower import importer  # noqa: PLC0415

    make = importer.Output

    def plain(value: Any, spec: Any, *rest: Any) -> Any:
        strides = [1] * len(spec.shape)
        for dim in reversed(range(len(spec.shape) - 1)):
            strides[dim] = strides[dim + 1] * spec.shape[dim + 1]
        return make(value, spec._replace(strides=tuple(strides)), *rest)

    importer.Output = plain


@fault(
    "kernel",
    "",
    _function(
        "y = torch.cat([x, x.sin(), x], 0)\nreturn y * 2",
        "x|for rows in (6, 7, 9, 5):\n    program(torch.randn(rows))",
    ),
)
def wrong_size_formula() -> None:
    from argand.native.numbers import Numbers  # noqa: PLC0415
    from argand.sizes.expressions import Expr  # noqa: PLC0415

    of = Numbers.of

    def wrong(self: Any, size: Any) -> Any:
        terms = () if type(size) is int else size.expr.terms
        # 3 * s: the factor is forgotten
        if len(terms) == 1 and terms[0][1] > 1 and len(terms[0][0]) == 1:
            return of(self, Expr.of(terms[0][0][0]))
        return of(self, size)

    Numbers.of = wrong
