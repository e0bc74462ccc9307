"""runtime.state: torch's global state, as far as it changes what a graph means.

Out: rows ``(reader, value, reader, value, ...)`` for a GLOBAL_STATE guard. The readers of the common
state are C functions without arguments whose results are singletons: nanoseconds each.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import torch
from torch.utils._device import DeviceContext  # the mode behind a default device

from argand.runtime import quiet

Snapshot: TypeAlias = tuple[Any, ...]

# -1 outside of forward mode
_dual_level = functools.partial(vars(torch.autograd.forward_ad).get, "_current_level")

READERS: Final[tuple[tuple[str, Callable[[], object]], ...]] = (
    ("torch.is_grad_enabled()", torch._C.is_grad_enabled),
    ("torch.is_inference_mode_enabled()", torch._C.is_inference_mode_enabled),
    ("torch autocast enabled", torch._C._is_any_autocast_enabled),
    ("torch.get_default_dtype()", torch.get_default_dtype),
    # torch.set_default_device works by a function mode as well
    ("number of torch function modes", torch._C._len_torch_function_stack),
    ("number of torch dispatch modes", torch._C._len_torch_dispatch_stack),
    ("torch.are_deterministic_algorithms_enabled()", torch._C._get_deterministic_algorithms),
    ("torch function enabled", torch._C._is_torch_function_enabled),
    ("torch.jit.trace", torch._C._get_tracing_state),
    ("level of torch.autograd.forward_ad", _dual_level),
)


@contextlib.contextmanager
def own_history() -> Iterator[None]:
    """What fakes save and how they fail is not for the user's hooks and warnings.

    Hooks of saved tensors may count (torch.utils.checkpoint) or copy to disk; the detection of anomalies would
    tell of errors after which we trace again.
    """
    autograd, hooks = torch._C._autograd, []
    while (top := autograd._top_saved_tensors_default_hooks(True)) is not None:
        hooks.append(top)
        autograd._pop_saved_tensors_default_hooks()
    try:
        with _without_anomalies():
            yield
    finally:
        for pack, unpack in reversed(hooks):
            autograd._push_saved_tensors_default_hooks(pack, unpack)


@contextlib.contextmanager
def _without_anomalies() -> Iterator[None]:
    """The setting is the process's: of several threads the one that finds it on turns it off and on again."""
    if not torch.is_anomaly_enabled():
        yield
        return
    with quiet.until_done(
        functools.partial(torch.set_anomaly_enabled, True, torch.is_anomaly_check_nan_enabled())
    ):
        torch.set_anomaly_enabled(False)
        yield


def autocast_settings() -> tuple[object, ...]:
    """Which devices autocast, to what; read only where autocast is on at all."""
    devices = [
        (device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
        for device in ("cpu", "cuda")
    ]
    return (*devices, torch.is_autocast_cache_enabled())


def function_modes() -> tuple[tuple[type, str], ...]:
    """The active torch function modes; a default device is one of them."""
    count = torch._C._len_torch_function_stack()
    modes = [torch._C._get_function_stack_at(i) for i in range(count)]
    return tuple((type(mode), str(getattr(mode, "device", id(mode)))) for mode in modes)


RARE: Final[tuple[tuple[str, int, Callable[[], object]], ...]] = (
    # (name, row of READERS that must be set for it to matter, reader)
    ("torch autocast settings", 2, autocast_settings),
    ("torch function modes", 4, function_modes),
)


def is_watched() -> bool:
    """Whether torch.jit, torch.func, forward-mode autograd or a mode of the user follows each operation of this thread."""
    return (
        torch._C._get_tracing_state() is not None
        or _dual_level() != -1
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._len_torch_dispatch_stack() > 0
        or any(kind is not DeviceContext for kind, _ in function_modes())
    )


def snapshot() -> Snapshot:
    """The state now, as the expected value of a GLOBAL_STATE guard."""
    values = [reader() for _, reader in READERS]
    rows: list[object] = []
    for (_, reader), value in zip(READERS, values, strict=True):
        rows += [reader, value]
    for _, needs, rare in RARE:
        if values[needs]:
            rows += [rare, rare()]
    return tuple(rows)


def _call_text(reader: Any) -> str:
    args = ", ".join(map(repr, getattr(reader, "args", ())))
    return f"{getattr(getattr(reader, 'func', reader), '__name__', reader)}({args})"


def differences(expected: Snapshot) -> list[str]:
    """What changed since a snapshot, for the user to read."""
    names: dict[object, str] = {reader: name for name, reader in READERS}
    names |= {rare: name for name, _, rare in RARE}
    found = []
    for reader, was in zip(expected[::2], expected[1::2], strict=True):
        now = reader()
        if now != was:
            found.append(f"`{names.get(reader) or _call_text(reader)}` was {was}, is {now}")
    return found
