"""Rows: the process, the thread and torch's global state."""

import builtins
import collections
import contextlib
import contextvars
import decimal
import json
import locale
import math
import operator
import os
import random
import sys
import threading
import time
import warnings
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F

from tests.stale.machine import World, ramp, row, rows


def around(context):
    """A change that a context manager makes and undoes."""
    held = []

    def change():
        held.append(context())
        held[-1].__enter__()

    return change, lambda: held.pop().__exit__(None, None, None)


@contextlib.contextmanager
def setting(read, write, value):
    before = read()
    write(value)
    try:
        yield
    finally:
        write(before)


@rows(
    "environment",
    {
        "get": (lambda: os.environ.get("STALE", "2"),),
        "item": (lambda: os.environ["STALE"] if "STALE" in os.environ else "none",),
        "getenv": (lambda: os.getenv("STALE", "2"),),
        "getenv_missing": (lambda: os.getenv("STALE"),),
        "bytes": (lambda: os.environb.get(b"STALE"),),
        "loop": (lambda: sorted(name for name in os.environ if name.startswith("STALE")),),
        "length": (lambda: len(os.environ) > 0 and dict(os.environ).get("STALE"),),
        "expanded": (lambda: os.path.expandvars("$STALE"),),
    },
)
def _environment(read):
    return World(lambda t: (t * 2, read()), *around(lambda: mock.patch.dict(os.environ, STALE="7")))


@row
def an_environment_variable_changes():
    os.environ["STALE_SET"] = "1"
    return World(
        lambda t: t * int(os.environ["STALE_SET"]),
        *around(lambda: mock.patch.dict(os.environ, STALE_SET="7")),
    )


@row
def the_working_directory():
    here = os.getcwd()
    return World(
        lambda t: (t * 2, os.getcwd(), os.path.abspath("x")),
        lambda: os.chdir("/"),
        lambda: os.chdir(here),
    )


@row
def a_file_that_appears():
    import pathlib  # noqa: PLC0415
    import tempfile  # noqa: PLC0415

    path = pathlib.Path(tempfile.mkdtemp()) / "x"
    return World(
        lambda t: (t * 2, path.exists(), os.path.exists(path), os.path.isfile(str(path))),
        path.touch,
        path.unlink,
    )


@row
def arguments_of_the_process():
    return World(
        lambda t: (t * 2, sys.argv[-1]), lambda: sys.argv.append("stale"), lambda: sys.argv.pop()
    )


@row
def the_path_of_modules():
    return World(
        lambda t: (t * 2, sys.path[-1]), lambda: sys.path.append("stale"), lambda: sys.path.pop()
    )


@row
def the_recursion_limit():
    before = sys.getrecursionlimit()
    return World(
        lambda t: (t * 2, sys.getrecursionlimit()),
        lambda: sys.setrecursionlimit(before + 7),
        lambda: sys.setrecursionlimit(before),
    )


@row
def loaded_modules():
    return World(
        lambda t: (t * 2, "stale_name" in sys.modules),
        lambda: sys.modules.__setitem__("stale_name", math),
        lambda: sys.modules.pop("stale_name"),
    )


@row
def a_clock():
    return World(
        lambda t: (t * 2, time.time() < 100), *around(lambda: mock.patch("time.time", lambda: 5.0))
    )


@row
def random_numbers_of_python():
    def program(t):
        return t * 2, random.random(), np.random.rand()

    def arguments():
        random.seed(3)
        np.random.seed(3)
        return (ramp(),)

    return World(program, lambda: None, lambda: None, arguments)


@row
def the_decimal_context():
    one, three = decimal.Decimal(1), decimal.Decimal(3)
    context = decimal.getcontext()
    return World(
        lambda t: (t * 2, str(one / three)),
        *around(lambda: setting(lambda: context.prec, lambda n: setattr(context, "prec", n), 4)),
    )


@row
def a_context_variable():
    variable = contextvars.ContextVar("stale", default=1)
    held = []
    return World(
        lambda t: t * variable.get(),
        lambda: held.append(variable.set(5)),
        lambda: variable.reset(held.pop()),
    )


@row
def the_name_of_the_thread():
    thread = threading.current_thread()
    name = thread.name
    return World(
        lambda t: (t * 2, threading.current_thread().name),
        lambda: setattr(thread, "name", "stale"),
        lambda: setattr(thread, "name", name),
    )


@rows(
    "thread_local",
    {
        "attribute": (lambda local: local.value,),
        "getattr": (lambda local: getattr(local, "value", 7),),
        "hasattr": (lambda local: hasattr(local, "other"),),
        "dict": (lambda local: local.__dict__["value"],),
    },
)
def _thread_local(read):
    class Local(threading.local):
        value = 1

        def __init__(self):
            self.value = 2

    local = Local()

    def change():
        local.value, local.other = 5, 1

    def undo():
        local.value = 2
        del local.other

    return World(lambda t: (t * 2, read(local)), change, undo)


@row
def a_thread_local_in_another_thread():
    local = threading.local()
    local.value = 2
    found = []

    def program(t):
        return t * getattr(local, "value", 7)

    def in_thread():
        def work():
            local.value = 5
            found.append(program(ramp()))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    return World(program, in_thread, lambda: None, state=lambda: found)


# -- torch -------------------------------------------------------------------------------------


@rows(
    "torch_state",
    {
        "no_grad": (torch.no_grad, lambda t: (t * 2).requires_grad),
        "enable_grad": (torch.enable_grad, lambda t: (t * 2).requires_grad),
        "inference_mode": (torch.inference_mode, lambda t: (t * 2).is_inference()),
        "autocast": (lambda: torch.autocast("cpu"), lambda t: torch.mm(t[:, None], t[None, :])),
        "autocast_dtype": (
            lambda: torch.autocast("cpu", torch.float16),
            lambda t: torch.mm(t[:, None], t[None, :]),
        ),
        "autocast_off": (
            lambda: torch.autocast("cpu", enabled=False),
            lambda t: torch.is_autocast_enabled("cpu"),
        ),
        "default_dtype": (
            lambda: setting(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
            lambda t: torch.zeros(2) + torch.ones(1),
        ),
        "default_dtype_asked": (
            lambda: setting(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
            lambda t: (t * 2, torch.get_default_dtype()),
        ),
        "default_device": (
            lambda: setting(lambda: None, torch.set_default_device, "meta"),
            lambda t: (torch.zeros(2), torch.arange(3)),
        ),
        "default_device_asked": (
            lambda: setting(lambda: None, torch.set_default_device, "meta"),
            lambda t: (t * 2, torch.get_default_device()),
        ),
        "device_context": (lambda: torch.device("meta"), lambda t: torch.empty(2).device),
        "deterministic": (
            lambda: setting(
                torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True
            ),
            lambda t: (t * 2, torch.are_deterministic_algorithms_enabled()),
        ),
        "deterministic_warn_only": (
            lambda: setting(
                torch.is_deterministic_algorithms_warn_only_enabled,
                lambda on: torch.use_deterministic_algorithms(False, warn_only=on),
                True,
            ),
            lambda t: (t * 2, torch.is_deterministic_algorithms_warn_only_enabled()),
        ),
        "fill_uninitialized": (
            lambda: setting(
                lambda: torch.utils.deterministic.fill_uninitialized_memory,
                lambda on: setattr(torch.utils.deterministic, "fill_uninitialized_memory", on),
                False,
            ),
            lambda t: (t * 2, torch.utils.deterministic.fill_uninitialized_memory),
        ),
        "num_threads": (
            lambda: setting(torch.get_num_threads, torch.set_num_threads, 3),
            lambda t: (t * 2, torch.get_num_threads()),
        ),
        "mkldnn": (
            lambda: torch.backends.mkldnn.flags(enabled=False),
            lambda t: (t * 2, torch.backends.mkldnn.enabled),
        ),
        "nnpack": (
            lambda: torch.backends.nnpack.flags(False),
            lambda t: (t * 2, torch._C._get_nnpack_enabled()),
        ),
        "flush_denormal": (
            lambda: setting(lambda: False, torch.set_flush_denormal, True),
            lambda t: t * 1e-39,
        ),
        "matmul_precision": (
            lambda: setting(
                torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "medium"
            ),
            lambda t: (t * 2, torch.get_float32_matmul_precision()),
        ),
        "sdp_kernel": (
            lambda: torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
            lambda t: (t * 2, torch.backends.cuda.flash_sdp_enabled()),
        ),
        "function_mode": (lambda: Doubling(), lambda t: t + 1),
        "function_disabled": (
            torch._C.DisableTorchFunctionSubclass,
            lambda t: (t * 2, torch._C._is_torch_function_enabled()),
        ),
        "anomaly": (torch.autograd.detect_anomaly, lambda t: (t * 2, torch.is_anomaly_enabled())),
        "grad_mode_asked": (torch.no_grad, lambda t: t * 2 if torch.is_grad_enabled() else t * 3),
        "inference_asked": (
            torch.inference_mode,
            lambda t: t * 2 if torch.is_inference_mode_enabled() else t * 3,
        ),
        "autocast_asked": (
            lambda: torch.autocast("cpu"),
            lambda t: t * 2 if torch.is_autocast_enabled("cpu") else t * 3,
        ),
        "autocast_dtype_asked": (
            lambda: setting(
                lambda: torch.get_autocast_dtype("cpu"),
                lambda d: torch.set_autocast_dtype("cpu", d),
                torch.float16,
            ),
            lambda t: (t * 2, torch.get_autocast_dtype("cpu")),
        ),
        "autocast_cache_asked": (
            lambda: setting(
                torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled, False
            ),
            lambda t: (t * 2, torch.is_autocast_cache_enabled()),
        ),
        "deterministic_debug_asked": (
            lambda: setting(
                torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode, 1
            ),
            lambda t: (t * 2, torch.get_deterministic_debug_mode()),
        ),
        "warn_always_asked": (
            lambda: setting(torch.is_warn_always_enabled, torch.set_warn_always, True),
            lambda t: (t * 2, torch.is_warn_always_enabled()),
        ),
        "multithreading_asked": (
            lambda: torch.autograd.set_multithreading_enabled(False),
            lambda t: (t * 2, torch._C._is_multithreading_enabled()),
        ),
        "view_replay_asked": (
            lambda: torch.autograd._force_original_view_tracking(True),
            lambda t: (t * 2, torch._C._is_view_replay_enabled()),
        ),
        "overwrite_on_conversion": (
            lambda: setting(
                torch.__future__.get_overwrite_module_params_on_conversion,
                torch.__future__.set_overwrite_module_params_on_conversion,
                True,
            ),
            lambda t: (t * 2, torch.__future__.get_overwrite_module_params_on_conversion()),
        ),
        "print_options": (
            lambda: torch._tensor_str.printoptions(precision=2),
            lambda t: (t * 2, str(t / 3)),
        ),
        "distributed_asked": (
            lambda: mock.patch("torch.distributed.is_initialized", lambda: True),
            lambda t: t * 2 if torch.distributed.is_initialized() else t * 3,
        ),
        "cuda_asked": (
            lambda: mock.patch("torch.cuda.is_available", lambda: True),
            lambda t: t * 2 if torch.cuda.is_available() else t * 3,
        ),
        "scripting_asked": (
            lambda: mock.patch("torch.jit.is_scripting", lambda: True),
            lambda t: t * 2 if torch.jit.is_scripting() else t * 3,
        ),
        "forward_ad": (
            lambda: torch.autograd.forward_ad.dual_level(),
            lambda t: (t * 2, torch.autograd.forward_ad._current_level),
        ),
        "rng": (lambda: torch.random.fork_rng(), lambda t: (t * 2, torch.initial_seed() >= 0)),
    },
)
def _torch_state(context, program):
    def arguments():
        torch.manual_seed(3)
        return (ramp().requires_grad_(),)

    return World(program, *around(context), arguments)


class Doubling(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is torch.Tensor.add or func is torch.Tensor.__add__ else result


@row
def the_seed_of_dropout():
    seeds = [3]

    def arguments():
        torch.manual_seed(seeds[0])
        return (torch.ones(64),)

    return World(
        lambda t: F.dropout(t, 0.5),
        lambda: seeds.__setitem__(0, 4),
        lambda: seeds.__setitem__(0, 3),
        arguments,
    )


@row
def a_global_hook_of_modules():
    net = torch.nn.Linear(3, 3, bias=False)
    torch.nn.init.ones_(net.weight)
    held = []
    return World(
        lambda t: net(t),
        lambda: held.append(
            torch.nn.modules.module.register_module_forward_hook(lambda m, i, o: o * 2)
        ),
        lambda: held.pop().remove(),
    )


# -- patches -----------------------------------------------------------------------------------


def replaced(*args, **kwargs):
    """What patched functions are replaced by."""
    return 7


def only(function, *wanted, gives=7):
    """A function that differs for one call; other callers of a builtin could not live without it."""

    def patched(*args, **kwargs):
        return gives if args == wanted else function(*args, **kwargs)

    return patched


@rows(
    "patched",
    {
        "math_floor": ("math.floor", lambda t: t * math.floor(2.5)),
        "math_pi": ("math.pi", lambda t: t * math.pi, 3.0),
        "len": ("builtins.len", lambda t: t * len("stale text"), only(len, "stale text")),
        "isinstance": (
            "builtins.isinstance",
            lambda t: t * (2 if isinstance(3, complex) else 1),
            only(isinstance, 3, complex),
        ),
        "range": (
            "builtins.range",
            lambda t: [t * i for i in range(11, 13)],
            only(range, 11, 13, gives=[5]),
        ),
        "print": ("builtins.print", lambda t: (print(), t * 2)),
        "sum": ("builtins.sum", lambda t: t * sum([1, 2]), only(sum, [1, 2])),
        "sorted": ("builtins.sorted", lambda t: (t * 2, sorted([2, 1])), only(sorted, [2, 1])),
        # not int and float: without these classes nobody's `isinstance(x, int | float)` runs
        "getattr": ("builtins.getattr", lambda t: t * getattr(math, "e"), only(getattr, math, "e")),  # noqa: B009
        "hasattr": ("builtins.hasattr", lambda t: t * hasattr(math, "e"), only(hasattr, math, "e")),
        "a_new_builtin": (
            "builtins.stale_builtin",
            lambda t: t * 2 if hasattr(builtins, "stale_builtin") else t,
            1,
        ),
        "operator_add": ("operator.add", lambda t: operator.add(t, 1)),
        "json_dumps": ("json.dumps", lambda t: (t * 2, json.dumps([1]))),
        "os_getcwd": ("os.getcwd", lambda t: (t * 2, os.getcwd())),
        "os_path_join": ("os.path.join", lambda t: (t * 2, os.path.join("a", "b"))),
        "collections_counter": (
            "collections.Counter",
            lambda t: (t * 2, collections.Counter("aab")),
        ),
        "locale": ("locale.getlocale", lambda t: (t * 2, locale.getlocale())),
        "warnings_warn": ("warnings.warn", lambda t: (t * 2, warnings.warn("stale", stacklevel=2))),
        "numpy_function": ("numpy.sqrt", lambda t: t * np.sqrt(4.0)),
        "numpy_constant": ("numpy.pi", lambda t: t * np.pi, 3.0),
        "torch_sin": ("torch.sin", lambda t: torch.sin(t), lambda t: t * 7),
        "torch_add": ("torch.add", lambda t: torch.add(t, 1), lambda t, n: t * 7),
        "torch_zeros": ("torch.zeros", lambda t: torch.zeros(3) + t, lambda n: 7.0),
        "torch_float32": ("torch.float32", lambda t: t.to(torch.float32), torch.float64),
        "functional_relu": ("torch.nn.functional.relu", lambda t: F.relu(t - 2), lambda t: t * 7),
        "functional_gelu": ("torch.nn.functional.gelu", lambda t: F.gelu(t), lambda t: t * 7),
        "functional_softmax": (
            "torch.nn.functional.softmax",
            lambda t: F.softmax(t, 0),
            lambda t, d: t * 7,
        ),
        "functional_dropout": (
            "torch.nn.functional.dropout",
            lambda t: F.dropout(t, 0.0),
            lambda t, p: t * 7,
        ),
        "inside_of_functional": ("torch.relu", lambda t: F.relu(t - 2), lambda t: t * 7),
        "linear_of_a_module": ("torch.nn.functional.linear", torch.nn.Identity(), lambda *a: 7),
        "tensor_method": ("torch.Tensor.sin", lambda t: t.sin(), lambda t: t * 7),
        "tensor_add": ("torch.Tensor.__add__", lambda t: t + 1, lambda t, n: t * 7),
        "tensor_radd": ("torch.Tensor.__radd__", lambda t: 1 + t, lambda t, n: t * 7),
        "tensor_neg": ("torch.Tensor.__neg__", lambda t: -t, lambda t: t * 7),
        "tensor_lt": ("torch.Tensor.__lt__", lambda t: t < 2, lambda t, n: t * 7),
        "tensor_getitem": ("torch.Tensor.__getitem__", lambda t: t[0], lambda t, n: t * 7),
        "tensor_len": ("torch.Tensor.__len__", lambda t: t * len(t), lambda t: 7),
        "tensor_property": ("torch.Tensor.ndim", lambda t: t * t.ndim, property(lambda t: 7)),
        "tensor_shape": (
            "torch.Tensor.shape",
            lambda t: t * len(t.shape),
            property(lambda t: (1, 2, 3)),
        ),
        "tensor_new_method": (
            "torch.Tensor.stale_method",
            lambda t: t.stale_method() if hasattr(t, "stale_method") else t * 2,
            lambda t: t * 7,
        ),
        "module_call": ("torch.nn.Module.__call__", torch.nn.ReLU(), lambda self, t: t * 7),
        "relu_forward": ("torch.nn.ReLU.forward", torch.nn.ReLU(), lambda self, t: t * 7),
        "module_getattr": ("torch.nn.Module.__getattr__", lambda t: t * 2, lambda self, name: 7),
        "is_tensor": (
            "torch.is_tensor",
            lambda t: t * 2 if torch.is_tensor(t) else t,
            lambda t: False,
        ),
        "ops": ("torch.ops.aten.sin", lambda t: torch.ops.aten.sin(t), lambda t: t * 7),
        "ops_overload": (
            "torch.ops.aten.sin.default",
            lambda t: torch.ops.aten.sin.default(t),
            lambda t: t * 7,
        ),
    },
)
def _patched(target, program, new=replaced):
    create = "stale" in target
    return World(program, *around(lambda: mock.patch(target, new, create=create)))
