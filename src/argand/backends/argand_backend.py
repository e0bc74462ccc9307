"""backends.argand_backend: Argand's own backend: ahead-of-time autograd, then the native compiler.

Also offered to torch.compile through the entry point group ``torch_dynamo_backends`` (design D9).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from argand.autograd.aot import compile_with_autograd
from argand.autograd.partition import min_cut_partition
from argand.native.compile import compile_graph
from argand.ops.decompositions import decompositions
from argand.support.options import make_options


def argand(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
) -> Callable[..., Any]:
    """Compile a torch-level graph to machine code, training included."""
    chosen = make_options(mode, options)
    return compile_with_autograd(
        gm,
        list(example_inputs),
        fw_compiler=functools.partial(compile_graph, options=chosen),
        partition_fn=min_cut_partition,
        decompositions=decompositions(),
        options=chosen,
    )
