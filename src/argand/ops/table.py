"""ops.table: the form of a row.  One row says what one aten op means; families hold the rows.

A row has a column for each thing that some stage wants to know of an op, so that no stage keeps a list of
names. What the schema of torch says is not repeated: writes and views are read from it. Decompositions
(ops.decompositions), lowerings (native.lower) and size formulas (sizes.formulas) are code of other rooms,
loaded when they are needed; `tools/op_row.py` prints them beside the row, and a test joins them.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from typing import Any, final

from argand.support.dataclass import dataclass


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


class Draws(enum.Enum):
    """When a call advances a random generator."""

    NEVER = "no random numbers"
    ALWAYS = "at each call"
    WITH_DROPOUT = "when its argument dropout_p is not zero"


class Raises(enum.Enum):
    """When eager's kernel raises because of the values in a tensor. Such a call is never dead."""

    NEVER = "shapes and dtypes alone decide, and they are known when the graph is made"
    ON_VALUES = "an index out of range, a probability above one, a singular matrix"
    ON_INTEGERS = "a division by zero, when the result is of integers"


class Blas(enum.Enum):
    """Which operands of a matrix product the code generator may hand to BLAS."""

    NONE = "no product, or one that torch's kernel computes"
    PLAIN = "left, right"
    BIASED = "bias, left, right, with factors alpha and beta"


# Takes the arguments of the aten schema, gives fresh fakes.
TypeRule = Callable[..., Any]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class OpDef:
    """One aten op. Facts that follow from its schema (mutation, aliasing) are not repeated here."""

    name: str  # as in the schema, without "aten::": "add.Tensor", "relu"
    kind: Kind
    infer: TypeRule | None = None  # None: torch's kernels are asked for the type (ops.fallback)
    draws: Draws = Draws.NEVER
    raises: Raises = Raises.NEVER
    data_dependent: bool = False  # gives Python values or sizes that depend on the data of tensors
    reads_memory: bool = False  # its C++ looks into integer tensors without asking the dispatcher
    changes_storage: bool = False  # gives its argument other metadata or another storage
    hidden_writes: bool = False  # writes arguments although its schema does not say so
    open_floats: bool = False  # the value of a float argument never decides how it computes
    blas: Blas = Blas.NONE


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionDef:
    """A Python function or method of torch that does something the dispatcher does not show."""

    name: str
    reads_memory: bool = False  # some op that it calls does (`OpDef.reads_memory`)
    # a tensor of nested lists: for numbers that are tensors C++ reads their memory
    makes_of_numbers: bool = False
    indexes: bool = False  # its second argument is an index, of whose lists tensors are made
    # The argument that counts from the start of the storage, if it is given; 0: the answer does. None: nothing does.
    offset_place: int | None = None


def written_arguments(schema: Any) -> tuple[tuple[int, str], ...]:
    """Place and name of each argument that an op writes."""
    rows = enumerate(schema.arguments)
    return tuple(
        (place, a.name) for place, a in rows if a.alias_info is not None and a.alias_info.is_write
    )


def rows(kind: Kind, infer: TypeRule, names: str) -> Iterator[OpDef]:
    """One row per name of ops that share a kind and a rule."""
    for name in names.split():
        yield OpDef(name=name, kind=kind, infer=infer)
