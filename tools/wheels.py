"""Build wheels that old systems take, and a source distribution; look at them as an index would.

``python -m tools.wheels [PYTHON ...]`` builds one wheel per interpreter (the running one, if none is named) into
build/wheels. The C extension is compiled by zig's C compiler against the symbols of an old glibc, so that the wheel does not ask
for the system it was built on; ``auditwheel`` says which platforms take it, ``twine`` checks the metadata.
``--try`` installs each wheel into a fresh environment, with no compiler in PATH, and runs the README's example and
``argand doctor`` there; the source distribution is built as well, where there is no torch.
"""

import argparse
import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "build" / "wheels"
GLIBC = "2.17"  # as old as manylinux goes; Python's own wheels of torch ask for 2.28
PLATFORM = "manylinux_2_28_x86_64"  # torch needs it, so nobody gains by less
COMPILER = f'exec "{sys.executable}" -m ziglang cc -target x86_64-linux-gnu.{GLIBC} "$@"\n'


def run(*command: str | os.PathLike[str], **keywords: object) -> str:
    """Run a command; its output, or the end of this program with it."""
    done = subprocess.run(
        [os.fspath(word) for word in command], capture_output=True, text=True, **keywords
    )  # type: ignore[call-overload]
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return str(done.stdout)


def interpreter(name: str) -> str:
    """A name on the path, a full path, or (python3.12) a version that pyenv has."""
    root = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv"))
    version = pathlib.Path(name).name.removeprefix("python")
    for found in (name, *sorted(map(str, root.glob(f"versions/{version}.*/bin/python")))):
        with contextlib.suppress(OSError):
            if subprocess.run([found, "-c", ""], capture_output=True).returncode == 0:
                return found
    sys.exit(f"{name} runs nowhere: install it, or give a full path")


def environment(python: str, folder: pathlib.Path, *packages: str) -> pathlib.Path:
    """A fresh virtual environment; its interpreter."""
    run(python, "-m", "venv", folder)
    inside = folder / "bin" / "python"
    if packages:
        run(inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)
    return inside


def build_wheel(python: str, scratch: pathlib.Path) -> pathlib.Path:
    """The wheel of one interpreter, repaired and named for old systems."""
    compiler = scratch / "cc"
    compiler.write_text(f"#!/bin/sh\n{COMPILER}")
    compiler.chmod(0o755)
    source = scratch / "source"
    tracked = run("git", "ls-files", "-z", cwd=ROOT).split("\0")
    for name in filter(None, tracked):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, source / name)
    inside = environment(python, scratch / "build", "setuptools>=77", "wheel")
    flags = {
        "CC": str(compiler),
        "LDSHARED": f"{compiler} -shared",
        "CFLAGS": "-g0",
        "LDFLAGS": "-s",
    }
    words = ["wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    run(inside, "-m", "pip", *words, "-w", scratch / "raw", source, env=os.environ | flags)
    (raw,) = (scratch / "raw").glob("*.whl")
    tools = os.environ | {"PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
    shown = run(sys.executable, "-m", "auditwheel", "show", raw, env=tools)
    print(re.sub(r"\s+", " ", shown).strip())
    words = [sys.executable, "-m", "auditwheel", "repair", "--plat", PLATFORM]
    run(*words, "-w", scratch / "fixed", raw, env=tools)
    (fixed,) = (scratch / "fixed").glob("*.whl")
    OUT.mkdir(parents=True, exist_ok=True)
    return pathlib.Path(shutil.copy2(fixed, OUT))


def try_wheel(python: str, wheel: pathlib.Path, scratch: pathlib.Path, torch: str) -> None:
    """Install a wheel where there is no compiler; run the README's example and ``argand doctor``."""
    inside = environment(python, scratch / "clean", *([] if torch else ["torch==2.13.0"]))
    if torch:
        place = run(inside, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
        (pathlib.Path(place) / "others_torch.pth").write_text(f"{pathlib.Path(torch).resolve()}\n")
    words = ["install", "--quiet", "--disable-pip-version-check"]
    run(inside, "-m", "pip", *words, *(["--ignore-installed", "--no-deps"] if torch else []), wheel)
    readme = (ROOT / "README.md").read_text()
    found = re.search(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    assert found is not None
    (scratch / "example.py").write_text(
        found.group(1) + "\nprint('ran argand', argand.__version__, x.grad.shape)\n"
    )
    bare = {"PATH": str(scratch / "nothing"), "HOME": str(scratch)}
    print(run(inside, "-W", "error::UserWarning", "example.py", cwd=scratch, env=bare).strip())
    print(run(inside, "-m", "argand", "doctor", cwd=scratch, env=bare).strip())


def build_source(scratch: pathlib.Path) -> None:
    """The source distribution; it must become a wheel in an environment that has no torch."""
    run(sys.executable, "-m", "build", "--sdist", "--outdir", OUT, ROOT)
    (made,) = OUT.glob("*.tar.gz")
    inside = environment(sys.executable, scratch / "source-only", "setuptools>=77", "wheel")
    words = ["wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    run(inside, "-m", "pip", *words, "-w", scratch / "from-source", made)
    (wheel,) = (scratch / "from-source").glob("*.whl")
    print(f"{made.name}: {made.stat().st_size >> 10} KiB, built without torch: {wheel.name}")


def main() -> None:
    """Build and check."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "pythons", nargs="*", default=[sys.executable], help="interpreters to build for"
    )
    parser.add_argument(
        "--try",
        action="store_true",
        dest="tried",
        help="install and run each wheel (downloads torch)",
    )
    parser.add_argument(
        "--torch",
        default="",
        help="with --try: a site-packages folder to take torch and what Argand needs from",
    )
    options = parser.parse_args()
    shutil.rmtree(OUT, ignore_errors=True)
    for python in map(interpreter, options.pythons):
        with tempfile.TemporaryDirectory() as folder:
            scratch = pathlib.Path(folder)
            wheel = build_wheel(python, scratch)
            print(f"{wheel.name}: {wheel.stat().st_size >> 10} KiB")
            if options.tried:
                try_wheel(python, wheel, scratch, options.torch)
    with tempfile.TemporaryDirectory() as folder:
        build_source(pathlib.Path(folder))
    print(run(sys.executable, "-m", "twine", "check", "--strict", *sorted(OUT.iterdir())).strip())


if __name__ == "__main__":
    main()
