"""How such a process is started, and how its end is told."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import spyweb

INHERITED = ("LD_LIBRARY_PATH", "PYTHONHOME")  # without these this Python may not start at all


def bare_environment() -> dict[str, str]:
    """Nothing of the daemon's but what Python needs to start and to find this spyweb."""
    kept = {name: os.environ[name] for name in INHERITED if name in os.environ}
    return kept | {"PYTHONPATH": str(Path(spyweb.__file__).parents[1])}


def describe_exit(code: int) -> str:
    if code >= 0:
        return f"it ended with exit code {code}"
    try:
        return f"it was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"it was ended by signal {-code}"
