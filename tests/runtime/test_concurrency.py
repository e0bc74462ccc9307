"""Threads, forks and signals, in a process of their own: what other tests left running is not in it."""

import subprocess
import sys
from pathlib import Path

CASES = Path(__file__).with_name("concurrency.py")


def test_threads_forks_and_signals():
    command = [
        sys.executable,
        "-X",
        "faulthandler",
        "-m",
        "pytest",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "--no-cov",
    ]
    done = subprocess.run([*command, str(CASES)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout and "skipped" not in done.stdout
