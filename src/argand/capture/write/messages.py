"""capture.write.messages: statements that say the warnings and log lines of a trace, at the user's place.

In: the journal's `deferred`. Out: statements after the graph, before all other effects.
"""

from __future__ import annotations

from typing import Any

from argand.capture.write.rebuild import Rebuilder
from argand.capture.write.reruns import write_try


def write_messages(rebuilder: Rebuilder, state: tuple[Any, ...]) -> None:
    """Say everything; `state` is torch's at the beginning of the frame."""
    changes = rebuilder.tracer.recorder.changes_inputs()
    for call in rebuilder.tracer.journal.deferred:
        keywords = ", ".join(
            f"{name!r}: {rebuilder.value(value)}" for name, value in call.kwargs.items()
        )
        items = "".join(f"{rebuilder.value(value)}, " for value in call.args)
        said = f"at({call.places!r}, {rebuilder.value(call.function)}, ({items}), {{{keywords}}})"
        lines = write_try(rebuilder, said, state)
        for line in [said] if changes else lines:
            rebuilder.emit(line)
