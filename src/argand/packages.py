"""packages: a compiled model as one file, for processes that do not have its source.

In: a model and example inputs. Out: a file with the captured program, its compiled form, how arguments become
graph inputs and graph outputs become results, and the weights (or their names, when they lie beside it as
safetensors). Where the file meets another machine or other versions, the program is compiled again.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from torch.utils import _pytree as pytree

from argand.backends.stored import restore
from argand.native.bundles import load_cache_artifacts, save_cache_artifacts
from argand.runtime.disk.format import Damaged, decode, encode
from argand.runtime.disk.graphs import GraphWriter, read_graph, spec_of, write_graph
from argand.runtime.disk.keys import about, environment, read_about
from argand.runtime.disk.values import Unstorable, Writer, sections_of
from argand.runtime.disk.values import load as load_values
from argand.support.errors import UserError
from argand.support.options import Options


class Leaf(NamedTuple):
    """Place of a tensor among the arguments, or among the outputs of the graph."""

    number: int


class Weight(NamedTuple):
    """A graph input that is no argument: a parameter, a buffer, or a tensor the program closed over."""

    name: str


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

    Arguments and results may be nested tuples, lists and dicts of tensors and plain values. With ``safetensors``
    the weights go to ``path`` + ".safetensors". With ``key`` only its holders can make or change the file. Fails
    with ``CaptureError`` when the model is not one graph, with ``UserError`` when something cannot be stored.
    """
    arguments = (tuple(example_inputs), dict(sorted((kwargs or {}).items())))
    with tempfile.TemporaryDirectory() as scratch, torch.no_grad():
        gm, inputs, outputs, result = _capture(model, arguments)
        stored_key = getattr(_compile(gm, inputs, {"cache_dir": scratch}), "stored_key", "")
        bundle = save_cache_artifacts(directory=Path(scratch))
    names: dict[int, str] = {}
    if isinstance(model, torch.nn.Module):
        names = {id(tensor): name for name, tensor in (*model.named_parameters(), *model.named_buffers())}
    leaves = pytree.tree_leaves(arguments)
    places = {id(leaf): number for number, leaf in enumerate(leaves)}
    weights: dict[str, torch.Tensor] = {}

    def source(number: int, value: Any) -> Any:
        if id(value) in places:
            return Leaf(places[id(value)])
        if not isinstance(value, torch.Tensor):
            return value
        name = names.get(id(value), f"constant.{number}")
        weights[name] = value.detach()
        return Weight(name)

    sources = [source(number, value) for number, value in enumerate(inputs)]
    produced = {id(value): Leaf(number) for number, value in enumerate(outputs)}
    produced |= {id(x): Leaf(-1 - n) for n, x in enumerate(inputs) if isinstance(x, torch.Tensor)}

    def place(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in produced:
            raise UserError("this model cannot be packaged: a result is neither computed by it nor one of its inputs")
        return produced[id(value)]

    shape = _replace(result, place)
    _check_apart(leaves)
    wanted = _replace(arguments, lambda x: tuple(spec_of(x)[1:4]) if isinstance(x, torch.Tensor) else x)
    writer = Writer(_RECORDS)
    writer.limit = 1 << 62
    try:
        data = writer.write((stored_key, wanted, sources, shape, {} if safetensors else weights))
        program = json.dumps(write_graph(gm, GraphWriter(), values=False)).encode()
    except Unstorable as reason:
        raise UserError(f"this model cannot be packaged: {reason}") from None
    if safetensors:
        _safetensors().save_file({name: w.contiguous() for name, w in weights.items()}, _beside(path))
    sections = {"about": about("package", environment()), "program": program, "bundle": bundle}
    Path(path).write_bytes(encode(sections | sections_of(writer, data), key))


def load(path: str | Path, *, key: bytes = b"") -> Callable[..., Any]:
    """The callable of a package. It holds code that will run: load only what you trust, or a key vouches for."""
    try:
        sections = decode(Path(path).read_bytes(), key)
        same = read_about(sections)["parts"] == environment()
        stored_key, wanted, sources, shape, weights = load_values(sections, _RECORDS)
    except Damaged as error:
        raise UserError(f"{path} cannot be used: {error}") from None
    weights = weights or (_safetensors().load_file(_beside(path)) if Path(_beside(path)).exists() else {})
    run = None
    if same and stored_key:
        with tempfile.TemporaryDirectory() as scratch:
            load_cache_artifacts(sections["bundle"], directory=Path(scratch))
            run = restore(stored_key, Options(cache_dir=scratch))
    fixed = {name: weight.detach() for name, weight in weights.items()}
    return _Loaded(sections["program"], run, wanted, sources, shape, fixed)


class _Loaded:
    """A packaged model."""

    def __init__(self, program: bytes, run: Any, wanted: Any, sources: Any, shape: Any, weights: Any) -> None:
        self._program, self._run, self._sources, self._shape, self.weights = program, run, sources, shape, weights
        self._wanted, self._structure = pytree.tree_flatten(wanted, is_leaf=lambda x: _is_spec(x))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model on arguments like the example's."""
        leaves, structure = pytree.tree_flatten((args, dict(sorted(kwargs.items()))))
        if structure != self._structure:
            raise UserError(f"arguments must be nested like the example's: {self._structure}")
        _check_apart(leaves)
        given = [_fit(n, value, spec) for n, (value, spec) in enumerate(zip(leaves, self._wanted, strict=True))]
        inputs = [self._input(source, given) for source in self._sources]
        with torch.no_grad():
            if self._run is None:
                gm = read_graph(json.loads(self._program), b"", values=False)
                self._run = _compile(gm, inputs, {})
            outputs = self._run(*inputs)

        def value(leaf: Any) -> Any:
            if not isinstance(leaf, Leaf):
                return leaf
            return outputs[leaf.number] if leaf.number >= 0 else inputs[-1 - leaf.number]

        return _replace(self._shape, value)

    def _input(self, source: Any, given: list[Any]) -> Any:
        if isinstance(source, Leaf):
            return given[source.number]
        return self.weights[source.name] if isinstance(source, Weight) else source


def _capture(model: Callable[..., Any], arguments: tuple[Any, Any]) -> tuple[Any, list[Any], list[Any], Any]:
    """(graph, its inputs, its outputs, the model's result) of one run."""
    from argand.pipeline import compile  # noqa: PLC0415  # loading a package needs no capture

    seen: list[Any] = []

    def record(gm: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
        def run(*values: Any) -> Any:
            seen[:] = [gm, list(values), gm(*values)]
            return seen[2]

        return run

    result = compile(model, fullgraph=True, dynamic=False, backend=record)(*arguments[0], **arguments[1])
    if not seen:
        raise UserError("this model has no tensor work to package")
    return seen[0], seen[1], list(seen[2]), result


def _compile(gm: Any, inputs: Sequence[Any], options: Mapping[str, object]) -> Any:
    from argand.backends.argand_backend import argand  # noqa: PLC0415  # only where nothing is compiled yet

    return argand(gm, inputs, options=options)


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
    return type(value) is tuple and len(value) == 3 and type(value[2]) is str and value[2].startswith("torch.")


def _fit(number: int, value: Any, spec: Any) -> Any:
    """An argument as the graph wants it."""
    if not _is_spec(spec):
        if value != spec:
            raise UserError(f"argument {number} was {spec!r} when the model was packaged")
        return value
    shape, strides, dtype = spec
    if not isinstance(value, torch.Tensor) or (list(value.shape), str(value.dtype)) != (list(shape), dtype):
        raise UserError(f"argument {number} must be a tensor of {dtype} {list(shape)}")
    if list(value.stride()) == list(strides):
        return value
    return torch.empty_strided(shape, strides, dtype=value.dtype).copy_(value)


def _beside(path: str | Path) -> str:
    return f"{path}.safetensors"


def _safetensors() -> Any:
    try:
        import safetensors.torch  # noqa: PLC0415  # optional
    except ImportError:
        raise UserError("the safetensors package is needed for weights beside the file") from None
    return safetensors.torch
