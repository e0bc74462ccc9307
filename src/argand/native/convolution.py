"""native.convolution: convolutions of inference graphs with packed weights, channels last.

In: an aten graph. Out: ``Layouts``: which calls run as packed convolutions, and the
strides of all values that follow from them, for the importer. The graph stays as it is.

oneDNN computes channels last and in a weight format of its own; torch's call from plain memory
reorders both, each time (ResNet-18: 12% and 10% of the convolutions). A packed weight is used as long
as the fingerprint of the weight's contents is the same: versions miss writes through ``.data``.
Activations are no epilogues: oneDNN's relu turns NaN into 0. Not where a weight is returned, that is
saved for a backward pass: it changes each step, and backward is 20% slower channels last.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import torch
import torch.fx

from argand.native.schedule.strides import dense
from argand.ops.fakes import infer
from argand.runtime.convolution import PackedConvolution
from argand.support import events

LEAST_WORK: Final = 1 << 20  # multiply-adds that outweigh the 5 us of checking and calling


class Layouts(NamedTuple):
    """What the importer takes in place of a node's target and of its ``meta["val"]``."""

    targets: Mapping[torch.fx.Node, PackedConvolution]
    values: Mapping[torch.fx.Node, Any]


def pack_convolutions(module: torch.fx.GraphModule) -> Layouts:
    """Choose the packed convolutions of a graph and follow their layout through it."""
    targets: dict[torch.fx.Node, PackedConvolution] = {}
    values: dict[torch.fx.Node, Any] = {}
    results = set(module.graph.output_node().all_input_nodes)
    for node in module.graph.nodes:
        if _packable(node, results):
            stride, padding, dilation, _, _, groups = node.args[3:]
            spec = (tuple(stride), tuple(padding), tuple(dilation), groups)
            targets[node] = PackedConvolution(spec)
            events.count("native.packed_convolution")
            value = torch.empty_like(node.meta["val"], memory_format=torch.channels_last)
        else:
            value = _infer_again(node, values)
        if value is not None and node not in results:  # results are as eager lays them out
            values[node] = value
    return Layouts(targets, values)


def _packable(node: torch.fx.Node, results: set[torch.fx.Node]) -> bool:
    if node.target is not torch.ops.aten.convolution.default or not torch._C._get_mkldnn_enabled():
        return False
    x, weight, bias = node.args[:3]
    if not isinstance(weight, torch.fx.Node) or weight in results:
        return False
    if weight.op not in ("placeholder", "get_attr"):
        return False
    operands = [n.meta.get("val") for n in (x, weight, bias) if isinstance(n, torch.fx.Node)]
    if not all(isinstance(v, torch.Tensor) and v.dtype is torch.float32 for v in operands):
        return False
    result, kernel = node.meta["val"], operands[1]
    plain = kernel.dim() == 4 and result.dim() == 4 and not node.args[6]
    work = result.numel() * kernel[:1].numel()
    return plain and work >= LEAST_WORK and dense(tuple(kernel.shape), kernel.stride())


def _infer_again(node: torch.fx.Node, values: Mapping[torch.fx.Node, Any]) -> Any:
    """The value of a node as eager would lay it out, if what it reads is laid out anew."""
    if not any(source in values for source in node.all_input_nodes):
        return None
    if node.target is operator.getitem:
        return values[node.args[0]][node.args[1]]
    if not isinstance(node.target, torch._ops.OpOverload) or node.target.is_view:
        return None  # views are laid out by what is under them

    def take(argument: torch.fx.Node) -> Any:
        return values.get(argument, argument.meta.get("val"))

    args, kwargs = torch.fx.node.map_arg((node.args, dict(node.kwargs)), take)
    try:
        value = infer(node.target, args, kwargs)
    except (RuntimeError, NotImplementedError, KeyError, TypeError):
        return None
    return value if _alike(value, node.meta.get("val")) else None


def _alike(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, Sequence) and isinstance(value, Sequence):
        pairs = list(zip(value, wanted, strict=False))
        return len(value) == len(wanted) and all(_alike(a, b) for a, b in pairs)
    if not isinstance(wanted, torch.Tensor):
        return bool(value == wanted)
    same = isinstance(value, torch.Tensor) and value.shape == wanted.shape
    return same and value.dtype is wanted.dtype
