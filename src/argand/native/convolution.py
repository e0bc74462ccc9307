"""native.convolution: which convolutions of inference graphs get packed weights and run channels last.

In: an aten graph. Out: ``Layouts``: which calls run as packed convolutions, and the
strides of all values that follow from them, for the importer. The graph stays as it is.

Those that we generate (`native.ir.convolve`) take batch norm into weight and bias, and what else follows as an epilogue.
The rest is oneDNN's, or torch's where that is transposed. oneDNN computes channels last and in a weight format of its own; torch's call from plain memory
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

from argand.native.ir.convolve import Convolve
from argand.native.ir.strides import dense
from argand.ops.fakes import infer
from argand.runtime.convolution import PackedConvolution
from argand.sizes.view import GraphSizes
from argand.support import events

_ATEN: Final = torch.ops.aten
_AFFINE: Final = (_ATEN.add.Tensor, _ATEN.sub.Tensor, _ATEN.mul.Tensor)
_SMALL: Final = (
    *_AFFINE,
    _ATEN.view.default,
    _ATEN.unsqueeze.default,
    _ATEN.rsqrt.default,
    _ATEN.div.Tensor,
)
_PRODUCTS: Final = (_ATEN.addmm.default, _ATEN.mm.default)
_TURNED: Final = (_ATEN.t.default, _ATEN.transpose.int, _ATEN.permute.default)
LEAST_WORK: Final = 1 << 20  # multiply-adds that outweigh the 5 us of checking and calling
# the same for linear layers, whose weights need no more than a look at their pages
LEAST_PRODUCT: Final = 1 << 16
FEW: Final = 8  # rows for which weights are read where they lie, at the speed of memory
# sums of linear layers; longer ones are cut where products cut them, to round less
LONGEST: Final = 4096
MOST_PACKED: Final = 1 << 28  # bytes of weights of linear layers that a graph may have twice


class Fused(NamedTuple):
    """A convolution and what follows it, up to and with the node whose value the call gives."""

    convolution: torch.fx.Node
    affine: tuple[
        torch.fx.Node, ...
    ] = ()  # sums, differences and products with a number per channel
    residual: torch.fx.Node | None = None
    nodes: tuple[torch.fx.Node, ...] = ()  # all of it


class Layouts(NamedTuple):
    """What the importer takes in place of nodes and of their ``meta["val"]``."""

    calls: Mapping[torch.fx.Node, tuple[PackedConvolution | Convolve, Fused]]  # by the last node
    skipped: Set[torch.fx.Node]  # parts of a call before its last
    values: Mapping[torch.fx.Node, Any]


NO_LAYOUTS: Final = Layouts({}, frozenset(), {})


def pack_convolutions(
    module: torch.fx.GraphModule, sizes: GraphSizes | None, steady: Sequence[int] = ()
) -> Layouts:
    """Choose the packed convolutions of a graph and follow their layout through it; ``steady``: inputs worth packing."""
    results = set(module.graph.output_node().all_input_nodes)
    own = {node: spec for node in module.graph.nodes if (spec := _own(node, results, sizes))}
    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    own |= _linears(module.graph, {inputs[k] for k in steady} - results, sizes)
    chosen = [node for node in module.graph.nodes if node in own or _packable(node, results)]
    calls: dict[torch.fx.Node, tuple[PackedConvolution | Convolve, Fused]] = {}
    skipped: set[torch.fx.Node] = set()
    values: dict[torch.fx.Node, Any] = {}
    inside: set[torch.fx.Node] = set(chosen)  # what reads its operands by a call of oneDNN
    for node in reversed(chosen):
        fused = _scaled(node, results) if node in own else _follow(node, results, inside)
        inside.update(fused.nodes)
        skipped.update((node, *fused.nodes))
        last = fused.nodes[-1] if fused.nodes else node
        skipped.remove(last)
        calls[last] = own.get(node) or _packed(node), fused
        if fused.nodes:
            events.count("native.epilogue", detail=", ".join(n.name for n in fused.nodes))
    views: dict[torch.fx.Node, Any] = {}
    fixed = results | _read_as_storage(module.graph)  # as eager lays them out
    for node in module.graph.nodes if chosen else ():
        convolved = node in calls or node in skipped
        value = channels_last(node.meta["val"]) if convolved else _infer_again(node, values | views)
        if value is not None and node not in fixed:
            (views if _is_view(node) else values)[node] = value
    return Layouts(calls, skipped, values)


def channels_last(value: torch.Tensor) -> torch.Tensor:
    """A fake of the same shape whose channels lie side by side: images of one or two dimensions, rows of a matrix."""
    if value.dim() == 4:
        return torch.empty_like(value, memory_format=torch.channels_last)
    if value.dim() == 2:
        return torch.empty(value.shape, dtype=value.dtype)
    _, channels, length = value.shape
    return torch.empty_strided(value.shape, (channels * length, 1, channels), dtype=value.dtype)


def _packed(node: torch.fx.Node) -> PackedConvolution:
    stride, padding, dilation, _, _, groups = node.args[3:]
    events.count("native.packed_convolution")
    return PackedConvolution((tuple(stride), tuple(padding), tuple(dilation), groups))


def _own(
    node: torch.fx.Node, results: set[torch.fx.Node], sizes: GraphSizes | None
) -> Convolve | None:
    """The convolution we generate for a node, or None."""
    operands = _operands(node, results)
    if operands is None or operands[0].dim() not in (3, 4):
        return None
    image, weight, result = operands[0], operands[1], node.meta["val"]
    if _is_open(sizes, (image, weight, result)):
        return None
    *_, high, wide = weight.stride() if weight.dim() == 4 else (0, *weight.stride()[2:])
    stride, padding, dilation = (
        _pair(node.args[k], neutral) for k, neutral in ((3, 1), (4, 0), (5, 1))
    )
    outer, inner = weight.stride()[:2]
    place, groups, transposed = (0, 0), node.args[8], bool(node.args[6])
    if transposed:  # inputs of all groups, then outputs of one
        outer, inner = inner, outer
        place = (image.shape[1] // groups * inner - weight.shape[1] * outer, 0)
    spec = Convolve(
        batch=image.shape[0],
        inputs=image.shape[1],
        outputs=result.shape[1],
        image=_pair(image.shape[2:], 1),
        result=_pair(result.shape[2:], 1),
        taps=_pair(weight.shape[2:], 1),
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        weight_strides=(outer, inner, high, wide),
        weight_place=place,
        transposed=transposed,
    )
    return spec if spec.wanted else None


def _is_open(sizes: GraphSizes | None, values: Sequence[torch.Tensor]) -> bool:
    return sizes is not None and any(
        type(sizes.express(n)) is not int for v in values for n in v.shape
    )


def operands_of(node: torch.fx.Node) -> tuple[Any, Any, Any]:
    """Image, weight and bias of a convolution or of a linear layer, whose weight is (outputs, inputs) or turned."""
    if node.target is _ATEN.convolution.default:
        x, weight, bias = node.args[:3]
        return x, weight, bias
    *bias, x, right = node.args
    assert isinstance(right, torch.fx.Node)
    weight = right.args[0] if right.target in _TURNED else right
    return x, weight, bias[0] if bias else None


def _linears(
    graph: torch.fx.Graph, weights: set[torch.fx.Node], sizes: GraphSizes | None
) -> dict[torch.fx.Node, Convolve]:
    """Linear layers as convolutions of one line of pixels; none where their weights are too many to have them twice."""
    found = {node: spec for node in graph.nodes if (spec := _linear(node, weights, sizes))}
    packed = {operands_of(node)[1] for node in found}
    return found if 4 * sum(weight.meta["val"].numel() for weight in packed) <= MOST_PACKED else {}


def _linear(
    node: torch.fx.Node, weights: set[torch.fx.Node], sizes: GraphSizes | None
) -> Convolve | None:
    """A product of rows with one of these weights, if it pays to keep that packed."""
    if node.target not in _PRODUCTS or node.kwargs:
        return None
    x, weight, bias = operands_of(node)
    if weight not in weights or (bias is not None and bias not in weights):
        return None
    values = [n.meta.get("val") for n in (x, weight, node)]
    image, kernel, result = values
    if not all(
        isinstance(v, torch.Tensor) and v.dtype is torch.float32 and v.dim() == 2 for v in values
    ):
        return None
    if _is_open(sizes, values) or not dense(tuple(kernel.shape), kernel.stride()):
        return None
    (rows, inner), columns = image.shape, result.shape[1]
    added = None if bias is None else bias.meta.get("val")
    if added is not None and (tuple(added.shape) != (columns,) or added.dtype is not torch.float32):
        return None
    if (
        rows <= FEW
        or inner > LONGEST
        or rows * inner * columns < LEAST_PRODUCT
        or not image.is_contiguous()
    ):
        return None
    right = node.args[-1].meta["val"]
    return Convolve(
        batch=1,
        inputs=inner,
        outputs=columns,
        image=(1, rows),
        result=(1, rows),
        taps=(1, 1),
        stride=(1, 1),
        padding=(0, 0),
        dilation=(1, 1),
        groups=1,
        weight_strides=(right.stride(1), right.stride(0), 0, 0),
    )


def _pair(values: Any, neutral: int) -> tuple[int, int]:
    """Numbers of height and width; an image of one dimension has the neutral height."""
    high, wide = (neutral, *values)[-2:]
    return int(high), int(wide)


def _scaled(convolution: torch.fx.Node, results: set[torch.fx.Node]) -> Fused:
    """The convolution with the batch norm that follows."""
    taken = [convolution]
    while len(taken[-1].users) == 1 and taken[-1] not in results:
        (user,) = taken[-1].users
        if not _per_channel(user, taken[-1]):
            break
        taken.append(user)
    return Fused(convolution, tuple(taken[1:]), None, tuple(taken[1:]))


def _follow(
    convolution: torch.fx.Node, results: set[torch.fx.Node], inside: set[torch.fx.Node]
) -> Fused:
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
    shape = (1, result.shape[1], *(1 for _ in result.shape[2:]))
    return same and tuple(value.shape) == shape and _of_parameters(operand)


def _of_parameters(node: torch.fx.Node) -> bool:
    """Whether a value is made of vectors that are inputs of the graph alone, as batch norm's are."""
    if node.op in ("placeholder", "get_attr"):
        return isinstance(node.meta.get("val"), torch.Tensor) and node.meta["val"].dim() == 1
    return (
        node.target in _SMALL
        and bool(node.all_input_nodes)
        and all(map(_of_parameters, node.all_input_nodes))
    )


def _residual(user: torch.fx.Node, before: torch.fx.Node) -> torch.fx.Node | None:
    """What is added to the chain, if it has the same shape and type."""
    if (
        user.target is not torch.ops.aten.add.Tensor
        or user.kwargs
        or len(user.all_input_nodes) != 2
    ):
        return None
    other = next(node for node in user.all_input_nodes if node is not before)
    mine, value = before.meta["val"], other.meta.get("val")
    same = (
        isinstance(value, torch.Tensor) and value.shape == mine.shape and value.dtype is mine.dtype
    )
    return other if same else None


def _operands(node: torch.fx.Node, results: set[torch.fx.Node]) -> list[torch.Tensor] | None:
    """Image, weight and bias of a convolution in float32 whose weight is an input of the graph and not a result."""
    if node.target is not torch.ops.aten.convolution.default:
        return None
    x, weight, bias = node.args[:3]
    if (
        not isinstance(weight, torch.fx.Node)
        or weight in results
        or weight.op not in ("placeholder", "get_attr")
    ):
        return None
    operands: list[Any] = [
        n.meta.get("val") for n in (x, weight, bias) if isinstance(n, torch.fx.Node)
    ]
    if not all(isinstance(v, torch.Tensor) and v.dtype is torch.float32 for v in operands):
        return None
    return operands if dense(tuple(operands[1].shape), operands[1].stride()) else None


def _packable(node: torch.fx.Node, results: set[torch.fx.Node]) -> bool:
    operands = _operands(node, results)
    if operands is None or not torch._C._get_mkldnn_enabled():
        return False
    result, kernel = node.meta["val"], operands[1]
    plain = kernel.dim() == 4 and result.dim() == 4 and not node.args[6]
    return plain and result.numel() * kernel[:1].numel() >= LEAST_WORK


def _read_as_storage(graph: torch.fx.Graph) -> set[torch.fx.Node]:
    """What `as_strided` reads: it counts elements of the memory, in whatever order they lie."""
    found = graph.find_nodes(op="call_function", target=_ATEN.as_strided.default)
    return {source for node in found for source in node.all_input_nodes}


def _is_view(node: torch.fx.Node) -> bool:
    """Views are laid out by what is under them, and lay out what is computed of them."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target.is_view


def _infer_again(node: torch.fx.Node, values: Mapping[torch.fx.Node, Any]) -> Any:
    """The value of a node as eager would lay it out, if what it reads is laid out anew."""
    if not any(source in values for source in node.all_input_nodes):
        return None
    if node.target is operator.getitem:
        return values[node.args[0]][node.args[1]]
    if not isinstance(node.target, torch._ops.OpOverload):
        return None

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
