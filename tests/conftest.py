"""Tests never touch the user's cache directory, and start with an empty one."""

import atexit
import os
import shutil
import tempfile

# Before argand is imported: the environment is read once.
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="argand-tests-")

import pytest
import torch

from argand.support.options import Options

# Every compile of every test runs the verifiers of all levels (docs/ir.md); who gives `verify` itself has that.
Options()  # its first object writes its __init__
Options.__init__.__kwdefaults__["verify"] = "forms"

atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Workers must collect the same names: no address and no text of an object is part of one."""
    assert " at 0x" not in item.name and "tensor(" not in item.name, (
        f"give {item.nodeid} ids of its own"
    )


@pytest.fixture(autouse=True)
def _no_mode_is_left():
    """What a trace turns on, it turns off, whatever happens in between. Each test draws the same numbers, on the same threads."""
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    yield
    left = torch.get_num_threads()
    torch.set_num_threads(threads)
    assert left == threads, "the test leaves torch with another number of threads"
    assert torch._C._len_torch_dispatch_stack() == torch._C._len_torch_function_stack() == 0


@pytest.fixture
def in_float64():
    """Tensors are made in double precision."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
