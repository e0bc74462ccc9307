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


def _rung(name: str, **how: Any) -> Callable[..., Any]:
    def backend(
        gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **keywords: Any
    ) -> Callable[..., Any]:
        note_ignored(name, keywords)
        compiled: Callable[..., Any] = aot_autograd(fw_compiler=_run_boxed, **how)(
            gm, example_inputs
        )
        return compiled

    backend.__name__ = name
    return backend


# Forward and backward graphs run by torch's kernels; saving everything the backward needs instead of
# recomputing; on the decomposed ops the code generator sees.
aot_eager = _rung("aot_eager", partition_fn=min_cut_partition)
aot_eager_default_partitioner = _rung(
    "aot_eager_default_partitioner", partition_fn=default_partition
)
aot_eager_decomp_partition = _rung(
    "aot_eager_decomp_partition", partition_fn=min_cut_partition, decompositions=decompositions
)
