"""Types of the C extension."""

import types
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

NULL: Final[object]
SKIP: Final[str]

class FrameView(NamedTuple):
    code: types.CodeType
    function: types.FunctionType
    globals: dict[str, Any]
    builtins: dict[str, Any]
    localsplus: tuple[Any, ...]

class Program:
    def __init__(
        self,
        nodes: list[tuple[int, int, int, bool, Any]],
        checks: list[tuple[int, int, int, bool, Any]],
        collect: list[int],
        held: list[object],
        watched: list[object],
        owning: bool,
        /,
    ) -> None: ...
    dead: int
    owning: int
    def check(self, view: FrameView, /) -> tuple[Any, ...] | int: ...

class Entry:
    def __init__(self, program: Program, target: Callable[..., Any], /) -> None: ...
    program: Any
    target: Callable[..., Any] | None
    hits: int

class Region:
    def __init__(self, callback: Callable[[FrameView], Entry | str | None], /) -> None: ...
    callback: Callable[[FrameView], Entry | str | None]
    def entries(self, code: types.CodeType, /) -> list[Entry]: ...
    def codes(self) -> list[types.CodeType]: ...
    def find(self, view: FrameView, /) -> Entry | None: ...
    def skip(self, code: types.CodeType, /) -> None: ...
    def close(self, code: types.CodeType, /) -> None: ...
    def clear(self) -> None: ...

class Switch:
    def __init__(self, function: Callable[..., Any], region: Region | None = None) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, instance: object, owner: type | None = None) -> Any: ...
    __wrapped__: Callable[..., Any]
    region: Region | None

def set_skip_rule(rule: Callable[[types.CodeType], bool], /) -> None: ...
def mark_code(code: types.CodeType, wanted: bool, /) -> None: ...
def set_all_eager(flag: bool, /) -> None: ...
def current_region() -> Region | None: ...
def hook_is_installed() -> bool: ...
def disabled(function: Callable[..., Any], /) -> Switch: ...
def calibrate(
    tensor_type: type, slow_match: Callable[..., bool], samples: tuple[Any, ...], /
) -> bool: ...
def tensor_header(tensor: Any, /) -> int: ...

# launch.c
class Plan:
    def __init__(
        self,
        inputs: int,
        buffers: Sequence[Any],
        steps: Sequence[Any],
        returns: Sequence[int],
        arena_bytes: int = ...,
        keep: object = ...,
        /,
    ) -> None: ...
    def __call__(self, *args: Any) -> Any: ...
    inputs: int
    arena_bytes: int
    consumes: bool
    keep: object

def release_arenas() -> int: ...
def arena_statistics() -> dict[str, int]: ...
