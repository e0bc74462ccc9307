"""runtime.describe: says which guard failed, in the user's words, with both values.

In: a guard program and the view of a frame it refused. Out: ``Failure``, whose text reads like
"`self.scale` was 2.0, is 3.0 [model.py:31]", and what the user can do about it.
"""

from __future__ import annotations

import re
import weakref
from typing import Any, Final, NamedTuple, final

import torch
from typing_extensions import override

from argand.bytecode.origin import original_code
from argand.runtime import sources, state
from argand.runtime._native import NULL, FrameView
from argand.runtime.guard_programs import GuardProgram
from argand.runtime.guards import Guard, GuardKind, TensorSpec, tensor_spec
from argand.runtime.sources import Source
from argand.support.errors import Location

_LIMIT: Final = 60  # characters of a shown value


@final
class Failure(NamedTuple):
    """Why a guard program refused a frame."""

    change: str
    hint: str
    where: Location | None = None

    @override
    def __str__(self) -> str:
        return f"{self.change} [{self.where}]" if self.where else self.change


def evaluate(source: Source, view: FrameView) -> Any:
    """The value of a source in a frame's world; NULL when it has none."""
    try:
        match source:
            case sources.Local(name) | sources.Cell(name):
                return _variable(name, view)
            case sources.Global(name):
                return view.globals.get(name, NULL)
            case sources.Builtin(name):
                return view.builtins.get(name, NULL)
            case sources.FrameFunction():
                return view.function
            case sources.Const(value):
                return value
            case sources.Object(reference):
                return NULL if reference() is None else reference()
            case _:
                return NULL if source.base is None else step(source, evaluate(source.base, view))
    except Exception:  # whatever user code raises here, the source has no value
        return NULL


def step(source: Source, base: Any) -> Any:
    """The value of a source, from the value of its base."""
    try:
        return NULL if base is NULL else _step(source, base)
    except Exception:
        return NULL


def _variable(name: str, view: FrameView) -> Any:
    code = view.code
    names = [code._varname_from_oparg(i) for i in range(len(view.localsplus))]  # type: ignore[attr-defined]
    value = view.localsplus[names.index(name)]
    return value.cell_contents if name in code.co_freevars else value


def _step(source: Any, base: Any) -> Any:
    match source:
        case sources.Attr(_, name):
            return getattr(base, name)
        case sources.DictAttr(_, name):
            return vars(base).get(name, NULL)
        case sources.DictOf():
            return vars(base)
        case sources.Item(_, key):
            return _item(base, key)
        case sources.ClosureCell(_, index):
            return base.__closure__[index]
        case sources.Closure(_, index):
            return base.__closure__[index].cell_contents
        case sources.Defaults(_, index):
            return base.__defaults__[index]
        case sources.KwDefaults(_, name):
            return base.__kwdefaults__[name]
        case sources.TypeOf():
            return type(base)
        case sources.TypeAttr(_, name):
            found = [vars(kind)[name] for kind in base.__mro__ if name in vars(kind)]
            return found[0] if found else NULL
        case sources.SizeOf(_, dim):
            return base.shape[dim]
        case _:  # whatever else has no base, and has no value
            return _rare(source, base)


def _item(base: Any, key: Any) -> Any:
    """An item of a plain container, as guards read it; what else can be indexed would run code of its own."""
    if isinstance(base, dict):
        return dict.get(base, key, NULL)
    if isinstance(base, tuple):
        return tuple.__getitem__(base, key)
    return list.__getitem__(base, key) if isinstance(base, list) else NULL


def _rare(source: Any, base: Any) -> Any:
    if isinstance(source, sources.Keyed):
        return dict.get(base, source.reference(), NULL)
    if isinstance(source, sources.MadeFrom):
        return source.function(base)
    if isinstance(source, sources.StrideOf):
        return source.evaluate(base)
    return base.storage_offset() if isinstance(source, sources.OffsetOf) else base // source.divisor


def show(value: object) -> str:
    """A value for a message: short, and never running into an error."""
    if value is NULL:
        return "not set"
    if isinstance(value, weakref.ref):
        alive = value()
        return "an object that is gone" if alive is None else show(alive)
    if isinstance(value, type):
        return value.__qualname__
    if isinstance(value, torch.Tensor):
        return f"a tensor {list(value.shape)}"
    try:
        text = repr(value)
    except Exception:
        text = object.__repr__(value)
    return text if len(text) <= _LIMIT else f"{text[: _LIMIT - 3]}..."


def explain(program: GuardProgram, view: FrameView) -> Failure | None:
    """Which guard refuses this frame; None when they hold."""
    number = program.check(view)
    if isinstance(number, tuple):
        return None
    if number < 0:
        return Failure("a value the compiled code needs is gone", "keep the object alive")
    guard = program.guards[number]
    change, hint = _describe(guard, view)
    change, hint = (
        _PENDING.sub(lambda found: _pending_name(found, view), text) for text in (change, hint)
    )
    if _AT_A_BREAK.search(change):
        change, hint = _AT_A_BREAK.sub(_BROKEN_VALUE, change), _OF_A_BREAK
    return Failure(change, hint, guard.where)


# What stood on the stack where the graph broke: the result of what broke it, or values of the same line.
_AT_A_BREAK: Final = re.compile(r"___+stack_\d+")
_BROKEN_VALUE: Final = "(value at the graph break)"
_OF_A_BREAK: Final = "it comes from the graph break on this line: mend that, and this goes with it"
# What a resume function is to do first, and in it the arguments of a resume function of a callee, of one of its, and so on.
_PENDING: Final = re.compile(r"(___+\w+)((?:\.args\[\d+\])+)")


def is_of_a_break(change: str) -> bool:
    """Whether what changed is a value that stood on the stack where a graph broke."""
    return _BROKEN_VALUE in change


def _pending_name(found: re.Match[str], view: FrameView) -> str:
    """The variable as its function calls it, where a callee broke the graph and is continued: "top in clip"."""
    name, held = found[0], _variable(found[1], view)
    for place in re.findall(r"\d+", found[2]):
        code = getattr(getattr(held, "func", None), "__code__", None)
        if code is None:
            return found[0]
        variable, held = code.co_varnames[int(place)], held.args[int(place)]
        name = f"{variable} in {original_code(code).co_name}"
    return name


def _describe(guard: Guard, view: FrameView) -> tuple[str, str]:  # noqa: C901, one row per kind
    """What changed, and what to do about it."""
    name, expected = str(guard.source), guard.expected
    if guard.kind is GuardKind.GLOBAL_STATE:
        found = state.differences(expected) if expected else []
        return "; ".join(found) or "torch's global state changed", "call it in one such state"
    if guard.kind is GuardKind.TABLES:
        return (
            expected.changed() or "a module, class or function changed",
            "do not patch it between calls",
        )
    now: Any = evaluate(guard.source, view) if guard.source is not None else NULL
    if now is NULL and guard.kind is not GuardKind.MISSING:
        return f"`{name}` is not set any more", "keep it set"
    match guard.kind:
        case GuardKind.TENSOR:
            return _describe_tensor(name, expected, now)
        case GuardKind.TYPE_IS:
            return _was(f"type({name})", expected, type(now)), f"pass `{name}` in one type"
        case GuardKind.LENGTH:
            return _was(f"len({name})", expected, len(now)), f"keep the length of `{name}`"
        case GuardKind.OBJECT_KEYS:
            return f"the keys of `{name}` changed", f"keep the keys of `{name}`"
        case GuardKind.DICT_KEYS:
            return _was(f"list({name})", list(expected), list(now)), f"keep the keys of `{name}`"
        case GuardKind.HAS_ATTR | GuardKind.NO_ATTR:
            was = guard.kind is GuardKind.HAS_ATTR
            return _was(f"hasattr({name}, {expected!r})", was, not was), "set it before compiling"
        case GuardKind.DICT_CONTAINS | GuardKind.DICT_MISSING:
            was = guard.kind is GuardKind.DICT_CONTAINS
            return _was(f"{expected!r} in {name}", was, not was), f"keep the keys of `{name}`"
        case GuardKind.NOT_ALIASED | GuardKind.NO_OVERLAP:
            what = "object" if guard.kind is GuardKind.NOT_ALIASED else "memory"
            others = ", ".join(f"`{source}`" for source in expected)
            return f"`{name}` and {others} shared no {what}, now do", "pass copies"
        case GuardKind.SAME_OBJECT:
            return _was(f"{name} is {expected}", True, False), "pass one object"
        case GuardKind.MISSING:
            return f"`{name}` was not set, is {show(now)}", "set it before compiling"
        case GuardKind.ID_IS:
            return (
                f"`{name}` was {show(expected)}, is another object: {show(now)}",
                "do not make it anew for each call, or compile per object",
            )
        case GuardKind.RELATION | GuardKind.COMPARED:
            said = expected if guard.kind is GuardKind.RELATION else f"{name} {expected}"
            return f"`{said}` no longer holds", "one more entry is compiled for the other case"
        case _:
            return _was(name, expected, now), _constant_hint(name, expected)


def _was(name: str, expected: object, now: object) -> str:
    return f"`{name}` was {show(expected)}, is {show(now)}"


def _constant_hint(name: str, expected: object) -> str:
    if isinstance(expected, int | float) and not isinstance(expected, bool):
        return f"pass `{name}` as a tensor, or keep the number constant"
    return f"keep `{name}` constant, or compile one function per value"


def _describe_tensor(name: str, spec: TensorSpec, now: object) -> tuple[str, str]:
    if not isinstance(now, torch.Tensor):
        return f"`{name}` was a tensor, is {show(now)}", f"pass `{name}` as a tensor every time"
    found = tensor_spec(now)
    if found.python_type is not spec.python_type:
        return (
            _was(f"type({name})", spec.python_type, found.python_type),
            f"pass `{name}` in one type of tensor",
        )
    for field in ("dtype", "device", "requires_grad"):
        was, is_now = getattr(spec, field), getattr(found, field)
        if was != is_now:
            return _was(f"{name}.{field}", was, is_now), f"pass `{name}` in one {field}"
    if len(found.sizes) != len(spec.sizes):
        return _was(
            f"{name}.dim()", len(spec.sizes), len(found.sizes)
        ), f"pass `{name}` in one rank"
    for dim, (wanted, size) in enumerate(zip(spec.sizes, found.sizes, strict=True)):
        if wanted is not None and wanted != size:
            hint = f"argand.mark_dynamic({name}, {dim}) before the first call, or dynamic=True"
            return _was(f"{name}.shape[{dim}]", wanted, size), hint
    if any(
        spec.stride(dim, now) not in (None, stride)
        for dim, stride in enumerate(found.strides or ())
    ):
        return _was(
            f"{name}.stride()", spec.strides, found.strides
        ), f"{name}.contiguous() before the call"
    return f"`{name}` is of another kind (dispatch keys)", "pass tensors of one kind"
