"""A stand-in for runtime's hook: captures one function call and runs what came out of it."""

import functools
import types

import torch

from argand.capture.finish import Captured
from argand.capture.trace import capture_frame
from argand.runtime import guards as g
from argand.support.options import make_options


def eager(gm, inputs):
    return gm


class Driver:
    """Captures a function for given arguments; collects graphs; resume functions run in Python."""

    def __init__(self, backend=eager, **options):
        self.graphs = []
        self.captured = []
        self.backend = backend
        self.options = make_options(None, {"strict": True, **options})

    def _backend(self, gm, inputs):
        self.graphs.append(gm)
        return self.backend(gm, inputs)

    def capture(self, function, *args, **kwargs):
        import inspect

        bound = inspect.signature(function).bind(*args, **kwargs)
        bound.apply_defaults()
        code = function.__code__
        values = tuple(bound.arguments[n] for n in inspect.signature(function).parameters)
        names = list(inspect.signature(function).parameters)
        order = {n: v for n, v in zip(names, values)}
        count = (
            code.co_argcount
            + code.co_kwonlyargcount
            + bool(code.co_flags & 4)
            + bool(code.co_flags & 8)
        )
        localsplus = tuple(order[n] for n in code.co_varnames[:count])
        result = capture_frame(
            code,
            function,
            localsplus,
            function.__globals__,
            function.__builtins__,
            backend=self._backend,
            options=self.options,
        )
        self.captured.append(result)
        return result, order

    def __call__(self, function, *args, **kwargs):
        result, order = self.capture(function, *args, **kwargs)
        assert isinstance(result, Captured), result
        values = [evaluate(s, function, order) for s in result.collect]
        return result.target(*values)


def evaluate(source, function, order):
    again = functools.partial(evaluate, function=function, order=order)
    match source:
        case g.Local(name):
            return order[name]
        case g.Cell(name):
            if name in function.__code__.co_freevars:
                return function.__closure__[function.__code__.co_freevars.index(name)].cell_contents
            return order[name]
        case g.Global(name):
            return function.__globals__[name]
        case g.Builtin(name):
            return function.__builtins__[name]
        case g.FrameFunction():
            return function
        case g.ClosureCell(base, i):
            return again(base).__closure__[i]
        case g.Closure(base, i):
            return again(base).__closure__[i].cell_contents
        case g.Const(value):
            return value
        case g.Attr(base, name):
            return getattr(again(base), name)
        case g.DictAttr(base, name):
            return again(base).__dict__[name]
        case g.Item(base, key):
            owner = again(base)
            return dict.__getitem__(owner, key) if isinstance(owner, dict) else owner[key]
        case g.Defaults(base, i):
            return again(base).__defaults__[i]
        case g.KwDefaults(base, name):
            return again(base).__kwdefaults__[name]
        case g.TypeOf(base):
            return type(again(base))
        case g.TypeAttr(base, name):
            kind = again(base)
            return next(b.__dict__[name] for b in kind.__mro__ if name in b.__dict__)
        case g.DictOf(base):
            return again(base).__dict__
    raise TypeError(source)
