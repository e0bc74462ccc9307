"""customops.operator: what an operator of a user is, without the ways to define it.

The parts of the room (kernels, fakes, gradients, C functions, the registry) work on this; ``definition.CustomOp`` is
above them and adds the decorators.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import torch

from argand.ops.table import written_arguments

Function: TypeAlias = Callable[..., Any]


class CFunction(NamedTuple):
    """Machine code for tensor arguments of these dtypes."""

    name: str  # how a plan names it: "ns::op|float32,int64|version"
    address: int
    dtypes: tuple[torch.dtype, ...]
    grain: int | None
    owner: object  # what keeps the machine code alive


class Operator(ABC):
    """An operator defined by a user: its schema, and what has been registered for it."""

    def __init__(self, qualname: str, overload: Any, where: Any) -> None:
        self.qualname, self.overload, self.where = qualname, overload, where
        self.namespace, self.name = qualname.split("::")
        self.schema = overload._schema
        arguments = self.schema.arguments
        self.positional_names = tuple(a.name for a in arguments if not a.kwarg_only)
        self.keyword_names = tuple(a.name for a in arguments if a.kwarg_only)
        self.names = (*self.positional_names, *self.keyword_names)
        self.mutated_positions = tuple(place for place, _ in written_arguments(self.schema))
        self._tensor_positions = tuple(
            i for i, a in enumerate(arguments) if "Tensor" in str(a.type)
        )
        self.tensor_names = frozenset(arguments[i].name for i in self._tensor_positions)
        self.version: str | None = None
        self.implementations: dict[str, Any] = {}  # device -> where it was written
        self.functions: dict[str, Function] = {}  # device -> as it was written
        self.found_out: dict[Any, Any] = {}  # result types by arguments, where there is no fake
        self.fake: Function | None = None
        self.c_functions: dict[tuple[torch.dtype, ...], CFunction] = {}
        self.wants_autograd_kernel = True
        self.differentiates_itself = self.has_kernel("Autograd") or self.has_kernel(
            "CompositeImplicitAutograd"
        )
        self.needs_care = False  # calls look for a C function, or check what was inferred

    def has_kernel(self, key: str) -> bool:
        """Whether the dispatcher has a kernel for a key."""
        return bool(torch._C._dispatch_has_kernel_for_dispatch_key(self.qualname, key))

    def argument(self, position: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The value of an argument, None where its default holds."""
        if position < len(args):
            return args[position]
        return kwargs.get(self.schema.arguments[position].name)

    def complete_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Every argument in schema order, defaults filled in."""
        return [
            *args,
            *(kwargs.get(a.name, a.default_value) for a in self.schema.arguments[len(args) :]),
        ]

    def meets_gradient(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a tensor argument requires a gradient."""
        for position in self._tensor_positions:
            value = self.argument(position, args, kwargs)
            if isinstance(value, torch.Tensor):
                if value.requires_grad:
                    return True
            elif isinstance(value, list | tuple) and any(
                t is not None and t.requires_grad for t in value
            ):
                return True
        return False

    @abstractmethod
    def choose(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Function:
        """What runs for these arguments: a C function, or ``function`` with its results checked."""

    @abstractmethod
    def install_autograd_kernel(self) -> None:
        """Let the dispatcher know how to differentiate, before the first call that needs it."""
