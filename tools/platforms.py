"""Compile the C sources for systems that nobody here has: macOS on arm64, and what knows Windows.

``python -m tools.platforms`` compiles every file for macOS with zig's compiler, which brings that system's headers, and
``platform.c`` and ``pages.c`` for Windows with mingw's, where it is installed. Python's headers are this machine's, so this
shows that the sources are well formed there and no more: nothing is linked, and nothing is run.
"""

import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tempfile

SOURCES = pathlib.Path(__file__).resolve().parent.parent / "src" / "argand" / "runtime"
FLAGS = ("-std=c11", "-O0", "-c", "-w", f"-I{sysconfig.get_path('include')}")
MACOS = (sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-macos")
WINDOWS = ("x86_64-w64-mingw32-gcc",)
OF_THE_SYSTEM = ("platform.c", "pages.c")  # the rest needs Python's headers for Windows


def failures(compiler: tuple[str, ...], names: list[str]) -> list[str]:
    """The first error of every file that does not compile."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            command = [
                *compiler,
                *FLAGS,
                str(SOURCES / name),
                "-o",
                str(pathlib.Path(folder, "object")),
            ]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                errors = [line for line in done.stderr.splitlines() if "error" in line]
                found.append(f"{name}: {(errors or ['failed'])[0]}")
    return found


def main() -> int:
    """Compile for each system; 1 when a file does not compile."""
    systems: dict[str, tuple[tuple[str, ...], list[str]]] = {
        "macos": (MACOS, sorted(path.name for path in SOURCES.glob("*.c")))
    }
    if shutil.which(WINDOWS[0]):
        systems["windows"] = (WINDOWS, list(OF_THE_SYSTEM))
    else:
        print(f"windows: left out, {WINDOWS[0]} is not installed")
    bad = 0
    for system, (compiler, names) in systems.items():
        found = failures(compiler, names)
        print(
            "\n".join(
                [f"{system}: {len(names) - len(found)} of {len(names)} files compile", *found]
            )
        )
        bad += len(found)
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
