"""Entries made by hand: the runtime without capture."""

from argand.runtime import _native, skips
from argand.runtime.guard_programs import compile_guards


class HandMade:
    """A compiled function whose entry has the given guards; a hit returns what was collected."""

    def __init__(self, function, rows, collect=(), target=None):
        _native.set_skip_rule(skips.should_skip)
        self.function, self.rows, self.collect = function, rows, collect
        self.target = target or collected
        self.misses = []
        self.region = _native.Region(self.on_miss)
        self.compiled = _native.Switch(function, self.region)

    def on_miss(self, view):
        if view.code is not self.function.__code__:
            return None
        self.misses.append(view)
        rows = self.rows(view) if callable(self.rows) else self.rows
        program = compile_guards(rows, self.collect, view.code)
        return _native.Entry(program, self.target)

    def __call__(self, *args, **kwargs):
        return self.compiled(*args, **kwargs)

    @property
    def entries(self):
        return self.region.entries(self.function.__code__)


def collected(*values):
    return ("hit", *values)


_native.mark_code(collected.__code__, False)


def locals_of(view):
    names = [view.code._varname_from_oparg(i) for i in range(len(view.localsplus))]
    return dict(zip(names, view.localsplus, strict=True))
