"""backends.failing: backends that fail on purpose, to test the tools that find failures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_RELU_FUNCTIONS = frozenset({torch.relu, torch.relu_, torch.nn.functional.relu})


class ReluCompileError(Exception):
    """Raised at compile time by ``relu_compile_error_TESTING_ONLY``."""


class ReluRuntimeError(Exception):
    """Raised at run time by ``relu_runtime_error_TESTING_ONLY``."""


def _relu_nodes(gm: torch.fx.GraphModule) -> list[torch.fx.Node]:
    return [
        node
        for node in gm.graph.nodes
        if (node.op == "call_function" and node.target in _RELU_FUNCTIONS)
        or (node.op == "call_method" and node.target in {"relu", "relu_"})
    ]


def _replace_relu(gm: torch.fx.GraphModule, function: Callable[[Any], Any]) -> Callable[..., Any]:
    for node in _relu_nodes(gm):
        with gm.graph.inserting_before(node):
            node.replace_all_uses_with(gm.graph.call_function(function, (node.args[0],)))
        gm.graph.erase_node(node)
    gm.recompile()
    return gm.forward


def relu_compile_error_TESTING_ONLY(
    gm: torch.fx.GraphModule, *_: Any, **__: Any
) -> Callable[..., Any]:
    """Fail to compile a graph with a relu in it."""
    if _relu_nodes(gm):
        raise ReluCompileError("the graph has a relu")
    return gm.forward


def _raise_at_run_time(_: Any) -> Any:
    raise ReluRuntimeError("a relu ran")


def relu_runtime_error_TESTING_ONLY(
    gm: torch.fx.GraphModule, *_: Any, **__: Any
) -> Callable[..., Any]:
    """Fail when a relu runs."""
    return _replace_relu(gm, _raise_at_run_time)


def _add_one(value: Any) -> Any:
    return value + 1


def relu_accuracy_error_TESTING_ONLY(
    gm: torch.fx.GraphModule, *_: Any, **__: Any
) -> Callable[..., Any]:
    """Compute x + 1 instead of a relu."""
    return _replace_relu(gm, _add_one)
