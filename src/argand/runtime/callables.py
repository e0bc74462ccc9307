"""runtime.callables: puts compiled code back under the call the user already writes.

In: a function, method, callable object, class or module, and a region. Out: the same kind of thing,
whose calls run in the region. A compiled module is a second object over the *same* attributes as the
first (decision 0003): its state dict, hooks, training flag and parameters are the original's, it
copies and pickles as the original, and the original stays as it was.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

import torch
from typing_extensions import override

from argand.runtime import _native
from argand.runtime._native import Region, Switch

_CALL = "__call__"
_GENERATOR = "_argand_generator"  # of a switch: the function whose generators are run by steps
_GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
# what the questions of `inspect` look at
_OF_FUNCTIONS = ("__code__", "__defaults__", "__kwdefaults__")


def code_of(function: Any) -> types.CodeType | None:
    """The code a call of this runs first, if it is Python."""
    function = getattr(function, "__func__", function)
    if isinstance(function, functools.partial):
        return code_of(function.func)
    if isinstance(function, torch.nn.Module):
        return code_of(function.forward)
    code = getattr(function, "__code__", None)
    if code is None and not isinstance(function, type):
        code = getattr(getattr(type(function), _CALL, None), "__code__", None)
    return code if isinstance(code, types.CodeType) else None


def original(model: Any) -> Any:
    """What was compiled, if it was: compiling again replaces the backend and the options. Disabled things stay so."""
    if isinstance(model, CompiledModule):
        return original(model._argand_module)
    if isinstance(model, Switch) and model.region is not None:
        return original(model.__dict__.get(_GENERATOR, model.__wrapped__))
    if isinstance(model, types.MethodType) and isinstance(model.__func__, Switch):
        function = original(model.__func__)
        return model if function is model.__func__ else types.MethodType(function, model.__self__)
    return model


def compiled_callable(function: Callable[..., Any], region: Region | None) -> Switch:
    """A function, method or callable object that runs in a region (None: with the hook off)."""
    if region is not None:
        function = original(function)
    code = code_of(function)
    if code is not None and region is not None:
        _native.mark_code(code, True)  # the user named it, whatever file it is in
    if code is not None and region is not None and code.co_flags & _GENERATORS:
        return _compiled_generator(function, region)
    return _named(Switch(function, region), function)


def _compiled_generator(function: Any, region: Region) -> Any:
    """A function whose generators run in a region step by step. Called as it is where no function can be made of a step."""
    from argand.runtime.generators import stepping  # noqa: PLC0415  # rarely needed

    if isinstance(function, types.MethodType):
        return types.MethodType(_compiled_generator(function.__func__, region), function.__self__)
    if not isinstance(function, types.FunctionType):
        return _named(Switch(function, region), function)
    made = stepping(function, region)
    switch = _named(Switch(made or function, region), function)
    switch.__dict__[_GENERATOR] = function
    for name in _OF_FUNCTIONS:
        switch.__dict__[name] = getattr(function, name)
    return switch


def _named(switch: Switch, function: Any) -> Switch:
    for name in functools.WRAPPER_ASSIGNMENTS:
        with contextlib.suppress(AttributeError):
            setattr(switch, name, getattr(function, name))
    if isinstance(function, types.FunctionType | types.MethodType):
        switch.__dict__.update(function.__dict__)
    return switch


class CompiledModule:
    """What the class of a compiled module adds to the class of the original."""

    __slots__ = ()
    _argand_module: torch.nn.Module  # the original; a slot of the class made below

    @override
    def __init_subclass__(cls, **keywords: object) -> None:
        """Nothing: a class made to hold a compiled module is no subclass the user wrote."""

    def _user_class(self) -> type:
        return type(self._argand_module)

    def _set_user_class(self, value: type) -> None:
        self._argand_module.__class__ = value

    __class__ = property(_user_class, _set_user_class)

    def _compiled_forward(self) -> Any:
        switch = object.__getattribute__(self, _CALL)
        return compiled_callable(self._argand_module.forward, switch.region)

    def _set_forward(self, value: Any) -> None:
        self._argand_module.forward = value

    def _delete_forward(self) -> None:
        del self._argand_module.forward

    # called by hand it is compiled too
    forward = property(_compiled_forward, _set_forward, _delete_forward)

    @override
    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._argand_module.__reduce_ex__(protocol)

    def __copy__(self) -> torch.nn.Module:
        return copy.copy(self._argand_module)

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.nn.Module:
        return copy.deepcopy(self._argand_module, memo)


def compiled_module(module: torch.nn.Module, region: Region) -> torch.nn.Module:
    """A second object over the attributes of ``module``, whose calls run in a region."""
    module = original(module)
    kind = type(module)
    names = {"__slots__": (_CALL, "_argand_module"), "__module__": kind.__module__}
    names["__qualname__"] = kind.__qualname__
    # The call is a slot, so that calling finds the switch without a Python frame in between.
    made = types.new_class(
        kind.__name__, (CompiledModule, kind), {}, lambda body: body.update(names)
    )
    compiled: Any = object.__new__(made)
    object.__setattr__(compiled, "__dict__", module.__dict__)
    object.__setattr__(compiled, "_argand_module", module)
    object.__setattr__(compiled, _CALL, compiled_callable(module, region))
    result: torch.nn.Module = compiled
    return result


def compile_module_in_place(module: torch.nn.Module, region: Region) -> torch.nn.Module:
    """Make the calls of the module itself run in a region; torch leaves this out of pickles."""
    code = code_of(module)
    if code is not None:
        _native.mark_code(code, True)
    module._compiled_call_impl = Switch(module._call_impl, region)
    return module


def compiled_class(kind: type, region: Region) -> type:
    """Compile the calls of all instances of a class, as a decorator of it does."""
    name = "forward" if issubclass(kind, torch.nn.Module) else _CALL
    function = original(kind.__dict__.get(name) or getattr(kind, name, None))
    if function is None or (name == _CALL and not hasattr(function, "__code__")):
        raise TypeError(f"instances of {kind.__qualname__} cannot be called")
    setattr(kind, name, compiled_callable(function, region))
    return kind


def compiled(model: Any, region: Region) -> Any:
    """The compiled form of anything callable."""
    if isinstance(model, torch.nn.Module):
        return (
            model if isinstance(model, torch.jit.ScriptModule) else compiled_module(model, region)
        )
    if isinstance(model, type):
        return compiled_class(model, region)
    if isinstance(model, staticmethod | classmethod):
        return type(model)(compiled_callable(model.__func__, region))
    if not callable(model):
        raise TypeError(f"argand.compile takes a callable or a module, got {type(model).__name__}")
    return compiled_callable(model, region)
