"""support.errors: the error tree, and the reasons why capture stops, one row each.

Three kinds of failure (style 10): a capture break is no error, the frame continues in Python; a user
error says what, where and how to fix it; an internal error is our bug and names the stage.
"""

from __future__ import annotations

import difflib
import enum
from collections.abc import Iterable
from typing import Any, Final, final

from typing_extensions import override  # typing has it in newer versions only

from argand.support.dataclass import dataclass


@final
@dataclass(frozen=True, slots=True)
class Location:
    """A line of the user's program."""

    file: str
    line: int
    function: str = ""

    @override
    def __str__(self) -> str:
        place = f"{self.file}:{self.line}"
        return f"{place} in {self.function}" if self.function else place


def guess(name: str, names: Iterable[str], most: int = 1) -> str:
    """The beginning of a hint on a wrong name: those that are near; nothing if none is."""
    near = difflib.get_close_matches(name, list(names), n=most)
    return f"did you mean {' or '.join(map(repr, near))}? " if near else ""


class ArgandError(RuntimeError):
    """Base of every error Argand raises itself; user exceptions are never wrapped in it."""


class UserError(ArgandError):
    """Misuse of an Argand name: what is wrong, where, and how to fix it."""

    def __init__(self, what: str, *, where: Location | None = None, hint: str = "") -> None:
        self.what, self.where, self.hint = what, where, hint
        text = what if where is None else f"{what}\n  at {where}"
        super().__init__(f"{text}\n  hint: {hint}" if hint else text)


class OptionError(UserError):
    """An unknown option or one of the wrong type; lists the valid ones."""


class ResultsDiffer(UserError):
    """``verify="results"``: compiled code and eager gave different results; says which, and where."""


class UnsupportedPython(UserError):
    """This interpreter is none that Argand runs on, or its C extension was not built for it."""


class InvalidBackend(UserError):
    """No backend of that name; offers near matches."""


class RecompileLimitExceeded(UserError):
    """A function was compiled too often under ``fullgraph=True`` or a strict stance."""


class BackendCompilerFailed(ArgandError):
    """A backend raised, or returned something that cannot be called."""

    def __init__(self, backend_name: str, inner: BaseException) -> None:
        self.backend_name, self.inner_exception = backend_name, inner
        super().__init__(f"backend {backend_name!r} raised:\n{type(inner).__name__}: {inner}")


class InternalError(ArgandError):
    """Our bug: names the stage and, when there is one, holds a dump of what it worked on."""

    SHOWN: Final = 30  # lines of a message

    def __init__(self, stage: str, message: str, *, dump: str = "") -> None:
        self.stage, self.message, self.dump = stage, message, dump
        lines = [f"in stage {stage!r}: {message}", *dump.splitlines()]
        if len(lines) > self.SHOWN:
            lines[self.SHOWN :] = [
                f"... {len(lines) - self.SHOWN} more lines in the error's `dump`"
            ]
        super().__init__("\n".join(lines))


class Break(enum.Enum):
    """Why capture stopped, and what the user can do. Ids are stable: add rows, never renumber."""

    B001 = (
        "opcode {opname} is not handled on Python {version}",
        "rewrite the statement, or report it",
    )
    B002 = (
        "call of {function}, which is not Python code Argand can read",
        "move the call out of the compiled function, or mark it with argand.allow_in_graph",
    )
    B003 = (
        "branch on the value of a tensor",
        "use torch.where, or keep the branch out of the graph",
    )
    B004 = ("{method} reads the value of a tensor", "keep the value as a tensor")
    B005 = ("argand.graph_break() was called", "remove the call")
    B006 = ("{function} is marked with argand.disable", "remove the mark")
    B007 = ("{function} prints or logs", "print outside the compiled function")
    B008 = (
        "an operator has an output size that depends on data: {op}",
        "use an operator of fixed output size such as torch.where",
    )
    B021 = (
        "{function} looks at the stack of calls, so the whole function runs in Python",
        "call it outside of the compiled function",
    )
    B022 = (
        "{error} came up while tracing inside of a `try` or `with`: only eager knows whether it is right",
        "move the operation out of the block",
    )
    B023 = ("the trace raised {error}, which eager does not", "report it")
    B020 = (
        "{function} cannot be resumed here: {reason}",
        "move what breaks the graph out of this function",
    )
    B009 = (
        "a value of type {type} cannot be an argument of a graph node",
        "pass tensors and numbers",
    )
    B010 = (
        "a tensor Argand does not trace: {type}",
        "use plain strided CPU tensors in the compiled function",
    )
    B011 = ("{type} comes from outside and cannot be read in a trace", "pass plain containers")
    B012 = ("{what} cannot be rebuilt after a graph break", "make it after the break")
    B013 = ("{what} is left to Python", "move it out of the compiled function")
    B015 = (
        "{kind} functions are not captured themselves",
        "call them inside of a compiled function",
    )

    B017 = (
        "the program depends on data, by a size known only when it runs: {what}",
        "say what holds with torch._check, such as torch._check(n <= x.shape[0])",
    )

    B024 = (
        "{operator} cannot be captured: {reason}",
        "its functions must be pure functions of tensors; see docs/control-flow.md",
    )

    @property
    def text(self) -> str:
        """The reason, a template over the details of the break."""
        return str(self.value[0])

    @property
    def hint(self) -> str:
        """What the user can do about it."""
        return str(self.value[1])


class _Details(dict[str, str]):
    """Details of a break; one that was not given stays visible as its name, a break never crashes."""

    def __missing__(self, name: str) -> str:
        return f"<{name}>"


class CaptureBreak(ArgandError):
    """Capture stops here: the one thing that stopped it runs in Python, then capture resumes."""

    def __init__(self, row: Break, where: Location | None = None, **details: object) -> None:
        self.row, self.where, self.details = row, where, details
        reason = row.text.format_map(_Details({k: str(v) for k, v in details.items()}))
        self.reason = f"{row.name}: {reason}"
        self.stack: tuple[Location, ...] = ()  # of the user, outermost first
        self.frames: list[Any] = []  # interpreter frames it went through, innermost first
        self.native = False  # it passed native code, which cannot be resumed
        self.edit = (
            ""  # the place to mend, as nodes keep places, where it is not where capture stopped
        )
        super().__init__(self.reason if where is None else f"{self.reason} [{where}]")

    def locate(self, where: Location, stack: tuple[Location, ...]) -> None:
        """Note where it happened; raised deep inside, it does not know."""
        self.where, self.stack = where, stack
        self.args = (f"{self.reason} [{where}]",)

    def described(self) -> dict[str, Any]:
        """The same as data, for reports."""
        return {
            "id": self.row.name,
            "reason": self.reason,
            "hint": self.row.hint,
            "where": self.where,
            "stack": self.stack,
            "edit": self.edit,
        }


class CaptureError(UserError):
    """``fullgraph=True`` met a graph break: reason id, the user's stack, and a hint."""

    def __init__(self, cause: CaptureBreak, stack: tuple[Location, ...] = ()) -> None:
        self.cause, self.stack, self.row = cause, stack, cause.row
        frames = "".join(f"\n  {frame}" for frame in stack)
        super().__init__(
            f"{cause.reason}{frames}", hint=cause.row.hint, where=cause.where if not stack else None
        )
