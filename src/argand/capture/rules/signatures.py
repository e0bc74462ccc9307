"""capture.rules.signatures: questions about the signature of a function, which another process can ask again."""

from __future__ import annotations

import inspect
import types
from typing import Any

from argand.capture.markers import Args, Kwargs
from argand.capture.outside.kinds import is_constant
from argand.capture.outside.state import Outside


def asks_signature(outside: Outside, function: Any, args: Args, kwargs: Kwargs) -> bool:
    """`inspect.signature` of one function, or of a method: another process can ask the same."""
    asked = (
        args[0].__func__
        if args and type(args[0]) is types.MethodType
        else args[0]
        if args
        else None
    )
    if (
        function is not inspect.signature
        or len(args) > 1
        or kwargs
        or type(asked) is not types.FunctionType
    ):
        return False
    if id(asked) in outside.world.made or not is_constant(
        (asked.__defaults__, *(asked.__kwdefaults__ or {}).values())
    ):
        return False
    # its code is looked at at each call
    outside.world.inlined[id(asked)] = outside.world.signed[id(asked)] = asked
    return True
