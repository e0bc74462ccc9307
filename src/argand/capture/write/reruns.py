"""capture.write.reruns: a graph that raises is no answer.

In: the statement that runs a graph. Out: the same in a `try`; when it raises, the frame runs in Python from its beginning.
The journal is applied after the graph, so nothing has happened yet that eager would do again, and what eager raises has its
type, text and place, and is seen by the user's handlers. Where the graph changes its inputs, what they held is kept only
if a handler could see the difference; otherwise the graph's own exception comes out. Nothing need be kept where a graph
is ``repeatable`` although it changes its inputs: what it leaves behind is written anew before it is read.
"""

from __future__ import annotations

import inspect
from typing import Any, Final

from argand.capture.generated.again import NAMES
from argand.capture.write.rebuild import Rebuilder
from argand.runtime.sources import FrameFunction, Local

_FUNCTION: Final = FrameFunction()


def arguments(rebuilder: Rebuilder) -> str:
    """The arguments of the frame, as a call has them."""
    tracer: Any = rebuilder.tracer
    code = tracer.root.code
    names, star, stars = inspect.getargs(code)
    rows = [("", name) for name in names[: code.co_argcount]]
    if star:
        rows.append(("*", star))
    rows += [(f"{name}=", name) for name in names[code.co_argcount :]]
    if stars:
        rows.append(("**", stars))
    return ", ".join(
        form + rebuilder.source(tracer.world.child(Local, None, name)) for form, name in rows
    )


def write_attempt(
    rebuilder: Rebuilder, statement: str, state: tuple[Any, ...], repeatable: bool
) -> list[str]:
    """A statement, and what happens when it raises. `state` is torch's at the beginning of the frame."""
    tracer = rebuilder.tracer
    recorder = tracer.recorder
    changed = [] if repeatable else recorder.changed_inputs()
    changes = not repeatable and recorder.changes_inputs()
    if changes and not recorder.handled:
        return [statement]
    head, kept = [], ""
    random = recorder.draws()
    if recorder.handled and (changes or random):
        tensors = "".join(f"{rebuilder.source(known.source)}, " for known in changed)
        head.append(f"before = Before(({tensors}), {random})")
        kept = ", before"
    return [*head, *write_try(rebuilder, statement, state, kept)]


def write_try(
    rebuilder: Rebuilder, statement: str, state: tuple[Any, ...], kept: str = ""
) -> list[str]:
    """A statement; when it raises, the frame runs in Python."""
    tracer = rebuilder.tracer
    rebuilder.namespace.update(NAMES)
    if tracer.root is None or tracer.root.function is None:
        return [statement]
    saved = rebuilder.constant(state) if tracer.recorder.effects else "()"
    strict = tracer.options.strict or tracer.options.fullgraph
    made = f"again(failed, {rebuilder.source(_FUNCTION)}, {saved}, {strict}{kept})"
    return [
        "failed = None",
        f"try: {statement}",
        "except Exception as error: failed = error",
        f"if failed is not None: return {made}({arguments(rebuilder)})",
    ]
