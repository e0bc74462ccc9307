"""Puts the fault that the environment names into every interpreter that is started with this folder on its path."""

import os

if name := os.environ.get("ARGAND_TESTS_FAULT"):
    from tests.faults.planting import plant

    plant(name)
