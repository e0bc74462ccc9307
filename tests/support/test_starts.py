"""What a first call loads: the modules a small program needs, and none of features that it does not use."""

import json
import os
import subprocess
import sys

import pytest

PROGRAM = """
import json, sys, torch
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
x = torch.randn(4, 8)
before = set(sys.modules)
import argand
compiled = argand.compile(model)
if sys.argv[1] == "train":
    compiled(x).sum().backward()
else:
    with torch.no_grad():
        compiled(x)
print(json.dumps(sorted(set(sys.modules) - before)))
"""

# How many modules of ours a start may load: what it loads now, and a few more. A module is a fifth of a millisecond.
# Who goes above it because of a feature loads that feature's modules when it is used (support.later).
LIMITS = {"infer": {"cold": 370, "warm": 98}, "train": {"cold": 377, "warm": 100}}

# Features that this program does not use.
FEATURES = [
    *("report", "cli", "bisect", "packages", "drop_in", "quantization", "background"),
    *("backends.verified", "backends.bridges", "backends.foreign", "capture.explain"),
    *("capture.rules.arrays", "capture.generated.verified", "differences"),
    *("customops.definition", "customops.gradients", "customops.schema"),
    *("autograd.control_flow", "autograd.scans", "autograd.higher_order", "autograd.linked"),
    *("autograd.pieces", "native.codegen.triton", "native.codegen.perf", "native.bundles"),
    *("native.codegen.math.error", "native.codegen.math.trigonometric", "runtime.devices"),
    *("native.codegen.math.random", "native.codegen.llvm.digits", "native.codegen.llvm.small_dots"),
    *("native.verify_module", "native.verify_plan", "native.schedule.verify", "native.plan_text"),
    *("native.ir.verify_tensor", "native.ir.verify_loops", "native.ir.tensor_text"),
    *("native.ir.loops_text", "native.schedule.text", "runtime.described"),
]
COMPILER = ["capture.trace", "autograd.trace", "native.build", "bytecode.flow", "ops.rows"]
OUTSIDE = {"infer": {"llvmlite"}, "train": {"llvmlite"}}


@pytest.fixture(scope="module", params=["infer", "train"])
def loaded(request, tmp_path_factory):
    """The modules that a cold and then a warm start load."""
    home = tmp_path_factory.mktemp("starts")
    (home / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "XDG_CACHE_HOME": str(home), "OMP_NUM_THREADS": "1"}
    found = {}
    for start in ("cold", "warm"):
        done = subprocess.run(
            [sys.executable, str(home / "program.py"), request.param],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        found[start] = json.loads(done.stdout)
    return request.param, found


def ours(names, parts):
    """Which of our modules are among these parts of the tree."""
    prefixes = tuple(f"argand.{part}" for part in parts)
    return [n for n in names if n in prefixes or n.startswith(tuple(f"{p}." for p in prefixes))]


@pytest.mark.parametrize("start", ["cold", "warm"])
def test_modules_of_a_start_are_counted(loaded, start):
    mode, found = loaded
    count = len([name for name in found[start] if name.split(".")[0] == "argand"])
    limit = LIMITS[mode][start]
    assert count <= limit, f"{count} modules of ours, {limit} allowed"
    assert count > limit - 25, f"{count} modules of ours: lower the limit of {limit}"


@pytest.mark.parametrize("start", ["cold", "warm"])
def test_no_feature_is_loaded_that_nobody_used(loaded, start):
    assert ours(loaded[1][start], FEATURES) == []


def test_a_warm_start_loads_no_compiler(loaded):
    assert ours(loaded[1]["warm"], COMPILER) == []
    assert set(COMPILER) == {n.removeprefix("argand.") for n in ours(loaded[1]["cold"], COMPILER)}


@pytest.mark.parametrize("start", ["cold", "warm"])
def test_nothing_else_is_loaded_but_the_code_generator(loaded, start):
    mode, found = loaded
    outside = {name.split(".")[0] for name in found[start]} - set(sys.stdlib_module_names)
    assert outside <= {"argand", "torch"} | OUTSIDE[mode]
    if start == "warm":
        assert not [name for name in found[start] if name.startswith("llvmlite.binding")]
    # torch's own modules that are not there after `import torch`
    assert {n for n in found[start] if n.startswith("torch.")} <= {"torch.utils._device"}


def test_the_features_exist():
    import argand

    root = os.path.dirname(argand.__file__)
    for feature in (*FEATURES, *COMPILER):
        path = os.path.join(root, *feature.split("."))
        assert os.path.isdir(path) or os.path.exists(f"{path}.py"), feature
