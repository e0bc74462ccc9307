"""All programs of the strangers."""

from tests.strangers import aliasing, caches, domains, everyday, language, many_sizes, state, tensors  # noqa: F401
