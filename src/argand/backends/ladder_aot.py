"""backends.ladder_aot: the rungs of the debugging ladder above ahead-of-time autograd."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from argand.autograd.partition import default_partition, min_cut_partition
from argand.backends.aot import aot_autograd, make_boxed_func
from argand.backends.ladder import note_ignored
from argand.ops.decompositions import decompositions


def _run_boxed(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    return make_boxed_func(gm.forward)


def aot_eager(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **keywords: Any) -> Callable[..., Any]:
    """Forward and backward graphs, run by torch's kernels."""
    note_ignored("aot_eager", keywords)
    backend = aot_autograd(fw_compiler=_run_boxed, partition_fn=min_cut_partition)
    return backend(gm, example_inputs)


def aot_eager_default_partitioner(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **keywords: Any
) -> Callable[..., Any]:
    """The same, saving everything the backward needs."""
    note_ignored("aot_eager_default_partitioner", keywords)
    backend = aot_autograd(fw_compiler=_run_boxed, partition_fn=default_partition)
    return backend(gm, example_inputs)


def aot_eager_decomp_partition(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **keywords: Any
) -> Callable[..., Any]:
    """The same on the decomposed ops the code generator sees."""
    note_ignored("aot_eager_decomp_partition", keywords)
    backend = aot_autograd(fw_compiler=_run_boxed, partition_fn=min_cut_partition, decompositions=decompositions)
    return backend(gm, example_inputs)
