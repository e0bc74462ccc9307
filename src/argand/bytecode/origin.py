"""bytecode.origin: which code a resume function was made of.

In: a code object. Out: whether `make_resume` made it, and of what. Asked of every frame, also where nothing else of
bytecode is: so it stands alone.
"""

from __future__ import annotations

from types import CodeType
from typing import NamedTuple


class Origin(NamedTuple):
    """Where a resume function's code was copied from; the last of its constants.

    A loop that breaks in its body resumes in a copy of itself, which breaks there again: by going back to the first
    code object, the second resume function is the first one, and no chain of copies of copies begins.
    """

    code: CodeType
    places: tuple[int, ...]  # index -> index in `code`, -1 in the prologue
    # index, stack, bound, thunk, raises: `make_resume` makes it again of them
    request: tuple[object, ...]

    @staticmethod
    def of(code: CodeType, index: int) -> tuple[CodeType, int]:
        """The first code object, and the place in it; `code` and `index` where there is none."""
        last = code.co_consts[-1] if code.co_consts else None
        if isinstance(last, Origin) and last.places[index] >= 0:
            return last.code, last.places[index]
        return code, index


def is_resume(code: CodeType) -> bool:
    """Whether `make_resume` made it."""
    return bool(code.co_consts) and isinstance(code.co_consts[-1], Origin)


def original_code(code: CodeType) -> CodeType:
    """The code a resume function was made of; other code itself."""
    last = code.co_consts[-1] if code.co_consts else None
    return last.code if isinstance(last, Origin) else code
