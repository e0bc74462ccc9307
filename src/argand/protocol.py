"""protocol: what a backend gets and gives.

A backend gets a torch-level graph (``torch.fx.GraphModule``) with example inputs and what else is known of it
(``GraphContext``: its open sizes above all), and gives a ``CompiledGraph``. Compilers of aten graphs, below
ahead-of-time autograd, have the same signature. Plain functions ``(graph, inputs) -> callable``, torch's convention,
are welcome at the public border: ``adapted`` turns one into a ``Compiler``. Such a function may hand its graph on to a
compiler of ours, and cannot pass on a context that it knows nothing of: there, and only there, the context lies on the
graph, where our public functions find it (``context_of``).
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from argand.sizes.refusals import Refusal, Stop, or_refusal
from argand.support.dataclass import dataclass

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from argand.sizes.facts import Fact
    from argand.sizes.view import GraphSizes

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
    # it writes parts of its inputs in place, but a call that raised may begin anew, in eager: nothing sees what is left
    repeatable: bool = field(default=False, kw_only=True)
    # an object that compiled frames with this graph die with, where it may have to be compiled anew
    stays: object = field(default=None, kw_only=True)

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


@final
@dataclass(frozen=True, slots=True)
class GraphContext:
    """What a stage hands to the next one besides a graph and its inputs."""

    # how to read the integers of its fakes; None: all sizes are fixed
    sizes: GraphSizes | None = None
    strict: bool = False  # of torch-level graphs: what cannot be compiled is an error, eager must not take over
    # of aten graphs: the input that the result at this place is written to after the call, -1 for none
    writes: tuple[int, ...] = ()
    # of aten graphs: parameters, where nothing trains or writes: what follows from them alone is worth keeping
    steady: tuple[int, ...] = ()


PLAIN: Final = GraphContext()

# A refusal, in place of code: sizes that are open in the graph cannot all stay open.
Compiler: TypeAlias = (
    "Callable[[GraphModule, Sequence[Any], GraphContext], CompiledGraph | Refusal]"
)
# torch's convention
PlainCompiler: TypeAlias = "Callable[[GraphModule, Sequence[Any]], Callable[..., Any]]"


_CONTEXT: Final = "argand_context"  # in ``GraphModule.meta``


def context_of(gm: GraphModule) -> GraphContext:
    """What is known of a graph that comes by way of a plain function."""
    found = gm.meta.get(_CONTEXT, PLAIN)
    assert isinstance(found, GraphContext)
    return found


def with_context(gm: GraphModule, context: GraphContext) -> GraphModule:
    """The graph, for a plain function."""
    if context == PLAIN:
        gm.meta.pop(_CONTEXT, None)
    else:
        gm.meta[_CONTEXT] = context
    return gm


def adapt(compiled: Callable[..., Any]) -> CompiledGraph:
    """What a plain function returned; torch marks those that take one list with ``_boxed_call``."""
    if not callable(compiled):
        raise TypeError(f"it returned {type(compiled).__name__}, which is not callable")
    return CompiledGraph(compiled, boxed=bool(getattr(compiled, "_boxed_call", False)))


def adapted(compiler: PlainCompiler) -> Compiler:
    """A plain function ``(gm, example_inputs) -> callable`` as a compiler of graphs."""

    def compile_graph(
        gm: GraphModule, example_inputs: Sequence[Any], context: GraphContext
    ) -> CompiledGraph | Refusal:
        # a compiler of ours, called by the function, may refuse
        return or_refusal(lambda: adapt(compiler(with_context(gm, context), example_inputs)))

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
    # what decides whether two are the same: the function, its mode and options
    identity: object = None
    open_sizes: OpenSizes = field(default=OpenSizes.ASKED, compare=False)
    # open sizes in results are outputs of the graph
    returns_sizes: bool = field(default=False, compare=False)
    # the compiled graph of a key, perhaps of another process; None: captures are not kept on disk
    restore: Callable[[str], CompiledGraph | None] | None = field(default=None, compare=False)
    # it wants to see the frames that are captured
    observe: Observer | None = field(default=None, compare=False)
    reset: Callable[[], None] = field(default=_nothing, compare=False)  # forget what was compiled


class Described(ABC):
    """An object that can be given as ``backend=`` and says itself what it is."""

    @abstractmethod
    def describe(self) -> Backend:
        """The backend."""
