"""The C extension under address and undefined-behaviour sanitizers: ``make sanitize``.

Builds it into ``build/sanitized``, and runs in child processes, with that extension in place of the usual one: its tests,
and fuzzers of guard programs, plans and cache files. Python's own allocator is off (``PYTHONMALLOC=malloc``), so that
every object is a block the sanitizer knows. Leaks are not looked for: Python and torch keep thousands of blocks until
the end of the process on purpose; tests of ours count what stays (``tests/runtime``, ``tests/launch``).
"""

from __future__ import annotations

import argparse
import importlib.machinery
import importlib.util
import os
import pathlib
import runpy
import subprocess
import sys
import sysconfig

FOLDER = pathlib.Path("build/sanitized")
SOURCES = pathlib.Path("src/argand/runtime")
FLAGS = (
    *(
        "-shared",
        "-fPIC",
        "-g",
        "-O1",
        "-std=c11",
        "-fvisibility=hidden",
        "-fno-omit-frame-pointer",
    ),
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
)
# what is run, each in a process of its own
RUNS = (
    (
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-n",
        "0",
        "tests/launch/test_plan.py",
        "tests/launch/test_symbols.py",
    ),
    (
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-n",
        "0",
        "tests/runtime/test_frames.py",
        "tests/runtime/test_guards.py",
    ),
    ("tests.runtime.fuzz", "--count", "20000"),
    ("tests.disk.fuzz", "--count", "300"),
    ("tools.threads", "--threads", "4", "--turns", "20", "--rounds", "1"),
)


def build() -> pathlib.Path:
    """The extension with sanitizers."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    target = FOLDER / f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    sources = sorted(map(str, SOURCES.glob("*.c")))
    newest = max(path.stat().st_mtime for path in (*SOURCES.glob("*.c"), *SOURCES.glob("*.h")))
    if not target.exists() or target.stat().st_mtime < newest:
        subprocess.run(
            ["gcc", *FLAGS, f"-I{sysconfig.get_path('include')}", *sources, "-o", str(target)],
            check=True,
        )
    return target


def environment(extension: pathlib.Path) -> dict[str, str]:
    """For a child: the sanitizers' libraries come first, and C++ for the exceptions of torch."""

    def library(name: str) -> str:
        return subprocess.run(
            ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()

    return os.environ | {
        "LD_PRELOAD": ":".join(map(library, ("libasan.so", "libubsan.so", "libstdc++.so.6"))),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1:use_sigaltstack=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
        "OMP_NUM_THREADS": "1",
        "ARGAND_SANITIZED": str(extension.resolve()),
    }


def run_with_it(module: str, arguments: list[str]) -> None:
    """In the child: the sanitized extension under the usual name, then a module as a program."""
    name = "argand.runtime._native"
    loader = importlib.machinery.ExtensionFileLoader(name, os.environ["ARGAND_SANITIZED"])
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    extension = importlib.util.module_from_spec(spec)
    sys.modules[name] = extension
    loader.exec_module(extension)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)  # functions find their module


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", action="store_true", help="what a child process does")
    parser.add_argument(
        "what", nargs=argparse.REMAINDER, help="a module and its arguments, in place of all runs"
    )
    given = parser.parse_args()
    if given.child:
        run_with_it(given.what[0], given.what[1:])
        return 0
    around = environment(build())
    failed = 0
    for run in (given.what,) if given.what else RUNS:
        code = subprocess.run(
            [sys.executable, "-m", "tools.sanitize", "--child", *run], env=around
        ).returncode
        print(
            f"sanitized: {' '.join(run)}: {'ends with ' + str(code) if code else 'nothing found'}",
            flush=True,
        )
        failed += bool(code)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
