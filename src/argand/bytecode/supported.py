"""bytecode.supported: which interpreters Argand runs on.

In: nothing.  Out: `check`, which raises `UnsupportedPython` on any other.
"""

from __future__ import annotations

import sys
from typing import Final

from argand.support.errors import UnsupportedPython

VERSIONS: Final = ((3, 11), (3, 12), (3, 13))


def _running() -> str:
    name, version = sys.implementation.name, ".".join(map(str, sys.version_info[:2]))
    free = sys.version_info >= (3, 13) and "t" in sys.abiflags
    return (
        f"{'CPython' if name == 'cpython' else name} {version}{' without the GIL' if free else ''}"
    )


SUPPORTED: Final = tuple(f"CPython {major}.{minor}" for major, minor in VERSIONS)


def check() -> None:
    """Raise `UnsupportedPython` where no dialect serves."""
    running = _running()
    if running not in SUPPORTED:
        what = f"Argand does not run on {running}; it runs on {', '.join(SUPPORTED)}"
        raise UnsupportedPython(
            what, hint="ARGAND_UNSUPPORTED=eager leaves every function as it is, with one warning"
        )
