"""autograd.lists: operators that write to tensors of lists.

The functional twin of one reads all that it is given before anything is written. Eager goes from tensor to tensor, so where
some of them lie in one memory, each sees what the ones before it have written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from argand.autograd.outputs import Untraceable
from argand.ops.decompositions import foreach
from argand.ops.table import written_arguments


def is_of_lists(func: Any) -> bool:
    """Whether an operator takes lists and works on them one by one."""
    return bool(func._opname.startswith("_foreach_"))


def meet(memories: Sequence[Any]) -> bool:
    """Whether some of these are one."""
    return len(set(map(id, memories))) < len(memories)


def tensors_of(arguments: Any) -> list[torch.Tensor]:
    """The tensors among arguments."""
    return [t for t in pytree.tree_leaves(arguments) if isinstance(t, torch.Tensor)]


def write_one_by_one(func: Any, args: Any, kwargs: Any) -> None:
    """The same by operators on single tensors."""
    name = str(func).removeprefix("aten.").removesuffix(".default")
    if name not in foreach.TABLE:
        raise Untraceable(f"{func} of tensors that share memory")
    foreach.TABLE[name](*args, **kwargs)
    count_writes(func, args, kwargs)


def count_writes(func: Any, args: Any, kwargs: Any) -> None:
    """Raise versions as eager does: torch counts writes to lists in kernels, not before the dispatch."""
    for place, name in written_arguments(func._schema):
        target = args[place] if place < len(args) else kwargs.get(name)
        if isinstance(target, list | tuple):
            torch.autograd.graph.increment_version([t for t in target if not t.is_inference()])
