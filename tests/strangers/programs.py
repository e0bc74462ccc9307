"""All programs of the strangers."""

from tests.strangers import aliasing, language, state, tensors  # noqa: F401
