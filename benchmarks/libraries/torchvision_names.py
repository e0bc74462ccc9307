"""benchmarks.libraries.torchvision_names: lets torchvision's Python part load where its operators cannot.

The package index has torchvision linked to CUDA only. Beside a CPU build of torch its C++ library does not load, and its
Python part then stops at the first operator it wants to describe. The operators are declared by name, without kernels.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import torch

KEPT: list[torch.library.Library] = []  # a library is forgotten with its object


def _loads(folder: Path) -> bool:
    """Whether torchvision's own operators can be had."""
    try:
        for library in folder.glob("_C*.so"):
            torch.ops.load_library(str(library))
    except OSError:
        return False
    return True


def has_operators() -> bool:
    """Whether torchvision is here, with operators that load."""
    found = importlib.util.find_spec("torchvision")
    return found is not None and found.origin is not None and _loads(Path(found.origin).parent)


def declare() -> None:
    """Declare the operators that torchvision describes, once."""
    found = importlib.util.find_spec("torchvision")
    if KEPT or found is None or found.origin is None or has_operators():
        return
    text = (Path(found.origin).parent / "_meta_registrations.py").read_text()
    names = {
        name
        for pair in re.findall(r'register_meta\("(\w+)"|torchvision::(\w+)', text)
        for name in pair
        if name
    }
    library = torch.library.Library("torchvision", "DEF")
    KEPT.append(library)
    for name in sorted(names):
        library.define(f"{name}(Tensor x) -> Tensor")
