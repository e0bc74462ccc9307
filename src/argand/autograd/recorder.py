"""autograd.recorder: a dispatch mode that writes what torch does on fakes into a functional graph.

In: aten ops, below autograd, on fakes (``ops.fakes``). Out: nodes of an fx graph, each with
``meta["val"]`` (a fake) and ``meta["stack_trace"]``. Autograd runs above the mode: the derivative of
anything is recorded by running torch's own engine on the fakes.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final, final

import torch
from torch.fx import Graph, Node
from typing_extensions import override

from argand.autograd import functional, lists, zero_tensors
from argand.autograd.aliasing import Aliasing, StorageView
from argand.autograd.functional import Action, Recipe
from argand.autograd.geometry import (
    ViewStep,
    aten,
    bare,
    bit_steps,
    dense_order,
    geometry_of,
    same_layout,
    steps_of,
)
from argand.autograd.graphs import add_node, is_view
from argand.autograd.nodes import fresh_like, frozen, hold, name_of, value_of
from argand.autograd.outputs import Untraceable
from argand.ops.copied import Copied, map_nested
from argand.ops.fakes import FakeMode, infer
from argand.sizes.formulas import explain_sizes
from argand.sizes.table import SizeTable

_NO_KWARGS: Final[dict[str, Any]] = {}


@final
class AtenRecorder(FakeMode):
    """Records into ``graph``. ``decompositions`` maps OpOverloads to Python functions."""

    def __init__(
        self,
        decompositions: Mapping[Any, Callable[..., Any]] | None = None,
        sizes: SizeTable | None = None,
        *,
        eager_draws: bool = False,
    ) -> None:
        super().__init__(sizes)
        # random numbers are wanted in the order in which eager draws them
        self.eager_draws = eager_draws
        self.learn: Callable[..., None] = lambda *_: None
        if sizes is not None:
            self.learn = functools.partial(explain_sizes, sizes)
        self.graph = Graph()
        self.decompositions = decompositions or {}
        self.open: set[Any] = set()  # ops whose decomposition runs now
        self.aliasing = Aliasing(self.emit)
        self.given: list[torch.Tensor] = []  # the fakes of inputs, as the program has them
        self.cut = False  # whether part of the program is hidden from autograd, as by `detach` or `no_grad`
        self.foreign = False  # whether some of its backward is a formula of the user's
        self.follows = torch.is_grad_enabled()
        self.absolute = False  # an offset in the storage of an input was given by hand: right for this input alone
        self.constants: dict[str, torch.Tensor] = {}
        self.stack_trace: str | None = None
        self.seen: dict[Any, Node] = {}  # equal pure calls share one node
        self.backward = False  # in it, grad mode is on only where checkpoint runs the forward again
        self.lines: Callable[[], str | None] | None = None  # the user's line of a backward op
        self.draws = 0
        self.zeros: set[int] = set()
        self.last_placeholder: Node | None = None
        self.line_book: Any = None
        self.checkpoint: int | None = None  # the checkpoint region the program is in

    # -- dispatch ----------------------------------------------------------------------------

    @override
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or _NO_KWARGS
        self._notice_cut()
        self.learn(func, args, kwargs)
        if self.zeros:
            result = zero_tensors.product(self, func, args, kwargs)
            if result is not NotImplemented:
                return result
        decomposition = self.decompositions.get(func)
        if decomposition is not None and func not in self.open:
            result = self._decomposed(func, decomposition, args, kwargs)
            if result is not NotImplemented:
                return result
        special = _SPECIAL.get(func)
        if special is not None:
            return special(self, func, args, kwargs)
        return self._by_recipe(functional.recipe_of(func), func, args, kwargs)

    def _by_recipe(self, recipe: Recipe, func: Any, args: Any, kwargs: Any) -> Any:
        match recipe.action:
            case Action.PURE:
                return self.record(func, args, kwargs)
            case Action.VIEW:
                return self._view(func, args, kwargs)
            case Action.WRITE:
                return self._write(func, recipe, args, kwargs)
            case Action.COMPOSITE:
                with self:
                    return functional.run_composite(func, args, kwargs)
            case Action.RESHAPE:
                return self._reshape(func, args, kwargs)
            case Action.DEPENDENT:
                super().__torch_dispatch__(func, (), args, kwargs)
                return self.record(func, args, kwargs)
            case Action.EFFECT:
                nodes = {name: self.node_of(value) for name, value in kwargs.items()}
                self.emit(func, tuple(map(self.node_of, args)), nodes, share=False)
                return None
            case Action.QUESTION:
                return super().__torch_dispatch__(func, (), args, kwargs)
            case Action.REFUSE:
                raise Untraceable(f"{func} changes a storage")

    def _notice_cut(self) -> None:
        if self.follows and not self.backward and not torch.is_grad_enabled():
            self.cut = True

    def _decomposed(self, func: Any, decomposition: Any, args: Any, kwargs: Any) -> Any:
        self.open.add(func)  # one that reaches its own op leaves that op as it is
        try:
            with self:
                result = decomposition(*args, **kwargs)
        finally:
            self.open.discard(func)
        if func._schema.is_mutable:
            lists.count_writes(func, args, kwargs)
        if isinstance(result, torch.Tensor) and not func.is_view:
            return self._with_strides_of(func, args, kwargs, result)
        return result

    def _with_strides_of(
        self, func: Any, args: Any, kwargs: Any, result: torch.Tensor
    ) -> torch.Tensor:
        """The result of a decomposition with the op's own strides of dimensions of size one: they tell how it is made."""
        if func._schema.is_mutable or (1 not in result.shape and 0 not in result.shape):
            return result
        wanted = infer(func, args, kwargs)
        if not isinstance(wanted, torch.Tensor) or wanted.stride() == result.stride():
            return result
        if wanted.shape != result.shape or not same_layout(
            result.shape, wanted.stride(), result.stride()
        ):
            return result
        view: torch.Tensor = self._view(
            aten.as_strided.default, (result, list(result.shape), list(wanted.stride())), _NO_KWARGS
        )
        return view

    def record(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], target: Any = None
    ) -> Any:
        """Record a pure call, perhaps under another target; its results are fresh fakes."""
        node_args = tuple([self.node_of(value) for value in args])
        node_kwargs = {name: self.node_of(v) for name, v in kwargs.items()} if kwargs else kwargs
        result = infer(func, args, kwargs)
        held = map_nested(hold, result)
        self.own(self.emit(target or func, node_args, node_kwargs, held), held)
        return result

    def own(self, node: Node, held: Any) -> None:
        """Register fresh results as new memories.

        What nodes and memories hold are tensor objects that the program never sees (`hold`): it may turn its
        own over in place (t_, squeeze_), long after other nodes were made of them.
        """
        if isinstance(held, torch.Tensor):
            self.aliasing.add(held, node)
        elif isinstance(held, tuple | list):
            for index, item in enumerate(held):
                if isinstance(item, torch.Tensor | tuple | list):
                    self.own(self.emit(operator.getitem, (node, index), _NO_KWARGS, item), item)

    def _view(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        base = args[0]
        # a number in a formula of torch, such as the conjugate of a factor
        if not isinstance(base, torch.Tensor):
            dtype = torch.complex128 if isinstance(base, complex) else torch.float64
            base = self.record(aten.scalar_tensor.default, (base,), {"dtype": dtype})
            args = (base, *args[1:])
        parent = self.region_of(base)
        result = func(*args, **kwargs)
        if func is aten.as_strided.default:  # it looks at the storage, whatever its argument
            self.absolute |= parent.memory.source == "input" and (
                len(args) > 3 or "storage_offset" in kwargs
            )
            if geometry_of(result) not in parent.memory.regions:
                made = (parent, ViewStep(func, args[1:], kwargs), parent.memory.version)
                self.region_of(result).origin = made
            return result
        results = result if isinstance(result, list | tuple) else (result,)
        for step, view in zip(steps_of(func, args, kwargs, len(results)), results, strict=True):
            self.aliasing.view(parent, step, view)
        return result

    def _write(
        self, func: Any, recipe: Recipe, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """An op that writes: record its functional twin, store the results."""
        if lists.is_of_lists(func):
            tensors = lists.tensors_of((args, kwargs))
            if lists.meet([self.region_of(t).memory for t in tensors]):
                with self:
                    return lists.write_one_by_one(func, args, kwargs)
        targets = [args[i] if i < len(args) else kwargs.get(name) for i, name in recipe.written]
        arguments = func._schema.arguments
        outs = {name for i, name in recipe.written if arguments[i].is_out}
        inputs = {k: v for k, v in kwargs.items() if k not in outs} if outs else kwargs
        twin = functional.twin_of(func, recipe, targets, eager_draws=self.eager_draws)
        args = functional.complete(func, twin, args, inputs)
        if isinstance(twin, Copied):
            results = self._record_copied(twin, args, kwargs, targets)
        elif twin in self.decompositions or functional.is_composite(twin):
            with self:
                results = twin(*args, **inputs)
        else:
            results = self.record(twin, args, inputs)
        values = list(results) if isinstance(results, tuple) else [results]
        fresh, stored = values[: recipe.pure_results], values[recipe.pure_results :]
        for target, value in zip(targets, stored, strict=True):
            self.store(target, value, outs=bool(outs))
        if lists.is_of_lists(func) or isinstance(twin, Copied):
            # eager's kernel writes by ops of its own, each of which counts
            for target in targets:
                if target is not None:
                    torch.autograd.graph.increment_version(target)
        described = func._schema.returns
        if not described:
            return None
        pure = iter(fresh)
        written = iter(targets)
        answer = [next(pure) if r.alias_info is None else next(written) for r in described]
        return answer[0] if len(answer) == 1 else tuple(answer)

    def _record_copied(
        self, twin: Copied, args: tuple[Any, ...], kwargs: dict[str, Any], targets: list[Any]
    ) -> Any:
        described = super().__torch_dispatch__(twin.op, (), args, kwargs)
        results = described if isinstance(described, tuple) else (described,)
        returns = twin.op._schema.returns
        fresh = [v for v, r in zip(results, returns, strict=False) if r.alias_info is None]
        copies = map_nested(fresh_like, targets)
        node_args = tuple([self.node_of(value) for value in args])
        node_kwargs = {name: self.node_of(value) for name, value in kwargs.items()}
        values = (*fresh, *copies)
        held = map_nested(hold, values)
        self.own(self.emit(twin, node_args, node_kwargs, held), held)
        return values

    def store(self, target: Any, value: Any, *, outs: bool = False) -> None:
        """Write the value of one fake (or list of fakes) into another."""
        if isinstance(target, list | tuple):
            for one, other in zip(target, value, strict=True):
                self.store(one, other, outs=outs)
        elif isinstance(target, torch.Tensor):
            if outs and target.shape != value.shape:
                raise Untraceable("out= with a tensor of another shape")
            self._check_writable(target, value)
            # `logical_or_` and the like leave a history as it is: the graph does not tell of it
            self.cut |= target.requires_grad and not (
                value.is_floating_point() or value.is_complex()
            )
            node = self.aliasing.read(self.region_of(value))
            self.aliasing.write(self.region_of(target), node)

    def _check_writable(self, target: torch.Tensor, value: torch.Tensor) -> None:
        region = self.region_of(target)
        if region.memory.source == "constant":
            raise Untraceable("a write to a tensor that is no input of the graph")
        if len(value.shape) > len(target.shape):
            raise RuntimeError(
                f"output with shape {list(target.shape)} doesn't match the broadcast shape {list(value.shape)}"
            )

    def _reshape(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """t_, squeeze_, ...: the tensor object moves to another region of its memory."""
        target = args[0]
        if any(target is given for given in self.given):
            raise Untraceable(f"{func} changes the geometry of an input")
        parent = self.region_of(target)
        result = func(*args, **kwargs)
        twin = _RESHAPES.get(func)
        if twin is not None:
            self.aliasing.view(parent, ViewStep(twin, args[1:], kwargs), target)
        else:
            self.region_of(target)
        return result

    # -- values ------------------------------------------------------------------------------

    def region_of(self, tensor: torch.Tensor) -> StorageView:
        """The region of a tensor; a tensor from outside the trace becomes a constant."""
        region = self.aliasing.find(tensor)
        if region is None:
            name = f"_tensor_constant{len(self.constants)}"
            held = self.constants[name] = tensor.detach()
            node = self.graph.create_node("get_attr", name, name=name)
            node.meta["val"] = held
            region = self.aliasing.add(held, node, "constant")
        return region

    def node_of(self, value: Any) -> Any:
        """The argument of a node for the argument of a call."""
        if isinstance(value, torch.Tensor):
            return self.aliasing.read(self.region_of(value))
        if isinstance(value, list | tuple):
            return [self.node_of(item) for item in value]
        return value

    def input(self, fake: Any, name: str) -> Node:
        """A placeholder; a tensor becomes a memory whose writes are seen by the caller."""
        if not isinstance(fake, torch.Tensor):
            return self.placeholder(fake, name)
        self.given.append(fake)
        node = self.placeholder(bare(fake.detach()), name)
        region = self.aliasing.add(node.meta["val"], node, "input")
        for step in bit_steps(fake):
            with torch._C._DisableTorchDispatch():
                region = self.aliasing.view(region, step, step.replay(region.fake))
        return node

    def placeholder(self, fake: Any, name: str) -> Node:
        """A placeholder after the ones made so far."""
        graph = self.graph
        before = (
            next(iter(graph.nodes), None)
            if self.last_placeholder is None
            else self.last_placeholder.next
        )
        point = graph.inserting_before(before) if before is not None else graph.inserting_after()
        with point:
            node = graph.create_node("placeholder", name, name=name)
        self.last_placeholder = node
        node.meta["val"] = fake
        return node

    # -- nodes -------------------------------------------------------------------------------

    def copy(self, node: Node, like: torch.Tensor) -> Node:
        """A copy of a value in memory of its own."""
        if dense_order(tuple(like.shape), like.stride()) is None:
            return self.aliasing.restride(node, like)
        return self.emit(aten.clone.default, (node,), share=False)

    def emit(
        self,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] = _NO_KWARGS,
        val: Any = None,
        *,
        share: bool = True,
    ) -> Node:
        """A node for a call on nodes; equal pure calls give the same node."""
        scope = 1 if self.backward and torch.is_grad_enabled() else 0
        key = self._key(func, args, kwargs, scope) if share else None
        known = self.seen.get(key) if key is not None else None
        if known is not None:
            return known
        if val is None:
            val = value_of(func, args, kwargs)
        name = name_of(func)
        node = add_node(self.graph, "call_function", func, args, kwargs, name)
        meta = node.meta
        meta["val"] = val
        meta["stack_trace"] = self.lines() if self.lines is not None else self.stack_trace
        if self.backward:
            meta["is_backward"] = True
        elif self.checkpoint is not None:
            meta["checkpoint"] = self.checkpoint
        if scope:
            meta["recompute"] = scope
        if key is not None:
            self.seen[key] = node
        return node

    def _key(self, func: Any, args: Any, kwargs: dict[str, Any], scope: int) -> Any:
        """Calls with equal keys have equal values; None for a call that is like no other."""
        if functional.is_random(func, args):
            # A draw is known by the state of the generator, which moves on as in eager: when
            # checkpoint puts back the state to run a region again, it gets the same draw.
            self.draws += 1
            state = torch.get_rng_state().numpy().tobytes()
            torch.rand(())
            return (func, state)
        try:
            key = (
                func,
                scope,
                *map(frozen, args),
                *((name, frozen(value)) for name, value in kwargs.items()),
            )
            hash(key)
        except TypeError:  # an argument that has no hash
            return None
        return key


# -- ops that need a word of their own ---------------------------------------------------------


def _copy(recorder: AtenRecorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """copy_: the value of the source, in the dtype, shape and strides of the target."""
    target, source = args[0], args[1]
    recorder._check_writable(target, source)
    aliasing = recorder.aliasing
    region = recorder.region_of(target)
    node = aliasing.read(recorder.region_of(source))
    fitted = aliasing.fit(node, target)
    if fitted.op != "call_function" or is_view(fitted):
        fitted = aliasing.restride(fitted, target)  # a memory's value starts at offset zero
    aliasing.write(region, fitted)
    return target


def _fill(recorder: AtenRecorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """zero_ and fill_ of a number: no need of the old value."""
    target = args[0]
    value = args[1] if len(args) > 1 else 0
    tail = {"dtype": target.dtype, "device": target.device}
    recorder._check_writable(target, target)
    node = recorder.emit(aten.full.default, (list(target.shape), value), tail)
    recorder.aliasing.write(recorder.region_of(target), node)
    return target


def _batch_norm(
    recorder: AtenRecorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """native_batch_norm updates the running statistics, although its schema does not say so."""
    mean, variance, training = args[3:6]
    if not training or mean is None:
        return recorder.record(func, args, kwargs)
    twin = aten._native_batch_norm_legit_functional.default
    *results, new_mean, new_variance = recorder.record(twin, args, kwargs)
    recorder.store(mean, new_mean)
    recorder.store(variance, new_variance)
    return tuple(results)


def _recurrent_layer(
    recorder: AtenRecorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    return recorder.record(
        func, args, kwargs, functional.recurrent_layer if torch.is_grad_enabled() else None
    )


def _unsafe_split(
    recorder: AtenRecorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Parts that torch lays over the whole without saying so: as views, whose memory the compilers keep."""
    twin = aten.split.Tensor if func is aten.unsafe_split.Tensor else aten.split_with_sizes.default
    return recorder.record(func, args, kwargs, twin)


# What an op that turns a tensor over in place is as a view.
_RESHAPES: Final = {
    aten.t_.default: aten.t.default,
    aten.transpose_.default: aten.transpose.int,
    aten.unsqueeze_.default: aten.unsqueeze.default,
    aten.squeeze_.default: aten.squeeze.default,
    aten.squeeze_.dim: aten.squeeze.dim,
    aten.squeeze_.dims: aten.squeeze.dims,
}
_SPECIAL: Final[dict[Any, Callable[..., Any]]] = {
    aten.copy_.default: _copy,
    **dict.fromkeys((aten.zero_.default, aten.fill_.Scalar), _fill),
    # torch.tensor(...): data known now; the graph may write to a copy of it
    aten.lift_fresh.default: lambda recorder, _, args, __: recorder.record(
        aten.clone.default, args, _NO_KWARGS
    ),
    aten._efficientzerotensor.default: zero_tensors.make,
    aten.native_batch_norm.default: _batch_norm,
    aten.mkldnn_rnn_layer.default: _recurrent_layer,
    **dict.fromkeys(
        (aten.unsafe_split.Tensor, aten.unsafe_split_with_sizes.default), _unsafe_split
    ),
}
