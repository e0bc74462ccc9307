"""Tests never touch the user's cache directory, and start with an empty one."""

import os
import tempfile

# Before argand is imported: the environment is read once.
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="argand-tests-")
