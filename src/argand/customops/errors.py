"""customops.errors: every way to misuse a custom operator, one class per kind of mistake."""

from __future__ import annotations

from argand.support.errors import UserError


class CustomOpError(UserError):
    """Base of the errors about custom operators."""


class SchemaError(CustomOpError, ValueError):
    """The definition cannot be turned into a schema, or disagrees with the one given."""


class RegistrationError(CustomOpError):
    """Something is registered twice, by halves, or on an operator that cannot have it."""


class NoImplementation(CustomOpError, NotImplementedError):
    """The operator was called where it has no implementation."""


class GradientError(CustomOpError):
    """A backward formula returned something else than one gradient per tensor argument."""


class ContractViolation(CustomOpError):
    """An implementation did what the schema says it does not do."""
