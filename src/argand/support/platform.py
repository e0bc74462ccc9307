"""support.platform: what Argand asks of the operating system in Python: memory without a heap, and what it tells of itself.

The only module that names a system, as runtime/platform.h is in C. Linux is what is tested; elsewhere what cannot be known
is None or empty, and callers live with that. Out: mappings, rights of memory, facts about process and machine.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import sys
import tempfile
from pathlib import Path
from typing import Final

PAGE: Final = mmap.PAGESIZE
# MAP_NORESERVE, which Python does not name
_NO_RESERVE: Final = 0x4000 if sys.platform == "linux" else 0
_PROCESS: Final = Path("/proc/self")
_WINDOWS_RIGHTS: Final = {"none": 0x01, "run": 0x20}


# --- memory ----------------------------------------------------------------------------------


def own_pages(length: int) -> mmap.mmap:
    """Fresh memory that is no heap's."""
    if sys.platform == "win32":
        return mmap.mmap(-1, length)
    return mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def address_space(length: int) -> mmap.mmap:
    """Addresses that no memory stands behind until they are used."""
    if sys.platform == "win32":
        return mmap.mmap(-1, length)
    return mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)


def set_rights(address: int, length: int, rights: str) -> bool:
    """Make whole pages unreadable ("none") or code ("run"); whether that went well."""
    if sys.platform == "win32":
        before = ctypes.c_ulong()
        protect = ctypes.windll.kernel32.VirtualProtect
        wanted = _WINDOWS_RIGHTS[rights]
        return bool(
            protect(ctypes.c_void_p(address), ctypes.c_size_t(length), wanted, ctypes.byref(before))
        )
    wanted = {"none": 0, "run": mmap.PROT_READ | mmap.PROT_EXEC}[rights]
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return bool(protect(address, length, wanted) == 0)


# --- the process -----------------------------------------------------------------------------


def usable_cores() -> int:
    """How many cores this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def resident_bytes() -> int | None:
    """Memory that the process has now."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int((_PROCESS / "statm").read_text().split()[1]) * PAGE
    return None


def forget_peak() -> bool:
    """Count the peak of memory from here on; whether that is possible."""
    with contextlib.suppress(OSError):
        return bool((_PROCESS / "clear_refs").write_text("5"))
    return False


def memory_line(name: str) -> float:
    """A line of the kernel's account of this process (``VmHWM``, ``VmRSS``), in bytes; NaN when there is none."""
    with contextlib.suppress(OSError):
        for line in (_PROCESS / "status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return float(line.split()[1]) * 1024
    return float("nan")


def user_folder() -> Path:
    """A folder of this user alone, for one without a home."""
    number = os.getuid() if sys.platform != "win32" else os.getlogin()
    return Path(tempfile.gettempdir() if sys.platform == "win32" else "/tmp") / f"argand-{number}"


def perf_folder() -> Path:
    """Where ``perf`` looks for names: its own choice, whatever TMPDIR says."""
    return Path("/tmp" if sys.platform != "win32" else tempfile.gettempdir())


# --- the machine -----------------------------------------------------------------------------


def processor_lines(names: tuple[str, ...], most: int = 8192) -> list[str]:
    """Lines that describe the first processors (``model name``, ``flags``), by their beginnings; empty where unknown."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        return [line for line in file.read(most).splitlines() if line.startswith(names)]
    return []


def strict_about_memory() -> bool:
    """Whether the kernel refuses address space that it could not back with memory."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/vm/overcommit_memory").read_text().strip() == "2"
    return False
