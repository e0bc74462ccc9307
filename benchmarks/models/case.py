"""benchmarks.models.case: what a case is. In: a recipe. Out: a program every engine can run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

Step = Callable[[Callable[..., Any], tuple[Any, ...]], Tensor]
MODES = ("infer", "train")


def first_tensor(result: Any) -> Tensor:
    """The tensor of a result that a loss is made of."""
    return result if isinstance(result, Tensor) else first_tensor(result[0])


def mean_square_loss(compiled: Callable[..., Any], args: tuple[Any, ...]) -> Tensor:
    """One forward pass and a loss that reaches every output element with a different gradient."""
    return first_tensor(compiled(*args)).float().square().mean()


@dataclass
class Program:
    """A built case: the function or module an engine compiles, and what to call it with."""

    target: Callable[..., Any]
    args: tuple[Any, ...]
    mode: str
    loss: Step = mean_square_loss
    leaves: tuple[Tensor, ...] = ()  # inputs that get gradients besides the module's parameters

    def parameters(self) -> list[Tensor]:
        """Everything that gets a gradient."""
        own = list(self.target.parameters()) if isinstance(self.target, nn.Module) else []
        return own + list(self.leaves)

    def run(self, compiled: Callable[..., Any]) -> Any:
        """One call in this mode: a forward pass without gradients, or a whole training step."""
        if self.mode == "infer":
            with torch.no_grad():
                return compiled(*self.args)
        for parameter in self.parameters():
            parameter.grad = None
        loss = self.loss(compiled, self.args)
        loss.backward()
        return loss.detach()

    def exact_gradients(self) -> list[Tensor | None]:
        """The gradients of one training step in float64; of a module, which this changes."""
        assert isinstance(self.target, nn.Module)
        self.target.double()
        self.args = tuple(
            a.double() if isinstance(a, Tensor) and a.is_floating_point() else a for a in self.args
        )
        self.run(self.target)
        return self.gradients()

    def gradients(self) -> list[Tensor | None]:
        """The gradients of the last training step."""
        return [parameter.grad for parameter in self.parameters()]


@dataclass(frozen=True)
class Case:
    """One row of the table of programs."""

    name: str
    build: Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]
    group: str = "model"
    modes: tuple[str, ...] = MODES
    random: bool = False  # dropout: training results are compared loosely
    loss: Step = field(default=mean_square_loss)
    # moves the same bytes and computes nothing: a contender named "copy"
    floor: Callable[..., Any] | None = None

    def program(self, mode: str) -> Program:
        """Build the case for a mode; equal for equal arguments (seeded)."""
        if mode not in self.modes:
            raise ValueError(f"{self.name} has no mode {mode!r}, only {', '.join(self.modes)}")
        torch.manual_seed(0)
        target, args = self.build()
        if isinstance(target, nn.Module):
            target.train(mode == "train")
        leaves: tuple[Tensor, ...] = ()
        if mode == "train" and not isinstance(target, nn.Module):
            args = tuple(
                arg.requires_grad_() if isinstance(arg, Tensor) and arg.is_floating_point() else arg
                for arg in args
            )
        if mode == "train":
            leaves = tuple(a for a in args if isinstance(a, Tensor) and a.requires_grad)
        return Program(target, args, mode, self.loss, leaves)
