"""State of torch itself."""

from __future__ import annotations

import torch

from tests.effects.world import case, inside


@case
def grad_mode():
    def run(x, cut):
        torch.set_grad_enabled(not torch.is_grad_enabled())
        y = x + 1
        cut()
        return y

    return run, torch.is_grad_enabled


@case
def default_dtype():
    def run(x, cut):
        torch.set_default_dtype(torch.float64)
        y = x + torch.zeros(3)
        cut()
        torch.set_default_dtype(torch.float32)
        return y + torch.zeros(3)

    return run, torch.get_default_dtype


@case
def autocast():
    return inside(
        lambda: torch.autocast("cpu", torch.bfloat16), lambda: torch.is_autocast_enabled("cpu")
    )


@case
def autocast_of_another_device():
    def look():
        return torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")

    return inside(lambda: torch.autocast("cuda", torch.bfloat16, enabled=False), look)


@case
def deterministic():
    def run(x, cut):
        torch.use_deterministic_algorithms(True, warn_only=True)
        y = x + 1
        cut()
        torch.use_deterministic_algorithms(False)
        return y

    return run, torch.are_deterministic_algorithms_enabled


@case
def anomaly():
    return inside(lambda: torch.autograd.set_detect_anomaly(True), torch.is_anomaly_enabled)


@case
def mkldnn_flags():
    return inside(
        lambda: torch.backends.mkldnn.flags(enabled=False), lambda: torch.backends.mkldnn.enabled
    )


@case
def inference_mode():
    return inside(torch.inference_mode, torch.is_inference_mode_enabled)


@case
def torch_function_mode():
    return inside(torch._C.DisableTorchFunctionSubclass, torch._C._is_torch_function_enabled)


@case
def default_device():
    return inside(lambda: torch.device("cpu"), torch._C._len_torch_function_stack)


@case
def saved_tensor_hooks():
    packed: list[int] = []

    def pack(tensor):
        packed.append(1)
        return tensor

    weight = torch.ones(3, requires_grad=True)

    def run(x, cut):
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            y = x * weight
            cut()
        return y * weight

    return run, lambda: torch._C._autograd._top_saved_tensors_default_hooks(True)


@case
def profiler_region():
    return inside(lambda: torch.profiler.record_function("block"), lambda: None)


@case
def number_of_threads():
    def run(x, cut):
        before = torch.get_num_threads()
        torch.set_num_threads(before + 1)
        cut()
        y = x + before
        torch.set_num_threads(before)
        return y

    return run, torch.get_num_threads


@case
def module_hooks():
    model, log = torch.nn.Linear(3, 3), []
    torch.nn.init.ones_(model.weight)
    torch.nn.init.zeros_(model.bias)

    def run(x, cut):
        handle = model.register_forward_hook(lambda *_: log.append(1))
        y = model(x)
        cut()
        handle.remove()
        return y

    return run, lambda: (len(model._forward_hooks), list(log))
