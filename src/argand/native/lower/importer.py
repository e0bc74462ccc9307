"""native.lower.importer: an aten graph (torch.fx) becomes tensor IR.

In: a functional graph whose nodes have ``meta["val"]``. Out: ``Graph``. An op without a row, or with
arguments its row does not cover, becomes a call of torch's kernel; nothing is refused.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final, final

import torch
import torch.fx
from torch._ops import OpOverload

from argand.native.control_flow import CompileBody, Laid, arguments_of
from argand.native.convolution import (
    NO_LAYOUTS,
    Fused,
    channels_last,
    operands_of,
    pack_convolutions,
)
from argand.native.ir.builder import Builder
from argand.native.ir.convolve import Convolve
from argand.native.ir.tensor import (
    Baked,
    ExternCall,
    Graph,
    Node,
    Output,
    TensorArgument,
    TensorMeta,
)
from argand.native.ir.types import FROM_TORCH, DType, contiguous_strides
from argand.native.lower.context import LoweringContext, NotLowered
from argand.native.lower.slots import find_slots
from argand.native.lower.table import TABLE
from argand.ops.control_flow import RESULTS
from argand.ops.copied import map_nested
from argand.ops.rows import draws, may_raise
from argand.protocol import PLAIN, GraphContext
from argand.runtime.convolution import PackedConvolution
from argand.sizes.expressions import Expr, SizeInt, Symbol
from argand.sizes.floats import OpenFloat
from argand.sizes.refusals import fixing
from argand.sizes.view import GraphSizes
from argand.support import events
from argand.support.options import Options
from argand.support.switches import is_off

_NO_SIZE: Final = -(1 << 40)


def spec_of(
    value: Any, express: Callable[[Sequence[int]], tuple[int, ...]] = tuple
) -> TensorMeta | None:
    """Metadata of a fake or real tensor; None for anything else."""
    if not isinstance(value, torch.Tensor):
        return None
    plain = value.layout is torch.strided and value.device.type in ("cpu", "cuda")
    dtype = FROM_TORCH.get(value.dtype) if plain else None
    return TensorMeta(express(value.shape), express(value.stride()), value.dtype, dtype)


def import_graph(
    module: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    options: Options,
    context: GraphContext = PLAIN,
    compile_body: CompileBody | None = None,
    *,
    packs: bool = True,
) -> Graph:
    """Lower every node of the graph; ``compile_body``: what compiles the graphs inside; ``packs``: convolutions may be ours."""
    return _Importer(module, context, options, compile_body, packs).run(list(example_inputs))


def _expressed_by(sizes: GraphSizes | None) -> Callable[[Sequence[int]], tuple[int, ...]]:
    """What turns the sizes of a fake into expressions; without open sizes they stay as they are."""
    if sizes is None:
        return tuple
    known = functools.cache(sizes.express)

    def express(given: Sequence[int]) -> tuple[int, ...]:
        return tuple(map(known, given))

    return express


@final
class _Importer:
    def __init__(
        self,
        module: torch.fx.GraphModule,
        context: GraphContext,
        options: Options,
        compile_body: CompileBody | None,
        packs: bool,
    ) -> None:
        self.module, self.context = module, context
        self.options, self.compile_body = options, compile_body
        self.express = _expressed_by(context.sizes)
        packs = packs and not is_off(options, "convolutions")
        self.packed = (
            pack_convolutions(module, context.sizes, context.steady) if packs else NO_LAYOUTS
        )
        self.slots = find_slots(module, () if is_off(options, "writes") else context.writes)
        self.build = Builder()
        self.values: dict[torch.fx.Node, Any] = {}
        self.effects: list[Node] = []
        self.memory: dict[torch.fx.Node, int] = {}  # which tensor a value is a view of
        self.layouts: dict[Node, tuple[int, ...]] = {}

    def run(self, example_inputs: list[Any]) -> Graph:
        inputs: list[TensorMeta | int | None] = []
        outputs: tuple[Any, ...] = ()
        for node in self.module.graph.nodes:
            self.build.trace = node.meta.get("stack_trace") or ""
            if node.op == "placeholder":
                spec = spec_of(node.meta.get("val", None), self.express)
                if spec is None and len(inputs) < len(example_inputs):
                    spec = spec_of(example_inputs[len(inputs)])
                self.values[node] = self._leaf("input", len(inputs), spec, node.meta.get("val"))
                value = node.meta.get("val")
                if isinstance(value, OpenFloat):
                    value = self._float(node, len(inputs))
                inputs.append(value if isinstance(value, SizeInt) else spec)
                self.memory[node] = -len(inputs)
            elif node.op == "get_attr":
                self.values[node] = self._attribute(node)
            elif node.op == "output":
                outputs = self._outputs(node.args[0])
            elif node not in self.packed.skipped:
                self.values[node] = self._call(node)
            if node not in self.memory:
                self.memory[node] = self._memory_of(node)
        return Graph.of(tuple(inputs), outputs, tuple(self.effects), self.layouts)

    def _float(self, node: torch.fx.Node, position: int) -> SizeInt:
        """A float that is an input: a number of the plan that is its bits, with a sample no size has."""
        bits = SizeInt(_NO_SIZE - position, Expr.of(Symbol(f"f{position}")))
        whole = self.build.constant(bits, DType.I64)
        self.values[node] = self.build.node("float_of_bits", (whole,), (), DType.F64)
        return bits

    def _value(self, node: torch.fx.Node) -> Any:
        """The fake of a node, in the layout it will have."""
        found = self.packed.values.get(node)
        return node.meta.get("val") if found is None else found

    def _memory_of(self, node: torch.fx.Node) -> int:
        if _is_view(node) and isinstance(node.args[0], torch.fx.Node):
            return self.memory[node.args[0]]
        return len(self.memory)

    def _leaf(self, op: str, attribute: Any, spec: TensorMeta | None, value: Any) -> Any:
        if spec is None:
            return value
        return self.build.node(op, (), spec.shape, spec.dtype, attribute)

    def _attribute(self, node: torch.fx.Node) -> Any:
        value: Any = self.module
        for part in str(node.target).split("."):
            value = getattr(value, part)
        if not isinstance(value, torch.Tensor):
            return value
        node.meta.setdefault("val", value)
        spec = spec_of(value)
        return self._leaf("tensor", Baked(value.detach(), tuple(value.stride())), spec, value)

    def _outputs(self, results: Any) -> tuple[Any, ...]:
        listed = results if isinstance(results, list | tuple) else (results,)
        outputs: list[Any] = []
        into = () if is_off(self.options, "writes") else self.context.writes
        for position, result in enumerate(listed):
            value = self.values[result] if isinstance(result, torch.fx.Node) else result
            if isinstance(value, Node) and isinstance(result.meta["val"], OpenFloat):
                outputs.append(None)  # kept for the backward: autograd has it from the call
            elif isinstance(value, Node):
                slot = result in self.slots  # it has the memory of the input, gaps and all
                spec = spec_of((result.args[0] if slot else result).meta["val"], self.express)
                assert spec is not None
                target = into[position] if position < len(into) else -1
                outputs.append(Output(value, spec, self.memory[result], target, _is_view(result)))
            else:
                outputs.append(value)
        return tuple(outputs)

    def _call(self, node: torch.fx.Node) -> Any:
        if node.target is operator.getitem:
            return self.values[node.args[0]][node.args[1]]
        result = self._value(node)
        if isinstance(result, SizeInt):
            return result
        if node in self.packed.calls:
            return self._convolve(result, *self.packed.calls[node])
        if node.target in RESULTS:
            return self._flow(node, result)
        if node in self.slots:
            return self._extern(node, self._value(node.args[0]), self.slots[node])
        args: Any = torch.fx.node.map_arg(node.args, self.values.__getitem__)
        if node.target is operator.truediv:  # a number over a size
            return self.build.pointwise(
                "div", *(self.build.constant(side, DType.F64) for side in args)
            )
        kwargs = torch.fx.node.map_arg(node.kwargs, self.values.__getitem__)
        row = (
            None
            if _only_checks(node) or self._is_left_to_torch(node)
            else TABLE.get(str(node.target))
        )
        if row is not None and self._plain(args, kwargs, result):
            fakes = tuple(self._value(a) if isinstance(a, torch.fx.Node) else a for a in node.args)
            events.record("lowered", lambda: {"node": node.name, "op": str(node.target)})
            try:
                context = LoweringContext(
                    self.build, result, fakes, self.options, express=self.express
                )
                lowered = row(context, *args, **kwargs)
                events.count("native.lowered")
                return self._typed(lowered, result)
            except NotLowered:
                events.count("native.not_lowered", detail=str(node.target))
        return self._extern(node, result)

    def _is_left_to_torch(self, node: torch.fx.Node) -> bool:
        return is_off(self.options, "lowering", str(node.target)) or is_off(
            self.options, "node", node.name
        )

    def _why(self, node: torch.fx.Node, result: Any) -> str:
        """Why an operator is torch's: a key of the report's table of reasons."""
        if _only_checks(node):
            return "checks"
        if str(node.target) not in TABLE:
            return "no row"
        args: Any = torch.fx.node.map_arg((node.args, node.kwargs), self.values.__getitem__)
        return "arguments" if self._plain(args[0], args[1], result) else "types"

    def _plain(self, args: Any, kwargs: Any, result: Any) -> bool:
        """Whether all tensors of the call are of types we compute with."""
        known = True

        def check(value: Any) -> None:
            nonlocal known
            if isinstance(value, Node):
                known = known and value.dtype is not None
            elif isinstance(value, list | tuple):
                for item in value:
                    check(item)
            elif isinstance(value, torch.Tensor):
                known = False  # a tensor inside the graph's arguments: torch handles it

        check(args)
        check(tuple(kwargs.values()))
        results = result if isinstance(result, list | tuple) else (result,)
        specs = [spec_of(r) for r in results]
        return known and all(s is None or s.dtype is not None for s in specs)

    def _typed(self, lowered: Any, result: Any) -> Any:
        """Results in the types and shapes eager gives them."""
        if isinstance(lowered, tuple):
            return tuple(
                self._typed(item, value) for item, value in zip(lowered, result, strict=True)
            )
        if not isinstance(lowered, Node):
            if isinstance(result, torch.Tensor):
                return self.build.constant(0, FROM_TORCH[result.dtype], self.express(result.shape))
            return lowered
        node = self.build.cast(lowered, FROM_TORCH[result.dtype])
        shape = self.express(result.shape)
        if node.shape != shape and len(node.shape) <= len(shape):
            node = self.build.expand(node, shape)
        self.layouts.setdefault(node, self.express(result.stride()))
        return node

    def _convolve(self, result: Any, target: PackedConvolution | Convolve, fused: Fused) -> Node:
        """A packed convolution: the numbers per channel that follow it become one scale and one bias."""
        build, (x, weight, bias) = self.build, operands_of(fused.convolution)
        scale: Node | None = None
        shift: Node | None = self.values.get(bias)
        for step in fused.affine:
            (other,) = (self.values[n] for n in step.all_input_nodes if n in self.values)
            number, name = build.reshape(other, self.express(result.shape[1:2])), _name(step)
            if name == "mul":
                scale = number if scale is None else build.pointwise("mul", scale, number)
            if shift is not None:
                shift = build.pointwise(name, shift, number)
            elif name != "mul":
                shift = number if name == "add" else build.pointwise("neg", number)
        image = self._value(x)
        # its operands and results are channels last whoever reads them
        if isinstance(target, Convolve):
            image, result = channels_last(image), channels_last(result)
        operands = (
            (self.values[x], image.stride()),
            (self.values[weight], self._value(weight).stride()),
            (shift, (1,)),
            (scale, (1,)),
            (self.values.get(fused.residual), result.stride()),
        )
        given = [(value, self.express(strides)) for value, strides in operands if value is not None]
        slots = iter(range(len(given)))
        args = tuple(
            None if value is None else TensorArgument(next(slots)) for value, _ in operands
        )
        inputs, layouts = zip(*given, strict=True)
        spec = spec_of(result, self.express)
        assert spec is not None
        call = ExternCall(
            target=target,
            args=args,
            kwargs={},
            layouts=layouts,
            outputs=(spec,),
            single=True,
            writes=False,
        )
        events.count("native.extern", detail="convolution")
        own = isinstance(target, Convolve)
        events.record(
            "extern",
            lambda: {
                "op": "convolution",
                "origin": self.build.trace,
                "why": "own" if own else "torch",
            },
        )
        return build.node(
            "item", (build.node("extern", inputs, (), None, call),), spec.shape, spec.dtype, 0
        )

    def _flow(self, node: torch.fx.Node, result: Any) -> Any:
        """A condition or a loop: one step over compiled bodies, or torch's operator."""
        found = (
            None
            if self.compile_body is None
            else arguments_of(node, self.values, self.compile_body)
        )
        if found is None:
            return self._extern(node, result)
        return self._extern(node, result, found.flow, (found.condition, *found.operands))

    def _extern(
        self, node: torch.fx.Node, result: Any, target: Any = None, given: Any = None
    ) -> Any:
        """A call of torch's kernel, or of another target with other arguments."""
        inputs: list[Node] = []
        layouts: list[tuple[int, ...]] = []

        def place(argument: Any) -> Any:
            laid = argument.strides if isinstance(argument, Laid) else None
            argument = argument.source if isinstance(argument, Laid) else argument
            if isinstance(argument, torch.fx.Node):
                value = self.values[argument]
                if not isinstance(value, Node):
                    return value
                inputs.append(value)
                fake = self._value(argument)
                if isinstance(fake, float):
                    sizes = self.context.sizes
                    every = frozenset(sizes.samples) if sizes else frozenset()
                    symbols = fake.symbols if isinstance(fake, OpenFloat) else every
                    raise fixing(symbols, f"{node.target} of a number known only at run time")
                strides = laid or (fake.stride() if isinstance(fake, torch.Tensor) else ())
                layouts.append(self.express(strides) or contiguous_strides(value.shape))
                return TensorArgument(len(inputs) - 1)
            return argument

        args = tuple(map_nested(place, a) for a in (node.args if given is None else given))
        kwargs = {k: map_nested(place, a) for k, a in node.kwargs.items()}
        single = not isinstance(result, list | tuple)
        results = (result,) if single else tuple(result)
        specs = tuple(spec_of(r, self.express) for r in results)
        slot = node in self.slots
        call = ExternCall(
            target=target or node.target,
            args=args,
            kwargs=kwargs,
            layouts=tuple(layouts),
            outputs=specs,
            single=single,
            writes=_writes(node.target),
            raises=isinstance(node.target, OpOverload) and may_raise(node.target, result),
            in_place=slot,
        )
        extern = self.build.node("extern", tuple(inputs), (), None, call)
        if _has_effect(node) or _only_checks(node):
            self.effects.append(extern)
        self._tell(node, result, str(target) if slot else None)
        items = tuple(
            None if spec is None else self.build.node("item", (extern,), spec.shape, spec.dtype, k)
            for k, spec in enumerate(specs)
        )
        return items[0] if single else items

    def _tell(self, node: torch.fx.Node, result: Any, slot: str | None) -> None:
        """Events of a call of torch's kernel; ``slot``: the target that writes its result in place."""
        if slot is not None:
            events.count("native.slots", detail=slot)
        events.count("native.extern", detail=str(node.target))
        events.record(
            "extern",
            lambda: {
                "op": str(node.target),
                "origin": self.build.trace,
                "why": self._why(node, result),
            },
        )


def _is_view(node: torch.fx.Node) -> bool:
    """Whether a value lies in the memory of the one it was made of."""
    target = node.target
    return target is operator.getitem or (
        isinstance(target, torch._ops.OpOverload) and target.is_view
    )


def _is_scalar(node: torch.fx.Node, value: torch.Tensor) -> bool:
    """A number on the CPU, which torch takes beside tensors of any device."""
    return node.op == "placeholder" and value.dim() == 0 and value.device.type == "cpu"


def _name(node: torch.fx.Node) -> str:
    return str(node.target).split(".")[1]


def _has_effect(node: torch.fx.Node) -> bool:
    """Ops that draw random numbers, write to an argument or give nothing back keep their order and always run."""
    if not isinstance(node.target, OpOverload):
        return True
    return (
        draws(node.target, node.args, node.kwargs)
        or _writes(node.target)
        or not node.target._schema.returns
    )


def _only_checks(node: torch.fx.Node) -> bool:
    """Whether nobody reads a result and the op may raise: torch's kernel then looks at all of its arguments."""
    return (
        not node.users
        and isinstance(node.target, OpOverload)
        and may_raise(node.target, node.meta.get("val"))
    )


def _writes(target: Any) -> bool:
    return isinstance(target, OpOverload) and bool(target._schema.is_mutable)


def is_functional(module: torch.fx.GraphModule, device: str = "cpu") -> bool:
    """Whether nothing but inputs of the graph is written to, and all tensors are dense on one device."""
    for node in module.graph.nodes:
        value = node.meta.get("val")
        if node.op == "call_function" and node.users and value is None:
            return False  # nothing is known about a result somebody uses
        if isinstance(value, torch.Tensor) and (
            value.layout is not torch.strided
            or not (value.device.type in (device, "meta") or _is_scalar(node, value))
        ):
            return False
    return all(
        isinstance(node.args[0], torch.fx.Node) and node.args[0].op == "placeholder"
        for node in module.graph.nodes
        if node.op == "call_function" and _writes(node.target)
    )
