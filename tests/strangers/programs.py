"""All programs of the strangers."""

from tests.strangers import aliasing, domains, everyday, language, many_sizes, state, tensors  # noqa: F401
