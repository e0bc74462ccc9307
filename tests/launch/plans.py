"""Plans made by hand."""

from argand.runtime.plan_rows import plan_rows
from argand.runtime.plans import link


def Plan(inputs, buffers, steps, returns, arena_bytes=0, keep=None, numbers=()):
    """The C plan of buffers and steps; `keep` is whatever owns the machine code."""
    return link(plan_rows(inputs, buffers, steps, returns, arena_bytes, numbers), {}, keep)
