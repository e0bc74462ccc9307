"""native.convolution: convolutions of inference graphs with packed weights, channels last.

In: an aten graph. Out: ``Layouts``: which calls run as packed convolutions, and the
strides of all values that follow from them, for the importer. The graph stays as it is.

oneDNN computes channels last and in a weight format of its own; torch's call from plain memory
reorders both, each time (ResNet-18: 12% and 10% of the convolutions). A packed weight is used as long
as the fingerprint of the weight's contents is the same: versions miss writes through ``.data``. Not where
a weight is returned, that is saved for a backward pass: it changes each step, and backward is 20% slower
channels last. Where a pass over memory goes away with it, batch norm is folded into weight and bias and a
residual is added by the same call (decision 0013, which also says why activations are not).
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence, Set
from typing import Any, Final, NamedTuple

import torch
import torch.fx

from argand.native.ir.strides import dense
from argand.ops.fakes import infer
from argand.runtime.convolution import PackedConvolution
from argand.support import events

_ATEN: Final = torch.ops.aten
_AFFINE: Final = (_ATEN.add.Tensor, _ATEN.sub.Tensor, _ATEN.mul.Tensor)
_SMALL: Final = (*_AFFINE, _ATEN.view.default, _ATEN.unsqueeze.default, _ATEN.rsqrt.default, _ATEN.div.Tensor)
LEAST_WORK: Final = 1 << 20  # multiply-adds that outweigh the 5 us of checking and calling


class Fused(NamedTuple):
    """A convolution and what follows it, up to and with the node whose value the call gives."""

    convolution: torch.fx.Node
    affine: tuple[torch.fx.Node, ...] = ()  # sums, differences and products with a number per channel
    residual: torch.fx.Node | None = None
    nodes: tuple[torch.fx.Node, ...] = ()  # all of it


class Layouts(NamedTuple):
    """What the importer takes in place of nodes and of their ``meta["val"]``."""

    calls: Mapping[torch.fx.Node, tuple[PackedConvolution, Fused]]  # by the last node
    skipped: Set[torch.fx.Node]  # parts of a call before its last
    values: Mapping[torch.fx.Node, Any]


def pack_convolutions(module: torch.fx.GraphModule) -> Layouts:
    """Choose the packed convolutions of a graph and follow their layout through it."""
    results = set(module.graph.output_node().all_input_nodes)
    chosen = [node for node in module.graph.nodes if _packable(node, results)]
    calls: dict[torch.fx.Node, tuple[PackedConvolution, Fused]] = {}
    skipped: set[torch.fx.Node] = set()
    values: dict[torch.fx.Node, Any] = {}
    inside: set[torch.fx.Node] = set(chosen)  # what reads its operands by a call of oneDNN
    for node in reversed(chosen):
        fused = _follow(node, results, inside)
        inside.update(fused.nodes)
        skipped.update((node, *fused.nodes))
        last = fused.nodes[-1] if fused.nodes else node
        skipped.remove(last)
        stride, padding, dilation, _, _, groups = node.args[3:]
        calls[last] = PackedConvolution((tuple(stride), tuple(padding), tuple(dilation), groups)), fused
        events.count("native.packed_convolution")
        if fused.nodes:
            events.count("native.epilogue", detail=", ".join(n.name for n in fused.nodes))
    for node in module.graph.nodes if chosen else ():
        if node in calls or node in skipped:
            value = torch.empty_like(node.meta["val"], memory_format=torch.channels_last)
        else:
            value = _infer_again(node, values)
        if value is not None and node not in results:  # results are as eager lays them out
            values[node] = value
    return Layouts(calls, skipped, values)


def _follow(convolution: torch.fx.Node, results: set[torch.fx.Node], inside: set[torch.fx.Node]) -> Fused:
    """The longest chain of sole users that oneDNN computes; none where a kernel of ours has to follow anyway."""
    taken = [convolution]

    def sole() -> torch.fx.Node | None:
        """The only reader of the chain so far."""
        node = taken[-1]
        return next(iter(node.users)) if len(node.users) == 1 and node not in results else None

    affine = []
    while (user := sole()) and _per_channel(user, taken[-1]):
        affine.append(user)
        taken.append(user)
    residual = None
    if (user := sole()) and user not in inside and (residual := _residual(user, taken[-1])):
        taken.append(user)
    last = taken[-1]
    if last in results or not all(user in inside for user in last.users):
        return Fused(convolution)
    return Fused(convolution, tuple(affine), residual, tuple(taken[1:]))


def _per_channel(user: torch.fx.Node, before: torch.fx.Node) -> bool:
    """Whether this is a sum, difference or product with parameters, one number per channel."""
    if user.target not in _AFFINE or user.kwargs or len(user.all_input_nodes) != 2:
        return False
    left, right = user.args
    operand = right if left is before else left
    if user.target is torch.ops.aten.sub.Tensor and left is not before:
        return False
    assert isinstance(operand, torch.fx.Node)
    value, result = operand.meta["val"], user.meta["val"]
    same = result.shape == before.meta["val"].shape and result.dtype is value.dtype
    return same and tuple(value.shape) == (1, result.shape[1], 1, 1) and _of_parameters(operand)


def _of_parameters(node: torch.fx.Node) -> bool:
    """Whether a value is made of vectors that are inputs of the graph alone, as batch norm's are."""
    if node.op in ("placeholder", "get_attr"):
        return isinstance(node.meta.get("val"), torch.Tensor) and node.meta["val"].dim() == 1
    return node.target in _SMALL and bool(node.all_input_nodes) and all(map(_of_parameters, node.all_input_nodes))


def _residual(user: torch.fx.Node, before: torch.fx.Node) -> torch.fx.Node | None:
    """What is added to the chain, if it has the same shape and type."""
    if user.target is not torch.ops.aten.add.Tensor or user.kwargs or len(user.all_input_nodes) != 2:
        return None
    other = next(node for node in user.all_input_nodes if node is not before)
    mine, value = before.meta["val"], other.meta.get("val")
    same = isinstance(value, torch.Tensor) and value.shape == mine.shape and value.dtype is mine.dtype
    return other if same else None


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
