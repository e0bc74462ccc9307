"""What ``import argand`` loads: next to nothing, and public names at their first use."""

import json
import subprocess
import sys


def modules_after(program):
    listing = "import json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\n{listing}"], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_import_loads_no_room_and_no_torch():
    loaded = modules_after("import argand") - modules_after("import importlib, typing")
    own = {name for name in loaded if name.startswith("argand")}
    assert own == {"argand"}
    assert not {name for name in loaded if name.split(".")[0] in ("torch", "llvmlite", "numpy")}


def test_import_adds_nothing_to_torch():
    added = modules_after("import torch, argand") - modules_after("import torch")
    assert added <= {"argand"}


def test_support_needs_the_standard_library_only():
    program = "import argand.support.errors, argand.support.events, argand.support.logs"
    loaded = modules_after(program + ", argand.support.options")
    outside = {name.split(".")[0] for name in loaded} - set(sys.stdlib_module_names)
    assert outside <= {"argand", "typing_extensions", "__editable___argand_0_1_0_finder"} | {
        name for name in outside if name.startswith(("_", "sitecustomize", "distutils-precedence"))
    }
    assert not {name for name in loaded if name.startswith("torch")}


def test_every_public_name_is_listed_and_an_unknown_one_is_refused():
    import argand

    assert set(argand.__all__) <= set(dir(argand))
    try:
        argand.no_such_name  # noqa: B018
    except AttributeError as error:
        assert "no_such_name" in str(error)
    else:
        raise AssertionError("an unknown name must raise")
