"""capture.rules.messages: calls of `warnings` and `logging`, which are said after the graph has run (`write.messages`).

In: a call of `warnings` or `logging`. Out: it is noted (the journal's `deferred`) if it only tells something, and said when
the graph has run, before any other effect: a warning that is an error then finds nothing done, and the frame runs in
Python. What asks or changes settings is interpreted or left to Python.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, Final

import torch

from argand.capture.objects import polyfills
from argand.capture.objects.parts import Caller
from argand.capture.objects.tracer import places_of
from argand.capture.outside import real
from argand.capture.outside.journal import Deferred, Journal
from argand.support.errors import Break, CaptureBreak

MODULES: Final = frozenset({"warnings", "logging"})
_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "fatal": logging.CRITICAL,
}
_TELLS: Final = frozenset({*_LEVELS, "log"})
_FINDS: Final = frozenset({"getLogger"})  # makes it at most
_ASKS: Final = frozenset({"isEnabledFor", "getEffectiveLevel"})
# they ask what is being handled, or for the stack
_OF_NOW: Final = frozenset({"exc_info", "stack_info"})


def call(caller: Caller, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A function of `warnings` or `logging`."""
    name = function.__name__
    if name in _FINDS:
        return real.call(function, args, kwargs)
    if name in _ASKS:
        return caller.inline(function, args, kwargs)
    tensors = any(isinstance(value, torch.Tensor) for value in (*args, *kwargs.values()))
    if (
        name not in _TELLS
        or tensors
        or not _OF_NOW.isdisjoint(kwargs)
        or _is_redirected(caller.journal)
        or _is_heard_at_once(caller, function, args)
    ):
        raise CaptureBreak(Break.B007, None, function=function.__qualname__)
    caller.journal.deferred.append(Deferred(function, args, kwargs, places_of(caller.frames)))
    return None


def _is_heard_at_once(caller: Caller, function: Any, args: tuple[Any, ...]) -> bool:
    """Whether what hears the message may be code of the user's: the rest of the frame may ask what it did."""
    if function.__module__ != "logging":
        return not caller.sealed(polyfills.is_shown_plainly, (), {})
    is_method = "." in function.__qualname__
    logger = args[0] if is_method and args else logging.root
    if type(logger) not in (logging.Logger, logging.RootLogger):
        return True
    given = args[is_method] if len(args) > is_method else 0
    level = given if function.__name__ == "log" else _LEVELS[function.__name__]
    return bool(caller.sealed(polyfills.is_heard_at_once, (logger, level), {}))


def _is_redirected(journal: Journal) -> bool:
    """Whether the trace has changed who hears messages: those that come later must come after that."""
    writes, modules = (
        journal,
        [sys, *(sys.modules[name] for name in MODULES if name in sys.modules)],
    )
    changed = any(id(vars(module)) in writes.globals for module in modules)
    return changed or any(
        type(write.owner).__module__ in MODULES for write in writes.attributes.values()
    )
