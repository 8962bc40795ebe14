"""Mark lines for the systemd journal, which stores a line that begins with `<4>` as a warning."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TextIO

PRIORITIES = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}  # as in syslog


def is_journal(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Return whether a stream leads to the journal, whose device and inode systemd names."""
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):  # a stream in memory, or one that is closed
        return False
    return environment.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


def with_priority(text: str, level: str) -> str:
    """Mark each line of a text, since the journal stores each as an entry of its own."""
    mark = f"<{PRIORITIES.get(level, PRIORITIES['info'])}>"
    return mark + text.replace("\n", f"\n{mark}")
