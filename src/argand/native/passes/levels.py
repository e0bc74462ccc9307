"""native.passes.levels: the forms a graph has on its way to a plan, each with its verifier and its text.

docs/ir.md has the grammar of each and the rules the verifiers cite.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, final

from argand.native.codegen.llvm.module import KernelModule
from argand.native.ir.faults import Fault
from argand.native.ir.tensor import Graph
from argand.native.plan import PlanData
from argand.native.schedule.demand import Demand
from argand.native.schedule.groups import Fusion
from argand.native.schedule.nest import LoopNests
from argand.native.schedule.order import Schedule
from argand.native.schedule.storage import Storage
from argand.support.dataclass import dataclass
from argand.support.later import later

# Checks and texts of the forms, for those who ask for them.
if TYPE_CHECKING:
    from argand.native import plan_text, verify_module, verify_plan
    from argand.native.ir import tensor_text, verify_tensor
    from argand.native.schedule import text, verify
else:
    plan_text, verify_module, verify_plan = (
        later("argand.native.plan_text"),
        later("argand.native.verify_module"),
        later("argand.native.verify_plan"),
    )
    tensor_text = later("argand.native.ir.tensor_text")
    verify_tensor = later("argand.native.ir.verify_tensor")
    text, verify = (later("argand.native.schedule.text"), later("argand.native.schedule.verify"))


@final
@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """A module of kernels and the plan that runs them: all that is left is machine code."""

    module: KernelModule
    plan: PlanData


@final
@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """One form: its type, what checks it, what prints it."""

    name: str
    kind: type
    verify: Callable[[Any], Fault | None]
    show: Callable[[Any], str]


TENSOR: Final = Level(
    "tensor",
    Graph,
    lambda form: verify_tensor.verify_graph(form),
    lambda form: tensor_text.print_graph(form),
)
DEMAND: Final = Level(
    "demand", Demand, lambda form: verify.verify_demand(form), lambda form: text.print_demand(form)
)
FUSION: Final = Level(
    "fusion", Fusion, lambda form: verify.verify_fusion(form), lambda form: text.print_fusion(form)
)
STORAGE: Final = Level(
    "storage",
    Storage,
    lambda form: verify.verify_storage(form),
    lambda form: text.print_storage(form),
)
SCHEDULE: Final = Level(
    "schedule",
    Schedule,
    lambda form: verify.verify_schedule(form),
    lambda form: text.print_schedule(form),
)
LOOPS: Final = Level(
    "loops", LoopNests, lambda form: verify.verify_nests(form), lambda form: text.print_nests(form)
)
MODULE: Final = Level(
    "module",
    KernelModule,
    lambda form: verify_module.verify_module(form),
    lambda form: str(form.text),
)
PLAN: Final = Level(
    "plan",
    Launch,
    lambda form: verify_plan.verify_plan(form.plan),
    lambda form: plan_text.print_plan(form.plan),
)
LEVELS: Final = (TENSOR, DEMAND, FUSION, STORAGE, SCHEDULE, LOOPS, MODULE, PLAN)
