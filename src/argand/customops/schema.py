"""customops.schema: operator schemas from annotated Python functions.

In: a function, the names of the arguments it mutates. Out: a schema string such as
``(Tensor x, SymInt n=2) -> Tensor``. Fails with ``SchemaError``: what is wrong, where the function is,
and what is supported.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Union

import torch
from torch.types import Number

from argand.customops.errors import SchemaError
from argand.customops.registry import location_of

_SCALARS: Final[Mapping[object, str]] = {
    torch.Tensor: "Tensor",
    int: "SymInt",
    float: "float",
    bool: "bool",
    str: "str",
    Number: "Scalar",
    torch.dtype: "ScalarType",
    torch.device: "Device",
}
_IN_LISTS: Final = (torch.Tensor, int, float, bool, Number)
_RETURNS: Final[Mapping[object, str]] = {kind: _SCALARS[kind] for kind in _IN_LISTS}
SUPPORTED: Final = (
    "Tensor, int, float, bool, str, Number, torch.dtype, torch.device; Optional of each; "
    "list/Sequence of Tensor, int, float, bool, Number, Optional[Tensor]; Optional list of numbers"
)
SUPPORTED_RETURNS: Final = "Tensor, list[Tensor], int, float, bool, Number, a tuple of these, None"


def _split_optional(annotation: object) -> tuple[object, bool]:
    """(inner, True) for Optional[inner]; Number is a union too, but not an optional."""
    if annotation == Number or typing.get_origin(annotation) not in (Union, types.UnionType):
        return annotation, False
    arguments = [a for a in typing.get_args(annotation) if a is not type(None)]
    if len(arguments) == len(typing.get_args(annotation)):
        return annotation, False
    return Union[tuple(arguments)], True  # noqa: UP007 - built at run time


def _list_element(annotation: object) -> object | None:
    if typing.get_origin(annotation) in (list, Sequence):
        return typing.get_args(annotation)[0]
    return None


def _parameter_type(annotation: object) -> str | None:
    """The schema's word for an annotation, None if there is none."""
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    inner, optional = _split_optional(annotation)
    if optional:
        word = _parameter_type(inner)
        element = _list_element(inner)
        if word is None or element is torch.Tensor or word.endswith("?[]"):
            return None
        return f"{word}?"
    element = _list_element(annotation)
    if element in _IN_LISTS:
        return f"{_SCALARS[element]}[]"
    if element == (torch.Tensor | None):
        return "Tensor?[]"
    return None


def _default_text(value: object) -> str | None:
    """`` =value`` in schema syntax, None if it cannot be written."""
    if value is None or isinstance(value, bool | int | float):
        return str(value)
    if isinstance(value, str | torch.device):
        return f'"{value}"'
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    return None


def _resolve(function: Callable[..., Any]) -> dict[str, object]:
    try:
        return typing.get_type_hints(function)
    except Exception as error:
        raise SchemaError(
            f"an annotation of {function.__name__} cannot be read: {error}",
            where=location_of(function),
            hint="import the names at module level; `from __future__ import annotations` makes "
            "every annotation a string that is looked up in the function's globals",
        ) from error


class _Writer:
    """Builds the schema of one function; holds what every error message needs."""

    def __init__(self, function: Callable[..., Any], mutates: frozenset[str] | None) -> None:
        self.function, self.mutates = function, mutates
        self.hints = _resolve(function)
        self.positions = {name: i for i, name in enumerate(inspect.signature(function).parameters)}

    def fail(self, what: str, hint: str = "") -> SchemaError:
        return SchemaError(what, where=location_of(self.function), hint=hint)

    def parameter(self, parameter: inspect.Parameter) -> str:
        name = parameter.name
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise self.fail(f"parameter {name!r} is positional-only", "remove the `/`")
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            raise self.fail(f"parameter {name!r} is variadic", "name every parameter")
        if name not in self.hints:
            raise self.fail(f"parameter {name!r} has no annotation", f"supported: {SUPPORTED}")
        annotation = self.hints[name]
        word = _parameter_type(annotation)
        if word is None:
            instead = "use list[...] instead of tuple; " if "uple" in str(annotation) else ""
            raise self.fail(
                f"parameter {name!r} has the unsupported annotation {annotation}",
                f"{instead}supported: {SUPPORTED}",
            )
        word = self._mark_mutated(name, word)
        if parameter.default is inspect.Parameter.empty:
            return f"{word} {name}"
        default = _default_text(parameter.default)
        if default is None:
            raise self.fail(
                f"the default {parameter.default!r} of {name!r} cannot be written in a schema",
                "None, numbers, strings, dtypes and devices can",
            )
        return f"{word} {name}={default}"

    def _mark_mutated(self, name: str, word: str) -> str:
        is_tensor = word.startswith("Tensor")
        if self.mutates is not None and name not in self.mutates:
            return word
        if not is_tensor:
            if self.mutates is None:
                return word
            raise self.fail(f"mutates_args names {name!r}, which is not a tensor")
        return word.replace("Tensor", f"Tensor(a{self.positions[name]}!)", 1)

    def returns(self) -> str:
        if "return" not in self.hints:
            raise self.fail("no return annotation", f"supported: {SUPPORTED_RETURNS}")
        annotation = self.hints["return"]
        if annotation in (None, type(None)):
            return "()"
        if typing.get_origin(annotation) is tuple:
            words = [self._return_word(part) for part in typing.get_args(annotation)]
            return f"({', '.join(words)})"
        return self._return_word(annotation)

    def _return_word(self, annotation: object) -> str:
        if annotation in _RETURNS:
            return _RETURNS[annotation]
        if _list_element(annotation) is torch.Tensor:
            return "Tensor[]"
        raise self.fail(
            f"the return annotation {annotation} is not supported",
            f"supported: {SUPPORTED_RETURNS}",
        )


def infer_schema(
    function: Callable[..., Any], *, mutates_args: str | Iterable[str] = (), op_name: str = ""
) -> str:
    """The schema of an annotated function; ``mutates_args="unknown"`` marks every tensor."""
    if isinstance(mutates_args, str) and mutates_args != "unknown":
        raise SchemaError(
            f"mutates_args is the string {mutates_args!r}",
            where=location_of(function),
            hint='give a list of names, or "unknown"',
        )
    mutates = None if isinstance(mutates_args, str) else frozenset(mutates_args)
    writer = _Writer(function, mutates)
    signature = inspect.signature(function)
    unknown = (mutates or frozenset()) - set(signature.parameters)
    if unknown:
        raise writer.fail(
            f"mutates_args names {', '.join(sorted(unknown))}, not a parameter",
            f"parameters: {', '.join(signature.parameters)}",
        )
    words: list[str] = []
    keyword_only = False
    for parameter in signature.parameters.values():
        word = writer.parameter(parameter)
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            words.append("*")
        words.append(word)
    return f"{op_name}({', '.join(words)}) -> {writer.returns()}"


def check_same_parameters(
    function: Callable[..., Any], schema: Any, mutates_args: str | Iterable[str]
) -> None:
    """A schema given by hand must say what the function's parameters and ``mutates_args`` say."""
    parameters = inspect.signature(function).parameters
    ours, theirs = list(parameters), [argument.name for argument in schema.arguments]
    variadic = any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters.values())
    problem = ""
    if variadic or ours != theirs:
        problem = f"the function takes ({', '.join(ours)}), the schema ({', '.join(theirs)})"
    else:
        for argument, p in zip(schema.arguments, parameters.values(), strict=True):
            if argument.has_default_value() != (p.default is not p.empty):
                problem = f"only one of function and schema has a default for {p.name!r}"
    written = {
        a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write
    }
    if not problem and mutates_args != "unknown" and written != set(mutates_args):
        problem = f"the schema mutates {sorted(written)}, mutates_args names {sorted(mutates_args)}"
    if problem:
        raise SchemaError(problem, where=location_of(function), hint="say the same in both")
