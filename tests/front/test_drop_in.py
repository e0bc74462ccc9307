"""`argand.install()`: code written for torch.compile runs on Argand, and gets its own compiler back."""

import subprocess
import sys
import textwrap
import warnings

import pytest
import torch

import argand
from argand.support import events


@pytest.fixture
def installed():
    argand.install()
    yield
    argand.uninstall()


def compiles(run):
    """How many frames Argand compiled while `run` ran, and its result."""
    with events.collect() as seen:
        result = run()
    return seen.total("compiles") + seen.total("restores"), result


def test_torch_compile_is_ours_in_all_its_forms(installed):
    x = torch.randn(4, 4)

    @torch.compile
    def plain(x):
        return x.sin() + 1

    @torch.compile(fullgraph=True, dynamic=False, mode="max-autotune", backend="inductor")
    def with_arguments(x):
        return x.cos() * 2

    for function, eager in ((plain, x.sin() + 1), (with_arguments, x.cos() * 2)):
        count, result = compiles(lambda function=function: function(x))
        assert count == 1
        torch.testing.assert_close(result, eager)


def test_module_compile_is_ours(installed):
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    keys = list(module.state_dict())
    assert module.compile(fullgraph=True) is None
    x = torch.randn(2, 4)
    count, result = compiles(lambda: module(x))
    assert count >= 1
    assert list(module.state_dict()) == keys
    torch.testing.assert_close(result, torch.relu(module[0](x)))


def test_functions_that_torch_compiler_disables_are_not_captured(installed):
    seen = []

    @torch.compiler.disable
    def hidden(x):
        seen.append(torch.compiler.is_compiling())
        return x * 2

    @torch.compile
    def program(x):
        return hidden(x.sin()) + 1

    x = torch.randn(3)
    for _ in range(2):
        torch.testing.assert_close(program(x), x.sin() * 2 + 1)
    assert seen == [False, False]


def test_stances_and_marks(installed):
    x = torch.randn(3)
    program = torch.compile(lambda x: x + 1)
    with torch.compiler.set_stance("force_eager"):
        assert compiles(lambda: program(x))[0] == 0
    assert compiles(lambda: program(x))[0] == 1
    torch.compiler.cudagraph_mark_step_begin()
    torch.compiler.reset()
    assert compiles(lambda: program(x))[0] == 1
    with pytest.raises(argand.ArgandError, match="unknown stance"):
        torch.compiler.set_stance("no such stance")


def test_the_default_backend_is_told(installed):
    assert torch.compiler.get_default_backend() == "argand"
    try:
        torch.compiler.set_default_backend("eager")
        assert torch.compiler.get_default_backend() == "eager"
    finally:
        torch.compiler.set_default_backend("inductor")
    assert torch.compiler.get_default_backend() == "argand"


def test_other_backends_keep_their_meaning(installed):
    graphs = []

    def backend(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    x = torch.randn(3)
    torch.testing.assert_close(torch.compile(lambda x: x * 3, backend=backend)(x), x * 3)
    assert len(graphs) == 1
    with pytest.raises(argand.InvalidBackend):
        torch.compile(lambda x: x, backend="no such backend")


def test_options_of_inductor_are_left_out_with_one_warning(installed):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            program = torch.compile(
                lambda x: x + 1, options={"triton.cudagraphs": True, "opt_level": 1}
            )
    mine = [w for w in caught if "triton.cudagraphs" in str(w.message)]
    assert len(mine) == 1 and "opt_level" not in str(mine[0].message)
    assert program(torch.ones(2)).tolist() == [2, 2]


def test_uninstall_gives_everything_back():
    names = ("compile", "disable", "set_stance", "reset", "allow_in_graph", "list_backends")
    before = [
        torch.compile,
        torch.nn.Module.compile,
        *(getattr(torch.compiler, name) for name in names),
    ]
    listed = argand.install()
    argand.install()
    assert "torch.compile" in listed
    argand.uninstall()
    argand.uninstall()
    assert before == [
        torch.compile,
        torch.nn.Module.compile,
        *(getattr(torch.compiler, name) for name in names),
    ]


SCRIPT = """
    import sys, torch
    from argand.support import events

    @torch.compile(fullgraph=True)
    def program(x):
        return (x * 2).sum()

    with events.collect() as seen:
        result = program(torch.ones(4)).item()
    print(__name__, sys.argv[1:], result, seen.total("compiles") + seen.total("restores"), "torch._dynamo" in sys.modules)
    sys.exit(7)
"""


@pytest.mark.parametrize("by", ["file", "module"])
def test_programs_run_untouched_from_the_command_line(by, tmp_path):
    (tmp_path / "program_of_a_user.py").write_text(textwrap.dedent(SCRIPT))
    how = ["program_of_a_user.py"] if by == "file" else ["-m", "program_of_a_user"]
    done = subprocess.run(
        [sys.executable, "-m", "argand", *how, "--a", "b"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.stdout.split("\n")[0] == "__main__ ['--a', 'b'] 8.0 1 False", done.stderr
    assert done.returncode == 7


def test_a_missing_program_is_a_short_error(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "argand", "nothing.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 2 and done.stderr == "argand: there is no file 'nothing.py'\n"


@pytest.mark.parametrize("before", [True, False], ids=["imported_before", "imported_after"])
def test_accelerate_takes_the_name_of_our_backend(before):
    pytest.importorskip("accelerate")
    lines = ["from accelerate.utils import TorchDynamoPlugin", "argand.install()"]
    program = "\n".join(
        [
            "import argand",
            *(lines if before else reversed(lines)),
            "print(TorchDynamoPlugin(backend='argand').to_kwargs()['backend'])",
            "try:\n    TorchDynamoPlugin(backend='nobody')\nexcept ValueError:\n    print('refused')",
        ]
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["argand", "refused"]
