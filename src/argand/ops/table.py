"""ops.table: the form of a row.  One row says what one aten op means; families hold the rows."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, final


class Kind(enum.Enum):
    """What shape of work an op is; the partitioner and the native compiler decide by it."""

    POINTWISE = "one output element per element of the broadcast inputs"
    REDUCE = "folds dimensions"
    VIEW = "same memory, other metadata"
    GATHER = "reads at computed places"
    SCATTER = "writes at computed places"
    MATMUL = "matrix products and attention"
    CONV = "convolutions"
    RANDOM = "draws random numbers"
    FACTORY = "makes a tensor from no tensor data"
    OTHER = "anything else: called as torch's kernel"


# Takes the arguments of the aten schema, gives fresh fakes.
Rule = Callable[..., Any]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class OpDef:
    """One aten op. Facts that follow from its schema (mutation, aliasing) are not repeated here."""

    name: str  # as in the schema, without "aten::": "add.Tensor", "relu"
    kind: Kind
    infer: Rule


def written_arguments(schema: Any) -> tuple[tuple[int, str], ...]:
    """Place and name of each argument that an op writes."""
    rows = enumerate(schema.arguments)
    return tuple((place, a.name) for place, a in rows if a.alias_info is not None and a.alias_info.is_write)


def rows(kind: Kind, infer: Rule, names: str) -> Iterator[OpDef]:
    """One row per name of ops that share a kind and a rule."""
    for name in names.split():
        yield OpDef(name=name, kind=kind, infer=infer)
