"""benchmarks.language.user_data: what people's helpers do with their data: dicts, lists, texts, trees, masks, indices."""

from __future__ import annotations

import bisect
import collections
import dataclasses
import functools
import itertools
import math
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.language.program import Compile, program, rows, scenario, square, two


def batch() -> tuple[dict[str, Tensor]]:
    """What a data loader gives a language model."""
    ids = torch.tensor([[5, 3, 2, 0], [7, 1, 0, 0]])
    return ({"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": ids.clone()},)


def edges() -> tuple[Tensor, Tensor]:
    """A graph with four nodes and five edges."""
    return torch.randn(4, 3), torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]])


@dataclasses.dataclass
class Output:
    """What models give back."""

    loss: Tensor | None = None
    logits: Tensor | None = None
    hidden: tuple[Tensor, ...] = ()

    def to_tuple(self) -> tuple[Any, ...]:
        """The fields that are set."""
        values = (getattr(self, field.name) for field in dataclasses.fields(self))
        return tuple(value for value in values if value is not None and value != ())


class Bunch(dict):  # type: ignore[type-arg]
    """A dict whose keys are attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(name) from error

    __setattr__ = dict.__setitem__


@program(batch)
def batch_to_kwargs(inputs: dict[str, Tensor]) -> Any:
    """Pop, filter and pass on what a collator made."""
    inputs = dict(inputs)
    labels = inputs.pop("labels")
    kept = {key: value for key, value in inputs.items() if key.endswith(("ids", "mask"))}

    def forward(*, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return input_ids * attention_mask

    return forward(**kept), labels


@program(batch)
def shifted_labels(inputs: dict[str, Tensor]) -> Tensor:
    """The loss of a language model."""
    logits = F.one_hot(inputs["input_ids"], 8).float()
    labels = inputs["labels"].masked_fill(inputs["attention_mask"] == 0, -100)
    shift = logits[..., :-1, :].contiguous()
    return F.cross_entropy(shift.view(-1, 8), labels[..., 1:].reshape(-1), ignore_index=-100)


@program(batch)
def position_ids_of_mask(inputs: dict[str, Tensor]) -> Tensor:
    """Positions by a running count."""
    mask = inputs["attention_mask"]
    return (mask.cumsum(-1) - 1).clamp(min=0).masked_fill(mask == 0, 1)


@program(batch)
def last_token_pool(inputs: dict[str, Tensor]) -> Tensor:
    """Rows by the length of each sequence."""
    hidden = F.one_hot(inputs["input_ids"], 8).float()
    lengths = inputs["attention_mask"].sum(1) - 1
    return hidden[torch.arange(hidden.shape[0]), lengths]


@program(batch)
def mean_pool(inputs: dict[str, Tensor]) -> Tensor:
    """A mean over tokens that count."""
    hidden = F.one_hot(inputs["input_ids"], 8).float()
    mask = inputs["attention_mask"].unsqueeze(-1).expand(hidden.size()).float()
    return F.normalize((hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9), p=2, dim=1)


@program()
def dataclass_output(x: Tensor) -> Any:
    """A model output made, filled and unpacked."""
    out = Output(logits=x.softmax(-1))
    out.loss = out.logits.logsumexp(-1).mean() if out.logits is not None else None
    out = dataclasses.replace(out, hidden=(x, x + 1))
    return out.to_tuple()


@program()
def attribute_dict(x: Tensor) -> Any:
    """A dict with attributes, as configurations are."""
    found = Bunch(scale=2.0, bias=x)
    found.more = found.scale * found.bias
    return found.more, "more" in found, getattr(found, "missing", 3), sorted(found)


@program()
def nested_get(x: Tensor) -> Tensor:
    """A path through nested dicts, by reduce and getitem."""
    tree = {"a": {"b": [x, {"c": x * 2}]}}
    return functools.reduce(operator.getitem, ["a", "b", 1, "c"], tree) + 1  # type: ignore[arg-type]


@program()
def flatten_dict(x: Tensor) -> dict[str, Tensor]:
    """Names with dots, by recursion."""

    def walk(tree: Any, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
        for key, value in tree.items():
            if isinstance(value, dict):
                yield from walk(value, f"{prefix}{key}.")
            else:
                yield prefix + key, value

    return dict(walk({"a": x, "b": {"c": x * 2, "d": {"e": x - 1}}}))


@program()
def pytree_mapped(x: Tensor) -> Any:
    """Flatten, map, unflatten."""
    tree = {"a": [x, x + 1], "b": (x * 2, {"c": 3})}
    leaves, spec = pytree.tree_flatten(tree)
    again = pytree.tree_unflatten([leaf * 2 for leaf in leaves], spec)
    return pytree.tree_map_only(Tensor, torch.sin, again), spec.num_leaves


@program()
def pytree_with_path(x: Tensor) -> Any:
    """Paths to leaves."""
    found = pytree.tree_flatten_with_path({"a": [x], "b": x + 1})[0]
    return {pytree.keystr(path): leaf for path, leaf in found}


@program()
def pytree_all(x: Tensor) -> Any:
    """Questions about leaves."""
    tree = [x, (x, {"k": x})]
    return pytree.tree_all(lambda leaf: leaf.dim() == 2, tree), sum(pytree.tree_leaves(tree))


@program()
def grouped_by_shape(x: Tensor) -> Any:
    """A defaultdict of tensors by shape, as bucketing does."""
    groups: dict[tuple[int, ...], list[Tensor]] = collections.defaultdict(list)
    for item in (x, x[:2], x + 1, x[:2] * 2):
        groups[tuple(item.shape)].append(item)
    return {key: torch.stack(items).sum(0) for key, items in groups.items()}


@program()
def sorted_by_size(x: Tensor) -> Any:
    """Sorting by numel, with an index."""
    parts = sorted(enumerate(x.split([1, 3])), key=lambda pair: -pair[1].numel())
    return [index for index, _ in parts], parts[0][1]


@program()
def chunked_list(x: Tensor) -> Tensor:
    """Slices of a list in steps."""
    items = list(x.unbind())
    pairs = [items[i : i + 2] for i in range(0, len(items), 2)]
    return torch.stack([torch.stack(pair).prod(0) for pair in pairs])


@program()
def sliding_pairs(x: Tensor) -> Tensor:
    """Pairs of neighbours and their accumulation."""
    differences = [b - a for a, b in itertools.pairwise(x.unbind())]
    return torch.stack(list(itertools.accumulate(differences, torch.add)))


@program()
def names_by_pattern(x: Tensor) -> Tensor:
    """Weights chosen by a regular expression."""
    table = {"layer.0.weight": 1.0, "layer.1.weight": 2.0, "head.bias": 3.0}
    chosen = [value for name, value in table.items() if re.match(r"layer\.\d+\.weight", name)]
    return x * sum(chosen)


@program()
def remapped_names(x: Tensor) -> dict[str, Tensor]:
    """Keys of a checkpoint renamed."""
    state = {"module.a.weight": x, "module.b.weight": x + 1}
    return {key.removeprefix("module.").replace(".", "_"): value for key, value in state.items()}


@program()
def counter_of_words(x: Tensor) -> Any:
    """A Counter, its most common, and arithmetic with it."""
    counts = collections.Counter("abracadabra")
    counts.update({"z": 2})
    return x * counts.most_common(1)[0][1], counts.total()


@program()
def bisected_bucket(x: Tensor) -> Tensor:
    """A bucket of sizes by bisect."""
    buckets = [2, 4, 8]
    wanted = buckets[bisect.bisect_left(buckets, x.shape[0])]
    return F.pad(x, (0, 0, 0, wanted - x.shape[0] + 1))


@program()
def scattered_mean(x: Tensor) -> Tensor:
    """A mean by groups, by scatter."""
    index = torch.tensor([0, 1, 0, 1])
    out = x.new_zeros(2, 4).scatter_reduce(0, index[:, None].expand(-1, 4), x, "mean")
    return out.index_add(0, index, x, alpha=0.5)


@program(edges, train=True)
def message_passing(nodes: Tensor, index: Tensor) -> Tensor:
    """One layer of a graph network."""
    source, target = index
    messages = nodes[source] * 0.5
    summed = torch.zeros_like(nodes).index_add(0, target, messages)
    degree = torch.zeros(nodes.shape[0]).scatter_add(0, target, torch.ones(target.shape[0]))
    return torch.relu(summed / degree.clamp(min=1).unsqueeze(-1))


@program(edges)
def softmax_by_group(nodes: Tensor, index: Tensor) -> Tensor:
    """Attention over edges."""
    score = nodes[index[0]].sum(-1)
    most = torch.full((4,), -math.inf).scatter_reduce(0, index[1], score, "amax")
    power = (score - most[index[1]]).exp()
    return power / torch.zeros(4).scatter_add(0, index[1], power)[index[1]]


@program()
def sparse_mask_product(x: Tensor) -> Tensor:
    """A mask of the largest entries."""
    kept = torch.zeros_like(x).scatter_(-1, x.topk(2, -1).indices, 1.0)
    return (x * kept) @ kept.T


@program()
def routed_experts(x: Tensor) -> Tensor:
    """A mixture of two experts without a branch."""
    weights, chosen = x.softmax(-1).topk(2, -1)
    outs = torch.stack([x * (i + 1) for i in range(4)], 1)
    return (outs.gather(1, chosen[..., None].expand(-1, -1, 4)) * weights[..., None]).sum(1)


@program(
    reason="sizes that are data: that they add up to the length is not known in a trace (docs/next.md)"
)
def tolist_of_constants(x: Tensor) -> Any:
    """tolist of a tensor that is made inside."""
    sizes = torch.tensor([1, 3]).tolist()
    return [part * 2 for part in torch.split(x, sizes)]


@program(
    lambda: (torch.randn(5, 2), torch.tensor([2, 3])),
    reason="sizes that are data: that they add up to the length is not known in a trace (docs/next.md)",
)
def tolist_as_sizes(x: Tensor, sizes: Tensor) -> Any:
    """Sizes that are data."""
    return [part.sum(0) for part in torch.split(x, sizes.tolist())]


@program(lambda: (torch.randn(5, 2), [2, 3]), lambda: (torch.randn(5, 2), [4, 1]))
def split_by_list(x: Tensor, sizes: list[int]) -> Any:
    """Sizes that are arguments."""
    return [part.sum(0) for part in x.split(sizes)]


@program(*rows(3, 5, 8))
def windows_of_open_length(x: Tensor) -> Tensor:
    """Unfold with padding to a multiple."""
    rest = -x.shape[0] % 4
    padded = F.pad(x, (0, 0, 0, rest))
    return padded.view(-1, 4, 4).mean(1)


@program(*rows(3, 5, 8))
def causal_by_arange(x: Tensor) -> Tensor:
    """A mask of an open length."""
    place = torch.arange(x.shape[0])
    mask = place[None, :] <= place[:, None]
    scores = (x @ x.T).masked_fill(~mask, -math.inf)
    return scores.softmax(-1) @ x


@program()
def rearranged_by_hand(x: Tensor) -> Tensor:
    """Heads in and out, as einops writes them."""
    heads = x.reshape(4, 2, 2).permute(1, 0, 2)
    pooled = torch.einsum("hnd,hmd->hnm", heads, heads)
    return pooled.permute(1, 0, 2).flatten(1)


@program(two)
def rotary(x: Tensor, y: Tensor) -> Any:
    """Rotary positions applied to two tensors."""

    def turned(z: Tensor) -> Tensor:
        a, b = z.chunk(2, -1)
        return torch.cat((-b, a), -1)

    angles = torch.outer(torch.arange(4.0), 1.0 / 10000 ** (torch.arange(0, 4, 2) / 4))
    angles = torch.cat((angles, angles), -1)
    return tuple(z * angles.cos() + turned(z) * angles.sin() for z in (x, y))


@program()
def partial_pipeline(x: Tensor) -> Tensor:
    """Functions composed from partials and lambdas."""
    steps: list[Callable[..., Any]] = [
        functools.partial(torch.clamp, min=-1),
        torch.tanh,
        lambda y: y + 1,
        functools.partial(torch.mul, other=2),
    ]
    return functools.reduce(lambda y, step: step(y), steps, x)


@program()
def dispatched(x: Tensor) -> Any:
    """singledispatch over kinds of values."""

    @functools.singledispatch
    def scaled(value: Any) -> Any:
        return value

    @scaled.register
    def _(value: list) -> Any:  # type: ignore[type-arg]
        return [scaled(item) for item in value]

    @scaled.register
    def _(value: Tensor) -> Any:
        return value * 2

    return scaled([x, [x, 3]])


@scenario
def memoized_by_id(compile_: Compile) -> Any:
    """A cache of a helper's own over calls."""
    cache: dict[int, Tensor] = {}

    def table(n: int) -> Tensor:
        if n not in cache:
            cache[n] = torch.arange(n).float()
        return cache[n]

    run = compile_(lambda x: x + table(x.shape[-1]))
    return [run(torch.ones(4)) for _ in range(3)], list(cache)


@scenario
def appended_history(compile_: Compile) -> Any:
    """A log kept by an object over calls, with a length that is bounded."""

    class Meter:
        def __init__(self) -> None:
            self.values: collections.deque[float] = collections.deque(maxlen=2)
            self.count = 0

        def update(self, x: Tensor) -> Tensor:
            self.count += 1
            self.values.append(self.count * 0.5)
            return x * sum(self.values)

    meter = Meter()
    run = compile_(meter.update)
    return [run(torch.ones(2)) for _ in range(4)], list(meter.values), meter.count


@program(square, train=True)
def module_made_inside(x: Tensor) -> Tensor:
    """A function of parameters that were made outside of it."""
    weights = {"weight": x, "bias": x[0]}
    layer = nn.Linear(4, 4)
    return torch.func.functional_call(layer, weights, (x,))


@program()
def generator_pipeline(x: Tensor) -> list[Tensor]:
    """Generators over generators."""

    def source() -> Iterator[Tensor]:
        yield from x

    def doubled(items: Iterator[Tensor]) -> Iterator[Tensor]:
        for item in items:
            yield item * 2

    return list(itertools.islice(doubled(source()), 3))


@scenario(rival=False)
def compiled_generator(compile_: Compile) -> Any:
    """A generator function compiled itself."""

    def walk(x: Tensor) -> Iterator[Tensor]:
        for _ in range(4):
            x = torch.sin(x) * 2
            yield x

    return list(compile_(walk)(torch.ones(3)))
