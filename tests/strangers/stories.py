"""All sessions."""

from tests.strangers import (  # noqa: F401
    stories_breaks,
    stories_hostile,
    stories_language,
    stories_library,
    stories_modules,
    stories_more,
    stories_training,
    stories_unseen,
)
