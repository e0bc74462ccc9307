"""native.passes.table: the native compiler, pass by pass, with the reason for each ordering.

In: tensor IR as ``native.lower`` makes it. Out: ``Launch``, kernels as LLVM text (Triton's for a GPU) and the plan that runs them. Every
pass is a function of the form before it, the options and the target; what it changes while it works stays inside of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from argand.native.choice import Choices
from argand.native.codegen.llvm.module import KernelModule, emit_module
from argand.native.codegen.target import Target
from argand.native.contract.take import take_products
from argand.native.ir.faults import report
from argand.native.ir.tensor import Graph
from argand.native.passes import levels
from argand.native.passes.fold import fold_constants
from argand.native.passes.gather import sink_gathers
from argand.native.passes.halves import round_halves
from argand.native.passes.levels import Launch, Level
from argand.native.passes.simplify import simplify
from argand.native.passes.split import split_reductions
from argand.native.plan import make_plan
from argand.native.schedule.demand import Demand, find_demand
from argand.native.schedule.fuse import fuse
from argand.native.schedule.groups import Fusion
from argand.native.schedule.nest import LoopNests, build_nests
from argand.native.schedule.order import Schedule, order_groups
from argand.native.schedule.storage import choose_memory
from argand.native.schedule.writes import settle_writes
from argand.support import events
from argand.support.errors import InternalError
from argand.support.options import Options
from argand.support.switches import is_off

UNMEASURED: Final = Choices(None)


class Setting(NamedTuple):
    """What is the same for all passes of one compilation."""

    options: Options
    target: Target
    choices: Choices = UNMEASURED  # what was measured on this machine
    is_branch: bool = False  # the graph is inside of another: its inputs come as pointers


class Pass(NamedTuple):
    """A pure function from one form to the next; ``after``: passes it must follow, and why."""

    name: str
    takes: Level
    gives: Level
    run: Callable[[Any, Setting], Any]
    after: tuple[tuple[str, str], ...] = ()
    optional: bool = False  # what comes after it does without, so it can be off (support.switches)


def _plain(function: Callable[[Any], Any]) -> Callable[[Any, Setting], Any]:
    """A pass that depends on nothing but the form before it."""
    return lambda value, _: function(value)


def _fuse(demand: Demand, setting: Setting) -> Fusion:
    return fuse(demand, setting.options)


def _split(graph: Graph, setting: Setting) -> Graph:
    return split_reductions(graph, setting.target.limits)


def _build_nests(schedule: Schedule, setting: Setting) -> LoopNests:
    return build_nests(schedule, setting.target.limits)


def _take_products(nests: LoopNests, setting: Setting) -> LoopNests:
    if not setting.target.limits.own_products:
        return nests
    # products of BLAS check nothing, but do not leave their operands
    if setting.options.checked_kernels:
        return nests
    return take_products(nests, setting.target, setting.choices, setting.options.fusion)


def _emit(nests: LoopNests, setting: Setting) -> KernelModule:
    if setting.target.gpu is not None:
        from argand.native.codegen.triton.module import emit_triton  # noqa: PLC0415  # for GPUs only

        return emit_triton(nests, setting.target.gpu)
    return emit_module(nests, setting.target, setting.options.checked_kernels)


def _plan(module: KernelModule, setting: Setting) -> Launch:
    frozen, is_branch, reuse = (
        setting.options.freeze,
        setting.is_branch,
        not is_off(setting.options, "reuse"),
    )
    return Launch(
        module,
        make_plan(module.schedule, module.work, frozen=frozen, is_branch=is_branch, reuse=reuse),
    )


def _simplify(graph: Graph, setting: Setting) -> Graph:
    return simplify(graph, lambda rule: not is_off(setting.options, "rule", rule))


def _rewrite(
    name: str, run: Callable[[Graph], Graph], after: tuple[tuple[str, str], ...] = ()
) -> Pass:
    """A pass over tensor IR; each also removes common subexpressions and dead nodes, see rewrite."""
    return Pass(name, levels.TENSOR, levels.TENSOR, _plain(run), after, optional=True)


PASSES: Final = (
    _rewrite("fold_constants", fold_constants),
    Pass(
        "simplify",
        levels.TENSOR,
        levels.TENSOR,
        _simplify,
        after=(("fold_constants", "constants that fold become units and zeros"),),
        optional=True,
    ),
    _rewrite("sink_gathers", sink_gathers, after=(("simplify", "rules leave less to look up"),)),
    Pass(
        "split_reductions",
        levels.TENSOR,
        levels.TENSOR,
        _split,
        after=(("simplify", "rules see reductions whole"),),
        optional=True,
    ),
    Pass(
        "round_halves",
        levels.TENSOR,
        levels.TENSOR,
        _plain(round_halves),
        after=(("simplify", "a rule may take away what would have to be rounded"),),
    ),
    Pass(
        "find_demand",
        levels.TENSOR,
        levels.DEMAND,
        _plain(find_demand),
        after=(
            ("split_reductions", "pieces of a reduction are values of their own"),
            ("round_halves", "what is rounded is read once more"),
            ("sink_gathers", "the source of a lookup needs memory"),
        ),
    ),
    Pass(
        "fuse",
        levels.DEMAND,
        levels.FUSION,
        _fuse,
        after=(("find_demand", "copies are nodes to fuse, too"),),
    ),
    Pass(
        "choose_memory",
        levels.FUSION,
        levels.STORAGE,
        _plain(choose_memory),
        after=(("fuse", "only what leaves its loops is stored"),),
    ),
    Pass(
        "settle_writes",
        levels.STORAGE,
        levels.STORAGE,
        _plain(settle_writes),
        after=(("choose_memory", "a value computed again reads inputs again"),),
    ),
    Pass(
        "order_groups",
        levels.STORAGE,
        levels.SCHEDULE,
        _plain(order_groups),
        after=(("settle_writes", "who overwrites an input waits for its readers"),),
    ),
    Pass(
        "build_nests",
        levels.SCHEDULE,
        levels.LOOPS,
        _build_nests,
        after=(("choose_memory", "loads and stores are of what is stored"),),
    ),
    Pass(
        "take_products",
        levels.LOOPS,
        levels.LOOPS,
        _take_products,
        after=(
            (
                "build_nests",
                "what follows a product is a nest by then, and may run on its elements",
            ),
        ),
        optional=True,
    ),
    Pass(
        "emit",
        levels.LOOPS,
        levels.MODULE,
        _emit,
        after=(("build_nests", "it writes their loops"),),
    ),
    Pass(
        "plan",
        levels.MODULE,
        levels.PLAN,
        _plan,
        after=(("order_groups", "lifetimes count steps"), ("emit", "kernels are called by name")),
    ),
)


def check_order(passes: Sequence[Pass]) -> str:
    """What is wrong with a table: a reason for an order that is not kept, a form that nobody made; empty: nothing."""
    seen: dict[str, None] = {}
    for before, row in zip((None, *passes), passes, strict=False):
        if before is not None and before.gives is not row.takes:
            return f"pass {row.name!r} takes {row.takes.name}, pass {before.name!r} gives {before.gives.name}"
        for other, reason in row.after:
            if other not in seen:
                return f"pass {row.name!r} must follow {other!r}: {reason}"
        if row.name in seen:
            return f"two passes are called {row.name!r}"
        seen[row.name] = None
    return ""


def run_pass(row: Pass, value: Any, setting: Setting) -> Any:
    """One pass in its stage; InternalError names it, and shows what it was given when it fails."""
    name = f"native.{row.name}"
    with events.stage(name):
        try:
            result = row.run(value, setting)
        except InternalError:
            raise
        except Exception as error:
            raise InternalError(
                name, f"{type(error).__name__}: {error}", dump=row.takes.show(value)
            ) from error
    if setting.options.verify == "forms":
        report(row.gives.verify(result), row.name, row.gives.show(result))
    return result


def run_passes(graph: Graph, setting: Setting) -> Launch:
    """All passes in order."""
    if setting.options.verify == "forms":
        report(levels.TENSOR.verify(graph), "lower", levels.TENSOR.show(graph))
    value: Any = graph
    for row in PASSES:
        if row.optional and is_off(setting.options, "pass", row.name):
            continue
        value = run_pass(row, value, setting)
        _show(row, value)
    launch: Launch = value
    return launch


def _show(row: Pass, value: Any) -> None:
    if row.gives is levels.TENSOR:
        events.artifact("ir", lambda: row.gives.show(value), f"after {row.name}")
    elif row.takes is levels.LOOPS and row.gives is levels.LOOPS:
        events.artifact("fusion", lambda: "\n".join(value.schedule.decisions))
    elif row.gives is levels.MODULE:
        events.artifact("output_code", lambda: row.gives.show(value))
