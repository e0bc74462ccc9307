"""All sessions."""

from tests.strangers import stories_language, stories_library, stories_modules, stories_training  # noqa: F401
