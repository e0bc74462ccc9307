"""autograd.compilers: what a caller wants done with the graphs of a program, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, final

from torch.fx import GraphModule

from argand.autograd.outputs import Traced
from argand.protocol import Bypass, CompiledGraph, Compiler, GraphContext
from argand.support.dataclass import dataclass
from argand.support.options import Options

if TYPE_CHECKING:  # restored programs without open sizes load none of these
    from argand.autograd.sizes import ProgramSizes
    from argand.sizes.facts import Fact


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Compilers:
    """What the caller wants done with the graphs."""

    forward: Compiler
    backward: Compiler
    inference: Compiler
    partition: Callable[..., tuple[GraphModule, GraphModule]]
    decompositions: Mapping[Any, Callable[..., Any]] | None
    keep_mutations: bool
    options: Options
    loops: bool = False  # recurrent layers become loops, which the compilers know how to run
    sizes: ProgramSizes | None = None  # sizes of the program known only at run time


@final
@dataclass(frozen=True, slots=True)
class Recorded:
    """What an entry is written from: a traced program, the key of its forward graph, its backward graph."""

    traced: Traced
    forward: str
    backward: GraphModule | None
    context: GraphContext  # of the backward graph


class CompiledProgram(NamedTuple):
    """A program that can run. ``origin``: the key it was restored from, or what it can be stored from, if it can be."""

    call: Callable[..., Any]
    origin: str | Recorded | Bypass
    draws: bool = False  # random numbers, at each call
    facts: tuple[Fact, ...] = ()  # relied upon, besides what was known of the graph's open sizes
    repeatable: bool = False  # as of a ``CompiledGraph``


def can_repeat(traced: Traced, compiled: CompiledGraph) -> bool:
    """Whether a call of an inference program that raised may begin anew, though it wrote to its inputs."""
    return compiled.repeatable and not any(
        mutation.differentiable for mutation in traced.effects.mutations
    )
