"""backends.registry: backends by name, from this package, from users and from entry points.

In: names, callables, lists of them. Out: functions ``(gm, example_inputs) -> callable``. Fails with
``InvalidBackend`` (near matches offered) when a name is unknown or its package does not load.
The registry is module state behind a lock (design D8).
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, cast, overload

from argand.protocol import Backend, Described, OpenSizes, context_of
from argand.support.errors import InvalidBackend, guess
from argand.support.locks import make_lock

CompilerFunction: TypeAlias = Callable[..., Any]
BackendSpec: TypeAlias = (
    "str | CompilerFunction | Sequence[str | CompilerFunction] | Backend | Described"
)

DEBUG: Final = "debug"
EXPERIMENTAL: Final = "experimental"
ENTRY_POINT_GROUPS: Final = ("argand_backends", "torch_dynamo_backends")


class _InTree(NamedTuple):
    """Backends of this package: where they are, what they are."""

    module: str  # below argand.backends
    names: tuple[str, ...]
    tags: tuple[str, ...] = ()
    open_sizes: OpenSizes = OpenSizes.ASKED


_FAILING: Final = tuple(
    f"relu_{kind}_error_TESTING_ONLY" for kind in ("compile", "runtime", "accuracy")
)
_IN_TREE: Final = (
    _InTree("argand_backend", ("argand",), open_sizes=OpenSizes.ALWAYS),
    _InTree("ladder", ("eager", "eager_noexcept", "eager_debug"), (DEBUG,), OpenSizes.ALWAYS),
    _InTree("ladder_aot", ("aot_eager",), (DEBUG,), OpenSizes.ALWAYS),
    _InTree(
        "ladder_aot", ("aot_eager_default_partitioner", "aot_eager_decomp_partition"), (DEBUG,)
    ),
    _InTree("torchscript", ("ts", "aot_ts"), (DEBUG,), OpenSizes.NEVER),
    _InTree("failing", _FAILING, (DEBUG,)),
    _InTree("bridges.onnx_readers", ("onnxrt", "openvino", "tvm"), (), OpenSizes.NEVER),
    _InTree(
        "bridges.of_torch",
        ("inductor", "cudagraphs", "openxla", "hpu_backend"),
        (),
        OpenSizes.NEVER,
    ),
)
# What must be there for a backend to be offered: a package, and a device as ``torch.<device>`` names it.
NEEDS: Final[Mapping[str, tuple[str, str]]] = {
    "cudagraphs": ("torch", "cuda"),
    "openxla": ("torch_xla", ""),
    "hpu_backend": ("habana_frameworks", "hpu"),
}


class _Registered(NamedTuple):
    """One row of the registry; ``load`` gives the function, importing its module at first use."""

    load: Callable[[], CompilerFunction]
    tags: tuple[str, ...]
    open_sizes: OpenSizes = OpenSizes.ALWAYS


def _import_function(module: str, name: str) -> CompilerFunction:
    return cast(
        CompilerFunction, getattr(importlib.import_module(f"argand.backends.{module}"), name)
    )


def _constant(function: CompilerFunction) -> Callable[[], CompilerFunction]:
    return lambda: function


_lock: Final = make_lock()
_registry: Final[dict[str, _Registered]] = {
    name: _Registered(
        functools.partial(_import_function, rows.module, name), rows.tags, rows.open_sizes
    )
    for rows in _IN_TREE
    for name in rows.names
}
_default: Final[list[str | CompilerFunction]] = ["argand"]


@functools.cache
def _fixed(name: str, function: CompilerFunction) -> CompilerFunction:
    @functools.wraps(function)
    def compile_fixed(gm: Any, example_inputs: Sequence[Any], **keywords: Any) -> Any:
        sizes = context_of(gm).sizes
        if sizes is not None:
            refusals = importlib.import_module("argand.sizes.refusals")  # torch is loaded by now
            raise refusals.fixing(sizes.samples, f"backend {name!r} compiles for fixed sizes")
        return function(gm, example_inputs, **keywords)

    return compile_fixed


def _missing(name: str) -> str:
    """What keeps a backend from being offered here, "" if nothing."""
    package, device = NEEDS.get(name, ("", ""))
    if package and importlib.util.find_spec(package) is None:
        return f"the package {package!r}"
    accelerator = getattr(importlib.import_module("torch"), device, None) if device else None
    if device and not (accelerator and accelerator.is_available()):
        return f"a device of type {device!r}"
    return ""


@functools.cache
def _entry_points() -> Mapping[str, importlib.metadata.EntryPoint]:
    """Backends other packages offer; ours of the peer's group is left out, it is registered."""
    found: dict[str, importlib.metadata.EntryPoint] = {}
    for group in reversed(ENTRY_POINT_GROUPS):
        found |= {point.name: point for point in importlib.metadata.entry_points(group=group)}
    return found


def name_of(backend: str | CompilerFunction) -> str:
    """What a backend is called in messages."""
    if isinstance(backend, str):
        return backend
    return str(getattr(backend, "__name__", type(backend).__name__))


@overload
def register_backend(
    compiler_fn: CompilerFunction,
    *,
    name: str | None = None,
    tags: Sequence[str] = (),
    open_sizes: str = "always",
) -> CompilerFunction: ...
@overload
def register_backend(
    compiler_fn: None = None,
    *,
    name: str | None = None,
    tags: Sequence[str] = (),
    open_sizes: str = "always",
) -> Callable[[CompilerFunction], CompilerFunction]: ...
def register_backend(
    compiler_fn: CompilerFunction | None = None,
    *,
    name: str | None = None,
    tags: Sequence[str] = (),
    open_sizes: str = "always",
) -> CompilerFunction | Callable[[CompilerFunction], CompilerFunction]:
    """Register a backend, as a decorator with or without arguments or as a call.

    ``open_sizes`` says which graphs it is given whose sizes are known at run time only: "always" (where sizes varied),
    "asked" (where the user wants it) or "never" (it builds code for the sizes of its example inputs).
    """
    if open_sizes not in [choice.value for choice in OpenSizes]:
        raise InvalidBackend(f"open_sizes must be 'always', 'asked' or 'never', got {open_sizes!r}")
    if compiler_fn is None:
        return cast(
            "Callable[[CompilerFunction], CompilerFunction]",
            functools.partial(register_backend, name=name, tags=tags, open_sizes=open_sizes),
        )
    if not callable(compiler_fn):
        raise InvalidBackend(
            f"a backend must be callable, got {type(compiler_fn).__name__} {compiler_fn!r}",
            hint="pass a function (gm, example_inputs) -> callable",
        )
    key = name or name_of(compiler_fn)
    with _lock:
        if key in _registry:
            raise InvalidBackend(
                f"a backend named {key!r} is registered already", hint="choose another name="
            )
        _registry[key] = _Registered(_constant(compiler_fn), tuple(tags), OpenSizes(open_sizes))
    return compiler_fn


def unregister_backend(name: str) -> None:
    """Forget a backend; unknown names are ignored."""
    with _lock:
        _registry.pop(name, None)


def list_backends(exclude_tags: Iterable[str] | None = (DEBUG, EXPERIMENTAL)) -> list[str]:
    """Names that can be looked up, sorted, those with an excluded tag left out."""
    excluded = set(exclude_tags or ())
    with _lock:
        rows = dict(_registry)
    names = {n for n, row in rows.items() if not excluded & set(row.tags) and not _missing(n)}
    return sorted(names | (set(_entry_points()) - set(rows)))


def lookup_backend(backend: str | CompilerFunction) -> CompilerFunction:
    """The function of a name; a callable is given back as it is."""
    if not isinstance(backend, str):
        if not callable(backend):
            raise InvalidBackend(
                f"a backend is a name or a callable, got {type(backend).__name__} {backend!r}",
                hint=f"names: {', '.join(list_backends(None))}",
            )
        return backend
    with _lock:
        row = _registry.get(backend)
    if row is not None:
        if missing := _missing(backend):
            hint = f"what works here: {', '.join(list_backends())}"
            raise InvalidBackend(
                f"backend {backend!r} needs {missing}, which is not here", hint=hint
            )
        return _fixed(backend, row.load()) if row.open_sizes is OpenSizes.NEVER else row.load()
    point = _entry_points().get(backend)
    if point is None:
        raise _unknown(backend)
    return _load_entry_point(point)


def is_in_tree(backend: BackendSpec) -> bool:
    """Whether a backend is one of this package."""
    module = (
        _in_tree_names().get(backend)
        if isinstance(backend, str)
        else getattr(backend, "__module__", "")
    )
    return str(module or "").startswith("argand.")


@functools.cache
def _in_tree_names() -> Mapping[str, str]:
    return {name: f"argand.backends.{rows.module}" for rows in _IN_TREE for name in rows.names}


def open_sizes_of(backend: BackendSpec) -> OpenSizes:
    """Which graphs with open sizes a backend is given; functions of this package are known by their place, too."""
    if isinstance(backend, str):
        with _lock:
            row = _registry.get(backend)
        return row.open_sizes if row is not None else OpenSizes.ALWAYS
    place = getattr(backend, "__module__", ""), getattr(backend, "__name__", "")
    here = (rows for rows in _IN_TREE if (f"argand.backends.{rows.module}", place[1]) == place)
    return next((rows.open_sizes for rows in here if place[1] in rows.names), OpenSizes.ALWAYS)


def _unknown(name: str) -> InvalidBackend:
    names = list_backends(None)
    hint = f"{guess(name, names, 3)}argand.list_backends(None): {', '.join(names)}"
    return InvalidBackend(f"no backend named {name!r}", hint=hint)


def _load_entry_point(point: importlib.metadata.EntryPoint) -> CompilerFunction:
    try:
        function = cast(CompilerFunction, point.load())
    except Exception as error:
        package = point.dist.name if point.dist is not None else point.value
        raise InvalidBackend(
            f"backend {point.name!r} of package {package!r} does not load: {type(error).__name__}: {error}",
            hint=f"repair or uninstall {package!r}",
        ) from error
    with _lock:
        _registry.setdefault(point.name, _Registered(_constant(function), ()))
    return function


def set_default_backend(backend: str | CompilerFunction | None) -> None:
    """The backend of ``argand.compile`` when none is named; None is Argand's own."""
    if backend is not None and not isinstance(backend, str) and not callable(backend):
        raise TypeError(f"a backend is a name or a callable, got {type(backend).__name__}")
    with _lock:
        _default[0] = "argand" if backend is None else backend


def get_default_backend() -> str | CompilerFunction:
    """The backend used when none is named."""
    with _lock:
        return _default[0]
