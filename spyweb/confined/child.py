"""Prepare the environment of a confined process, and describe how such a process ended."""

from __future__ import annotations

import os
import signal
import subprocess
from importlib.util import find_spec
from pathlib import Path
from threading import Thread

import spyweb

INHERITED = ("LD_LIBRARY_PATH", "PYTHONHOME")  # without these this Python may not start at all

AT_ONCE_S = 0.05


def bare_environment(*libraries: str) -> dict[str, str]:
    """Return an environment with only what Python needs to start and to find this spyweb.

    The environment also names these libraries, for a Python that does not look for its site (-S).
    """
    kept = {name: os.environ[name] for name in INHERITED if name in os.environ}
    found = [spyweb.__file__, *(spec.origin for spec in map(find_spec, libraries) if spec and spec.origin)]
    folders = dict.fromkeys(str(Path(file).parents[1]) for file in found)
    return kept | {"PYTHONPATH": os.pathsep.join(folders)}


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process.  One that does not end at once, as it waits for a disk, is waited for beside the event loop."""
    process.kill()
    try:
        process.wait(AT_ONCE_S)
    except subprocess.TimeoutExpired:
        Thread(target=process.wait, daemon=True).start()


def describe_exit(code: int) -> str:
    if code >= 0:
        return f"it ended with exit code {code}"
    try:
        return f"it was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"it was ended by signal {-code}"
