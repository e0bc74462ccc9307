"""runtime.skips: which code the frame hook never looks at. Asked once per code object.

Torch's own Python, the standard library, test tools and generated code run as they are. Of torch
only the modules of ``torch.nn`` are looked at: their ``forward`` is what a user compiles.
"""

from __future__ import annotations

import os
import pathlib
import types
from typing import Final

import torch

_GENERATED: Final = ("<argand", "<frozen", "<eval_with_key>", "<__array_function__", "<attrs ")
_TORCH: Final = str(pathlib.Path(torch.__file__).parent) + "/"
_DYNAMO: Final = _TORCH + "_dynamo/eval_frame.py"
_DYNAMO_WRAPPERS: Final = frozenset(("compile_wrapper", "_fn"))
_OPERATORS: Final = (_TORCH + "_higher_order_ops/", _TORCH + "nn/attention/flex_attention.py")
_TORCH_MODULES: Final = _TORCH + "nn/modules/"
_ARGAND: Final = str(pathlib.Path(__file__).parent.parent) + "/"
_LAYERS: Final = _ARGAND + "quantization.py"
# sysconfig takes milliseconds to import
_STANDARD: Final = str(pathlib.Path(os.__file__).parent) + "/"
_TOOLS: Final = tuple(
    f"/site-packages/{name}/"
    for name in (
        "numpy",
        "llvmlite",
        "_pytest",
        "pluggy",
        "hypothesis",
        "setuptools",
        "coverage",
        "IPython",
        "sympy",
        "mpmath",
    )
)


def is_standard(code: types.CodeType) -> bool:
    """Whether code is of Python's standard library."""
    name = code.co_filename
    return name.startswith(("<frozen", _STANDARD)) and "site-packages" not in name


def is_operator(code: types.CodeType) -> bool:
    """Whether code is torch's Python of an operator that takes functions, which is one call to the user."""
    return code.co_filename.startswith(_OPERATORS)


def is_library(code: types.CodeType) -> bool:
    """Whether code comes with torch, Python or Argand, and so changes only with their versions."""
    return code.co_filename.startswith((_TORCH, _ARGAND)) or is_standard(code)


def is_made_by_library(code: types.CodeType, namespace: dict[str, object]) -> bool:
    """Whether code has no file because a library generated it: the methods of torch's dataclasses."""
    name = str(namespace.get("__name__", ""))
    return code.co_filename == "<string>" and name.partition(".")[0] in ("torch", "sympy", "argand")


def is_for_dynamo(code: types.CodeType) -> bool:
    """Whether code is a wrapper that ``torch.compile`` or ``torch.compiler.disable`` put around a function."""
    return code.co_name in _DYNAMO_WRAPPERS and code.co_filename == _DYNAMO


def is_ours_to_leave(function: object) -> bool:
    """Whether what such a wrapper runs is none of our business: torch.compile's own, or disabled by the user.

    torch disables functions of its own too, because TorchDynamo cannot read them; what they call of the user's
    (the block under a checkpoint) is to be compiled.
    """
    inner = getattr(function, "_torchdynamo_orig_callable", None)
    if not getattr(function, "_torchdynamo_disable", False) or isinstance(inner, types.MethodType):
        return True  # torch disables functions, a user perhaps one of its modules
    return str(getattr(inner, "__module__", "")).partition(".")[0] != "torch"


def is_layer(code: types.CodeType) -> bool:
    """Whether code is the forward of a layer that Argand puts into the models of users: read like theirs."""
    return code.co_name == "forward" and code.co_filename == _LAYERS


def should_skip(code: types.CodeType) -> bool:
    """Whether frames of this code always run as they are."""
    name = code.co_filename
    if is_for_dynamo(code):
        return False  # all that it calls runs without us: the region is asked (runtime.cache)
    if name.startswith("<"):
        return name.startswith(_GENERATED)
    if name.startswith(_TORCH):
        return not (code.co_name == "forward" and name.startswith(_TORCH_MODULES))
    return (is_library(code) and not is_layer(code)) or any(part in name for part in _TOOLS)
