"""Argand compiles PyTorch programs for CPUs: ``argand.compile(model)``.

Public names only. Each is loaded at its first use, so that ``import argand`` costs next to nothing and
does not even import torch.
"""

from __future__ import annotations

import gc
import importlib
from typing import Any, Final

_WHERE: Final = {
    "pipeline": "compile compile_in_place explain",
    "capture.rules.marks": "allow_in_graph assume_constant_result disable graph_break is_compiling",
    "sizes.marks": "mark_dynamic mark_static maybe_mark_dynamic",
    "runtime.stance": "set_stance",
    "runtime.cache": "ArgandWarning reset",
    "backends.registry": "list_backends lookup_backend register_backend set_default_backend",
    "backends.aot": "aot_autograd make_boxed_func",
    "backends.argand_backend": "compile_fx",
    "native.bundles": "load_cache_artifacts save_cache_artifacts",
    "packages": "load package",
    "quantization": "quantize",
    "drop_in": "install uninstall",
    "autograd.partition": "default_partition min_cut_partition",
    "customops.definition": "CustomOp custom_op get_op pointwise",
    "customops.fakes": "get_ctx",
    "customops.schema": "infer_schema",
    "customops.by_name": """impl impl_abstract impl_autocast impl_backward impl_c impl_factory impl_fake
        impl_save_for_backward impl_vmap register_autocast register_autograd register_fake register_kernel
        register_vmap""",
    "report": "report",
    "report.compare": "compare",
    "report.explained": "ExplainWithBackend",
    "report.opcheck": "opcheck",
    "customops.errors": """ContractViolation CustomOpError GradientError NoImplementation RegistrationError
        SchemaError""",
    "runtime.disk.store": "CacheWarning",
    "support.errors": """ArgandError BackendCompilerFailed CaptureError InternalError InvalidBackend OptionError
        RecompileLimitExceeded ResultsDiffer UnsupportedPython UserError""",
    "support.logs": "set_logs",
}
_PLACE: Final = {name: module for module, names in _WHERE.items() for name in names.split()}

__all__ = sorted([*_PLACE, "__version__"])


def __getattr__(name: str) -> Any:
    """Load a public name."""
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("argand")
    place = _PLACE.get(name)
    if place is None:
        raise AttributeError(f"module 'argand' has no attribute {name!r}")
    # Modules stay: looking for garbage while they load, among all objects of torch, is time lost.
    collects = gc.isenabled()
    gc.disable()
    try:
        value = getattr(importlib.import_module(f"argand.{place}"), name)
    except (ImportError, RuntimeError) as error:
        value = _unsupported(name, error)
    finally:
        if collects:
            gc.enable()
    globals()[name] = value
    if name in ("compile", "compile_in_place", "install"):
        _start_report()
    return value


def _start_report() -> None:
    """Obey ARGAND_REPORT; here, because reports are above all that compiles."""
    if importlib.import_module("argand.support.options").read_environment().report:
        importlib.import_module("argand.report.session").start_from_environment()


def _unsupported(name: str, error: Exception) -> Any:
    """A name that did not load: on an interpreter we do not run on, what stands for it there."""
    unsupported = importlib.import_module("argand.support.unsupported")
    why = unsupported.reason(error)
    if why is None:
        raise error
    return unsupported.stand_in(name, why)


def __dir__() -> list[str]:
    """The public names."""
    return list(__all__)
