"""support.options: every switch of the compiler, in one frozen object (style 12).

In: what the user gave as ``mode=`` and ``options=``, and the environment. Out: ``Options``, hashable,
part of every cache key. Fails with ``OptionError``, which lists what is valid.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import Final, NamedTuple, final

from argand.support.dataclass import Field, dataclass, fields_of
from argand.support.errors import OptionError, guess
from argand.support.switches import read as read_switches


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a user may set; each field says why it exists."""

    # a graph break is an error: the user wants one graph or to know why not
    fullgraph: bool = False
    dynamic: bool | None = None  # None: a size becomes symbolic when it changes
    recompile_limit: int = 8  # versions compiled of one function; then it runs in eager
    strict: bool = False  # raise internal failures instead of falling back to eager
    # "forms": the output of every stage is checked; "results": calls are compared with eager, too
    verify: str = ""
    # kernels check every address they read and write; slow, to find a bad index
    checked_kernels: bool = False
    fusion: bool = True  # off: one kernel per operator, to find a fault
    max_fusion: int = 64  # ops per kernel; more only adds register pressure
    opt_level: int = 2  # LLVM -O level of kernels; fast-compile uses 1
    fallback_random: bool = False  # draw random numbers exactly as eager would
    memory_budget: float = 1.0  # 1 saves what is fastest, 0 recomputes everything in backward
    measure: bool = True  # the first calls take turns with eager, then the faster one runs
    cache: bool = True  # read and write the disk cache
    # you promise that weights keep their values: packed copies are not compared again
    freeze: bool = False
    # empty: kernels run where the inputs are; "graphs": launches are recorded (GPUs)
    target: str = ""
    name: str = ""  # added to the function's name in logs and events
    # parts of the compiler to do without, by name (support.switches): for `argand bisect`
    off: str = ""
    background: bool = False  # first calls run in eager while a thread compiles
    # seconds of compiling per function; then what is ready is kept. 0: no limit
    compile_seconds: float = 0.0
    # a folder for the text of every stage; the disk cache is not used then
    debug_dir: str = ""
    cache_dir: str = ""  # empty: the XDG cache directory of the user


# What is verified. "report" is "results" for a whole program: a difference is reported, and the program continues. So it does
# with "times", which compares these.
VERIFY: Final = ("", "forms", "results", "report", "times")
COMPARING: Final = ("results", "report", "times")

MODES: Final[Mapping[str, Mapping[str, object]]] = {
    "default": {},
    "fast-compile": {"opt_level": 1, "max_fusion": 32},
    "max-performance": {"opt_level": 3},
    # names of the peer, so that `torch.compile` can be dropped without editing the call
    "reduce-overhead": {"target": "graphs"},
    "max-autotune": {"opt_level": 3, "target": "graphs"},
    "max-autotune-no-cudagraphs": {"opt_level": 3},
}


class Environment(NamedTuple):
    """What Argand reads from the environment, and nothing else reads it (once per process)."""

    logs: str = ""  # ARGAND_LOGS: artefacts to print, TORCH_LOGS syntax
    disable: bool = False  # ARGAND_DISABLE=1: argand.compile returns its argument
    # ARGAND_UNSUPPORTED=eager: on other Pythons functions run uncompiled, with one warning
    unsupported: str = ""
    cache_home: str = ""  # XDG_CACHE_HOME: where the disk cache lives
    report: str = ""  # ARGAND_REPORT: a folder for a report of this process
    # ARGAND_PROGRESS=0: long compiles show nothing; 1: a line in the logs without a terminal
    progress: str = ""
    perf: bool = False  # ARGAND_PERF=1: names of kernels for `perf report`, in /tmp/perf-PID.map
    gdb: bool = False  # ARGAND_GDB=1: gdb knows kernels by name and line
    # ARGAND_OPTIONS="verify=1,fusion=0": options of every compile
    options: tuple[tuple[str, str], ...] = ()


@functools.cache
def read_environment() -> Environment:
    """The environment at the first use."""
    pairs = os.environ.get("ARGAND_OPTIONS", "")
    items = tuple(
        (name.strip(), value.strip())
        for name, _, value in (item.partition("=") for item in pairs.split(",") if item.strip())
    )
    return Environment(
        logs=os.environ.get("ARGAND_LOGS", ""),
        disable=os.environ.get("ARGAND_DISABLE", "") == "1",
        unsupported=os.environ.get("ARGAND_UNSUPPORTED", ""),
        cache_home=os.environ.get("XDG_CACHE_HOME", ""),
        report=os.environ.get("ARGAND_REPORT", ""),
        progress=os.environ.get("ARGAND_PROGRESS", ""),
        perf=os.environ.get("ARGAND_PERF", "") == "1",
        gdb=os.environ.get("ARGAND_GDB", "") == "1",
        options=items,
    )


def _fields() -> dict[str, Field]:
    return {field.name: field for field in fields_of(Options)}


def _reject(name: str) -> OptionError:
    hint = f"{guess(name, _fields())}valid options: {', '.join(sorted(_fields()))}"
    return OptionError(f"unknown option {name!r}", hint=hint)


def _check(name: str, value: object) -> object:
    default = _fields()[name].default
    if name == "verify":
        return _check_verify(value)
    if name == "dynamic":
        accepted: tuple[type, ...] = (bool, type(None))
    elif isinstance(default, float):
        accepted = (float, int)
    else:
        accepted = (type(default),)
    if not isinstance(value, accepted) or (isinstance(value, bool) and bool not in accepted):
        names = " or ".join(kind.__name__ for kind in accepted)
        raise OptionError(f"option {name!r} must be {names}, got {type(value).__name__} {value!r}")
    return float(value) if isinstance(default, float) and isinstance(value, int) else value


def _check_verify(value: object) -> str:
    """True and False are its old values, and still the shortest."""
    word = {True: "forms", False: ""}.get(value, value) if isinstance(value, bool) else value
    if not isinstance(word, str) or word not in VERIFY:
        names = ", ".join(repr(name) for name in VERIFY)
        raise OptionError(
            f"option 'verify' cannot be {value!r}", hint=f"valid: True, False, {names}"
        )
    return word


TRUE_WORDS: Final = frozenset({"1", "true", "yes", "on"})
FALSE_WORDS: Final = frozenset({"0", "false", "no", "off"})


def _from_text(name: str, text: str) -> object:
    """The value of an option given as text in ARGAND_OPTIONS."""
    if name not in _fields():
        raise _reject(name)
    default = _fields()[name].default
    word = text.lower()
    if name == "verify":
        return True if word in TRUE_WORDS else False if word in FALSE_WORDS else word
    if default is None and word == "none":
        return None
    if isinstance(default, bool) or default is None:
        if word not in TRUE_WORDS | FALSE_WORDS:
            valid = ", ".join(sorted(TRUE_WORDS | FALSE_WORDS))
            raise OptionError(f"option {name!r} cannot be {text!r}", hint=f"valid words: {valid}")
        return word in TRUE_WORDS
    kind: type = type(default)
    try:
        return kind(text)
    except ValueError as error:
        raise OptionError(f"option {name!r} must be {kind.__name__}, got {text!r}") from error


def make_options(
    mode: str | None = None, given: Mapping[str, object] | None = None, **arguments: object
) -> Options:
    """Options from a mode or a mapping (not both), the environment, and arguments of compile()."""
    if mode is not None and given:
        raise OptionError(
            "mode and options cannot be given together", hint="put the mode's settings into options"
        )
    if mode is not None and mode not in MODES:
        raise OptionError(f"unknown mode {mode!r}", hint=f"valid modes: {', '.join(MODES)}")
    values: dict[str, object] = {
        name: _from_text(name, text) for name, text in read_environment().options
    }
    values |= dict(MODES[mode]) if mode is not None else {}
    for key, value in (given or {}).items():
        name = str(key).replace("-", "_")
        if name not in _fields():
            raise _reject(name)
        values[name] = value
    values |= arguments
    if values.get("debug_dir"):
        values["cache"] = False
    if values.get("off"):
        read_switches(str(values["off"]))
    # compiled code runs at every call, and draws what eager draws
    if values.get("verify") in COMPARING:
        values |= {"cache": False, "measure": False, "fallback_random": True, "background": False}
    return Options(**{name: _check(name, value) for name, value in values.items()})  # type: ignore[arg-type]
