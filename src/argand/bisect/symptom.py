"""bisect.symptom: what is wrong, as far as it must stay the same while everything else is taken away.

In: a `Trial`. Out: a `Symptom`; two trials that fail in the same way have equal ones. A difference is known by what differs
(values, strides, side effects), an exception by its class and the words of its text without numbers, a crash by its signal.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, final

from argand.report.trials import CRASHES, DIFFERS, EXITS, HANGS, RAISES, SLOW, Trial

WORDS: Final = {
    DIFFERS: "compiled code gives other results than eager",
    SLOW: "compiled code is slower than eager",
    RAISES: "it raises",
    EXITS: "it ends with an exit code",
    CRASHES: "the process crashes",
    HANGS: "there is no end",
}
_WHAT: Final = re.compile(r": ([a-z_ ]+) differ\b")
_LETTERS: Final = 40  # of an exception's text


@final
class Symptom(NamedTuple):
    """A kind of failure."""

    kind: str
    what: str

    @property
    def words(self) -> str:
        """For people."""
        return WORDS.get(self.kind, self.kind)


def symptom_of(trial: Trial) -> Symptom | None:
    """How a trial failed; None: it did not."""
    if trial.is_good:
        return None
    return Symptom(trial.kind, _what(trial))


def _what(trial: Trial) -> str:
    if trial.kind in (DIFFERS, SLOW):
        found = _WHAT.search(trial.text)
        return found[1] if found else ""
    if trial.kind == RAISES:
        name, _, text = trial.text.partition(":")
        return f"{name}:{re.sub(r'[^a-z ]', '', text.lower())[:_LETTERS]}"
    return trial.text
