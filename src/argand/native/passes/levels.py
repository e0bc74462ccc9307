"""native.passes.levels: the forms a graph has on its way to a plan, each with its verifier and its text.

docs/ir.md has the grammar of each and the rules the verifiers cite.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, final

from argand.native.codegen.llvm.module import KernelModule
from argand.native.ir.faults import Fault
from argand.native.ir.tensor import Graph
from argand.native.ir.tensor_text import print_graph
from argand.native.ir.verify_tensor import verify_graph
from argand.native.plan import PlanData
from argand.native.plan_text import print_plan
from argand.native.schedule import text
from argand.native.schedule import verify as rules
from argand.native.schedule.demand import Demand
from argand.native.schedule.groups import Fusion
from argand.native.schedule.nest import LoopNests
from argand.native.schedule.order import Schedule
from argand.native.schedule.storage import Storage
from argand.native.verify_module import verify_module
from argand.native.verify_plan import verify_plan
from argand.support.dataclass import dataclass


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


TENSOR: Final = Level("tensor", Graph, verify_graph, print_graph)
DEMAND: Final = Level("demand", Demand, rules.verify_demand, text.print_demand)
FUSION: Final = Level("fusion", Fusion, rules.verify_fusion, text.print_fusion)
STORAGE: Final = Level("storage", Storage, rules.verify_storage, text.print_storage)
SCHEDULE: Final = Level("schedule", Schedule, rules.verify_schedule, text.print_schedule)
LOOPS: Final = Level("loops", LoopNests, rules.verify_nests, text.print_nests)
MODULE: Final = Level("module", KernelModule, verify_module, lambda module: str(module.text))
PLAN: Final = Level(
    "plan", Launch, lambda launch: verify_plan(launch.plan), lambda launch: print_plan(launch.plan)
)
LEVELS: Final = (TENSOR, DEMAND, FUSION, STORAGE, SCHEDULE, LOOPS, MODULE, PLAN)
