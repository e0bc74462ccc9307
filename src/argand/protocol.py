"""protocol: what a backend gets and gives.

A backend gets a torch-level graph (``torch.fx.GraphModule``) with example inputs, and gives a ``CompiledGraph``.
Compilers of aten graphs, below ahead-of-time autograd, have the same signature. Plain functions that return a
callable, torch's convention, are welcome at the public border: ``adapt`` and ``adapted`` turn what they return
into a ``CompiledGraph`` there, once, and nothing behind the border asks a function for attributes.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, final

from argand.sizes.refusals import Refusal, Stop, as_refusal

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from argand.sizes.facts import Fact

Boxed: TypeAlias = Callable[[list[Any]], Sequence[Any]]


@final
@dataclass(frozen=True, slots=True)
class Bypass:
    """Why something has no entry in the disk cache."""

    reason: str


@final
@dataclass(frozen=True, slots=True)
class CompiledGraph:
    """A graph that can run.

    ``call`` takes the inputs of the graph one by one or, when it is ``boxed``, in one list, which it may clear to
    free its inputs early. It gives the outputs as a sequence.
    """

    call: Callable[..., Any]
    boxed: bool = False
    # the entry of the disk cache that gives the same callable to another process, or why there is none
    key: str | Bypass = field(default=Bypass("the compiler keeps nothing on disk"), kw_only=True)
    # what it relies on of sizes that are open, besides what was known when the graph was handed over
    facts: tuple[Fact, ...] = field(default=(), kw_only=True)
    # whether a call draws random numbers: another compiler of the same graph would draw others
    draws: bool = field(default=False, kw_only=True)

    @property
    def takes_list(self) -> Boxed:
        """The call with all inputs in one list."""
        if self.boxed:
            return self.call
        call = self.call

        def run(values: list[Any]) -> Any:
            arguments = tuple(values)
            values.clear()
            return call(*arguments)

        return run

    @property
    def takes_inputs(self) -> Callable[..., Any]:
        """The call with inputs one by one."""
        if not self.boxed:
            return self.call
        call = self.call
        return lambda *inputs: call(list(inputs))


# A refusal, in place of code: sizes that are open in the graph cannot all stay open.
Compiler: TypeAlias = "Callable[[GraphModule, Sequence[Any]], CompiledGraph | Refusal]"
PlainCompiler: TypeAlias = "Callable[[GraphModule, Sequence[Any]], Callable[..., Any]]"  # torch's convention


def adapt(compiled: Callable[..., Any]) -> CompiledGraph:
    """What a plain function returned; torch marks those that take one list with ``_boxed_call``."""
    return CompiledGraph(compiled, boxed=bool(getattr(compiled, "_boxed_call", False)))


def adapted(compiler: PlainCompiler) -> Compiler:
    """A plain function ``(gm, example_inputs) -> callable`` as a compiler of graphs."""

    def compile_graph(gm: GraphModule, example_inputs: Sequence[Any]) -> CompiledGraph | Refusal:
        try:
            return adapt(compiler(gm, example_inputs))
        except Stop as stopped:  # of ours, called by the function
            return as_refusal(stopped)

    return compile_graph


def settled(compiled: CompiledGraph | Refusal) -> CompiledGraph:
    """Code for somebody who knows nothing of refusals: `Stop` takes one to whoever called them."""
    if isinstance(compiled, CompiledGraph):
        return compiled
    raise Stop(compiled)


class OpenSizes(enum.Enum):
    """Which graphs whose sizes are known only at run time a backend is given."""

    ALWAYS = "always"  # sizes that varied are left open
    ASKED = "asked"  # only where the user asks: dynamic=True, mark_dynamic
    NEVER = "never"  # it builds code for the sizes of its example inputs: such a graph is captured again


# Entered around the compilation of a frame; what it gives is called with the captured frame (capture.finish.Captured).
Observer: TypeAlias = Callable[[], AbstractContextManager[Callable[[Any], None]]]


def _nothing() -> None:
    """Nothing to forget."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """A backend with its options, as the pipeline uses it. Equal ones would do the same."""

    name: str
    compile: Compiler = field(compare=False)
    identity: object = None  # what decides whether two are the same: the function, its mode and options
    open_sizes: OpenSizes = field(default=OpenSizes.ASKED, compare=False)
    returns_sizes: bool = field(default=False, compare=False)  # open sizes in results are outputs of the graph
    # the compiled graph of a key, perhaps of another process; None: captures are not kept on disk
    restore: Callable[[str], CompiledGraph | None] | None = field(default=None, compare=False)
    observe: Observer | None = field(default=None, compare=False)  # it wants to see the frames that are captured
    reset: Callable[[], None] = field(default=_nothing, compare=False)  # forget what was compiled


class Described(ABC):
    """An object that can be given as ``backend=`` and says itself what it is."""

    @abstractmethod
    def describe(self) -> Backend:
        """The backend."""
