"""packages: a compiled model as one file, for processes that do not have its source.

In: a model and example inputs. Out: a file with the captured program, its compiled form, how arguments become
graph inputs and graph outputs become results, and the weights (or their names, when they lie beside it as
safetensors). Sizes that were marked are expressions, with all that the program relies on. Where the file meets
another machine or other versions, or sizes its compiled form is not for, the program is compiled again.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from torch.utils import _pytree as pytree

from argand.backends.argand_backend import compile_graph, restore
from argand.native.bundles import load_cache_artifacts, save_cache_artifacts
from argand.protocol import Backend, CompiledGraph, GraphContext, OpenSizes
from argand.runtime.disk.format import Damaged, decode, encode
from argand.runtime.disk.graphs import GraphWriter, opened, read_graph, spec_of, write_graph
from argand.runtime.disk.keys import about, environment, read_about
from argand.runtime.disk.values import Unstorable, Writer, sections_of
from argand.runtime.disk.values import load as load_values
from argand.sizes.expressions import Expr, SizeInt, Symbol
from argand.sizes.facts import Fact
from argand.sizes.marks import read_marks
from argand.sizes.refusals import Refusal
from argand.sizes.table import SizeTable
from argand.sizes.view import GraphSizes
from argand.support.errors import UserError
from argand.support.options import Options, make_options


class Leaf(NamedTuple):
    """Place of a tensor among the arguments, or among the outputs of the graph."""

    number: int


class Weight(NamedTuple):
    """A graph input that is no argument: a parameter, a buffer, or a tensor the program closed over."""

    name: str


class _ReturnedSize(int):
    """A size that the graph returns."""


_RECORDS: Final = (Leaf, Weight)


def package(
    model: Callable[..., Any],
    example_inputs: Sequence[Any],
    path: str | Path,
    *,
    kwargs: Mapping[str, Any] | None = None,
    safetensors: bool = False,
    key: bytes = b"",
) -> None:
    """Compile a model for inference and write it to one file.

    Arguments and results may be nested tuples, lists and dicts of tensors and plain values. Sizes marked with
    ``mark_dynamic`` stay open within their bounds. With ``safetensors`` the weights go to ``path`` + ".safetensors". With
    ``key`` only its holders can make or change the file. Fails with ``CaptureError`` when the model is not one graph,
    with ``UserError`` when something cannot be stored, or a marked size is fixed by the model.
    """
    arguments = (tuple(example_inputs), dict(sorted((kwargs or {}).items())))
    with tempfile.TemporaryDirectory() as scratch, torch.no_grad():
        (gm, table, sizes, key_on_disk, inputs, outputs), result = _capture(
            model, arguments, scratch
        )
        bundle = save_cache_artifacts(directory=Path(scratch))
    leaves = pytree.tree_leaves(arguments)
    shown = [node.meta["example_value"] for node in gm.graph.nodes if node.op == "placeholder"]
    sources, weights = _sources(model, leaves, inputs, shown)
    shape = _with_leaves(result, inputs, outputs, table is not None)
    _check_apart(leaves)
    fakes = {id(value): fake for value, fake in zip(inputs, shown, strict=True)}
    wanted = _replace(
        arguments,
        lambda x: _wanted(x, fakes.get(id(x)), table) if isinstance(x, torch.Tensor) else x,
    )
    _check_marked_sizes(leaves, pytree.tree_leaves(wanted, is_leaf=_is_spec), table)
    writer = Writer(_RECORDS)
    writer.limit = 1 << 62
    try:
        data = writer.write(
            (key_on_disk, wanted, sources, shape, {} if safetensors else weights, sizes)
        )
        program = json.dumps(write_graph(gm, GraphWriter(), table, values=False)).encode()
    except Unstorable as reason:
        raise UserError(f"this model cannot be packaged: {reason}") from None
    if safetensors:
        _safetensors().save_file(
            {name: w.contiguous() for name, w in weights.items()}, _beside(path)
        )
    sections = {"about": about("package", environment()), "program": program, "bundle": bundle}
    Path(path).write_bytes(encode(sections | sections_of(writer, data), key))


def _with_leaves(
    result: Any, inputs: Sequence[Any], outputs: Sequence[Any], has_open_sizes: bool
) -> Any:
    """The result of a model with the places of its tensors, among outputs and inputs, in place of them."""
    produced = {id(value): Leaf(number) for number, value in enumerate(outputs)}
    produced |= {id(x): Leaf(-1 - n) for n, x in enumerate(inputs) if isinstance(x, torch.Tensor)}

    def place(value: Any) -> Any:
        if type(value) is torch.Size and has_open_sizes:
            raise UserError(
                "this model cannot be packaged with open sizes: a result is a shape (make it a tuple)"
            )
        if not isinstance(value, torch.Tensor | _ReturnedSize):
            return value
        if id(value) not in produced:
            raise UserError(
                "this model cannot be packaged: a result is neither computed by it nor one of its inputs"
            )
        return produced[id(value)]

    return _replace(result, place)


def load(path: str | Path, *, key: bytes = b"") -> Callable[..., Any]:
    """The callable of a package. It holds code that will run: load only what you trust, or a key vouches for."""
    try:
        sections = decode(Path(path).read_bytes(), key)
        same = read_about(sections)["parts"] == environment()
        key_on_disk, wanted, sources, shape, weights, sizes = load_values(sections, _RECORDS)
    except Damaged as error:
        raise UserError(f"{path} cannot be used: {error}") from None
    weights = weights or (
        _safetensors().load_file(_beside(path)) if Path(_beside(path)).exists() else {}
    )
    run = None
    if same and key_on_disk:
        with tempfile.TemporaryDirectory() as scratch:
            load_cache_artifacts(sections["bundle"], directory=Path(scratch))
            found = restore(key_on_disk, Options(cache_dir=scratch))
            run = found and found.takes_inputs
    fixed = {name: weight.detach() for name, weight in weights.items()}
    return _Loaded(
        program=sections["program"],
        run=run,
        wanted=wanted,
        sources=sources,
        shape=shape,
        weights=fixed,
        sizes=sizes,
    )


class _Loaded:
    """A packaged model."""

    def __init__(
        self,
        program: bytes,
        run: Any,
        wanted: Any,
        sources: Any,
        shape: Any,
        weights: Any,
        sizes: Any,
    ) -> None:
        self._program, self._sources, self._shape, self.weights = program, sources, shape, weights
        self._state: Any = sizes and sizes[0]
        facts = sizes[1] if sizes else []
        self._relied = SizeTable.restored(*self._state).relied if sizes else []
        # what each is for
        self._runs = [] if run is None else [([Fact(*row) for row in facts], run)]
        self._wanted, self._structure = pytree.tree_flatten(wanted, is_leaf=lambda x: _is_spec(x))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model on arguments like the example's."""
        leaves, structure = pytree.tree_flatten((args, dict(sorted(kwargs.items()))))
        if structure != self._structure:
            raise UserError(f"arguments must be nested like the example's: {self._structure}")
        _check_apart(leaves)
        sizes = _sizes_of(
            leaves,
            self._wanted,
            {symbol: -1 for symbol, *_ in self._state[0]} if self._state else {},
        )
        rows = enumerate(zip(leaves, self._wanted, strict=True))
        given = [_fit(n, value, spec, sizes) for n, (value, spec) in rows]
        _check_sizes(sizes, self._relied)
        inputs = [self._input(source, given, sizes) for source in self._sources]
        with torch.no_grad():
            fitting = (
                known for facts, known in self._runs if all(fact.holds(sizes) for fact in facts)
            )
            run = next(fitting, None) or self._compile(inputs, sizes)
            outputs = run(*inputs)

        def value(leaf: Any) -> Any:
            if not isinstance(leaf, Leaf):
                return leaf
            return outputs[leaf.number] if leaf.number >= 0 else inputs[-1 - leaf.number]

        return _replace(self._shape, value)

    def _compile(self, inputs: list[Any], sizes: Mapping[Symbol, int]) -> Any:
        """The program compiled here, for sizes like these."""
        graph_sizes = None
        if self._state is not None:
            table = SizeTable.restored(*self._state)
            table.reals.update(sizes)
            graph_sizes = GraphSizes(table)
        gm = read_graph(json.loads(self._program), b"", graph_sizes, values=False)
        run: Any = gm.forward
        compiled = compile_graph(gm, inputs, GraphContext(graph_sizes), make_options())
        if isinstance(compiled, CompiledGraph):
            run, facts = compiled.takes_inputs, list(compiled.facts)
        else:  # too late to capture anew: torch runs the graph
            facts = [Fact("==", Expr.of(symbol), Expr.of(size)) for symbol, size in sizes.items()]
        self._runs.append((facts, run))
        return run

    def _input(self, source: Any, given: list[Any], sizes: Mapping[Symbol, int]) -> Any:
        if isinstance(source, Leaf):
            return given[source.number]
        if isinstance(source, Expr):
            return source.evaluate(sizes)
        return self.weights[source.name] if isinstance(source, Weight) else source


def _sources(
    model: Any, leaves: Sequence[Any], inputs: Sequence[Any], shown: Sequence[Any]
) -> tuple[list[Any], dict[str, torch.Tensor]]:
    """(where each input of the graph comes from, the weights by name)."""
    places = {
        id(leaf): Leaf(number)
        for number, leaf in enumerate(leaves)
        if isinstance(leaf, torch.Tensor)
    }
    names: dict[int, str] = {}
    if isinstance(model, torch.nn.Module):
        names = {
            id(tensor): name for name, tensor in (*model.named_parameters(), *model.named_buffers())
        }
    weights: dict[str, torch.Tensor] = {}

    def source(number: int, value: Any) -> Any:
        if id(value) in places:
            return places[id(value)]
        if not isinstance(value, torch.Tensor):
            return shown[number].expr if isinstance(shown[number], SizeInt) else value
        name = names.get(id(value), f"constant.{number}")
        weights[name] = value.detach()
        return Weight(name)

    return [source(number, value) for number, value in enumerate(inputs)], weights


def _capture(
    model: Callable[..., Any], arguments: tuple[Any, Any], directory: str
) -> tuple[Any, Any]:
    """((graph, its open sizes, these as data, key of its compiled form, its inputs, its outputs), the model's result) of one run."""
    from argand.pipeline import compile  # noqa: PLC0415  # loading a package needs no capture

    seen: list[Any] = []

    def record(gm: Any, inputs: Sequence[Any], context: GraphContext) -> CompiledGraph | Refusal:
        table = context.sizes
        state = None if table is None else table.state()
        compiled = compile_graph(gm, inputs, context, make_options(None, {"cache_dir": directory}))
        if not isinstance(compiled, CompiledGraph):
            return compiled
        key, facts = (
            compiled.key,
            [(fact.operator, fact.left, fact.right) for fact in compiled.facts],
        )

        def run(*values: Any) -> Any:
            results = [x if isinstance(x, torch.Tensor) else _ReturnedSize(x) for x in gm(*values)]
            seen[:] = [
                gm,
                table,
                state and (state, facts),
                key if isinstance(key, str) else "",
                list(values),
                results,
            ]
            return results

        return CompiledGraph(run, facts=compiled.facts)

    backend = Backend(
        name="package", compile=record, open_sizes=OpenSizes.ALWAYS, returns_sizes=True
    )
    result = compile(model, fullgraph=True, backend=backend)(*arguments[0], **arguments[1])
    if not seen:
        raise UserError("this model has no tensor work to package")
    return seen, result


def _check_apart(leaves: Sequence[Any]) -> None:
    """The graph was captured for arguments that share no memory."""
    storages = [leaf.untyped_storage()._cdata for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if len(set(storages)) != len(storages):
        raise UserError("arguments of a packaged model must not share memory")


def _replace(value: Any, leaf: Callable[[Any], Any]) -> Any:
    if type(value) in (tuple, list):
        return type(value)(_replace(item, leaf) for item in value)
    if type(value) is dict:
        return {name: _replace(item, leaf) for name, item in value.items()}
    return leaf(value)


def _is_spec(value: Any) -> bool:
    return (
        type(value) is tuple
        and len(value) == 3
        and type(value[2]) is str
        and value[2].startswith("torch.")
    )


def _wanted(value: torch.Tensor, shown: torch.Tensor | None, table: Any) -> tuple[Any, ...]:
    """(sizes, strides, type) that an argument must have."""
    _, shape, strides, dtype, *_ = spec_of(value)
    if shown is not None and table is not None:
        both = opened(value, shown, table)
        shape, strides = ([n if type(n) is int else Expr.of(n) for n in row] for row in both)
    return shape, strides, dtype


def _sizes_of(
    leaves: Sequence[Any], wanted: Sequence[Any], found: dict[Symbol, int]
) -> dict[Symbol, int]:
    """The open sizes of a call, from the dimensions that are a number times one of them."""
    for value, spec in zip(leaves, wanted, strict=True):
        if _is_spec(spec) and isinstance(value, torch.Tensor):
            for size, expr in zip(value.shape, spec[0], strict=False):
                if isinstance(expr, Expr) and len(expr.terms) == 1 and len(expr.terms[0][0]) == 1:
                    ((symbol,), times), *_ = expr.terms
                    if isinstance(symbol, Symbol):
                        found[symbol] = size // times
    return found


def _check_marked_sizes(leaves: Sequence[Any], wanted: Sequence[Any], table: Any) -> None:
    """All sizes that were marked are open, and can be read from the arguments."""
    for number, leaf in enumerate(leaves):
        marks = read_marks(leaf)
        if any(mark.kind == "dynamic" and leaf.shape[dim] < 2 for dim, mark in marks.items()):
            raise UserError(
                f"argument {number} has a size marked dynamic that is {min(leaf.shape)} in the example, not 2 or more"
            )
    missing = table.samples.keys() - _sizes_of(leaves, wanted, {}) if table is not None else ()
    if missing:
        raise UserError(
            f"no tensor that the model computes with tells the size {', '.join(map(str, missing))}"
        )


def _check_sizes(sizes: Mapping[Symbol, int], facts: Sequence[Fact]) -> None:
    for symbol, size in sizes.items():
        if size < symbol.minimum or size > (symbol.maximum or size):
            limits = f"at least {symbol.minimum}" + (
                f" and at most {symbol.maximum}" if symbol.maximum else ""
            )
            raise UserError(f"the size {symbol} is {size}, but the model was packaged for {limits}")
    broken = [str(fact) for fact in facts if not fact.holds(sizes)]
    if broken:
        values = ", ".join(f"{symbol} = {size}" for symbol, size in sizes.items())
        raise UserError(
            f"the model was packaged for sizes with {', '.join(broken)}, not for {values}"
        )


def _fit(number: int, value: Any, spec: Any, sizes: Mapping[Symbol, int]) -> Any:
    """An argument as the graph wants it."""
    if not _is_spec(spec):
        if value != spec:
            raise UserError(f"argument {number} was {spec!r} when the model was packaged")
        return value
    *layout, dtype = spec
    shape, strides = ([Expr.of(n).evaluate(sizes) for n in row] for row in layout)
    if not isinstance(value, torch.Tensor) or (list(value.shape), str(value.dtype)) != (
        shape,
        dtype,
    ):
        raise UserError(f"argument {number} must be a tensor of {dtype} {layout[0]}")
    if list(value.stride()) == strides:
        return value
    end = 0  # elements a copy in these strides would take, of the dimensions so far
    for stride, size in sorted(
        (stride, size) for stride, size in zip(strides, shape, strict=True) if size > 1
    ):
        if stride < end:
            raise UserError(f"argument {number} must have the strides {layout[1]}")
        end = stride * size
    return torch.empty_strided(shape, strides, dtype=value.dtype).copy_(value)


def _beside(path: str | Path) -> str:
    return f"{path}.safetensors"


def _safetensors() -> Any:
    try:
        import safetensors.torch  # noqa: PLC0415  # optional
    except ImportError:
        raise UserError("the safetensors package is needed for weights beside the file") from None
    return safetensors.torch
