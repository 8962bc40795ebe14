"""A fake terminal that a command writes to."""

from __future__ import annotations

import io
import os
import re
import sys
from contextlib import suppress

import pytest


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def open_terminal(monkeypatch: pytest.MonkeyPatch, columns: int = 60) -> Terminal:
    """Put a terminal in place of stdout.  Not a fixture: pytest sets stdout anew between fixtures and the test."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.delenv("NO_COLOR", raising=False)
    return terminal


def shown_lines(terminal: Terminal) -> list[str]:
    """Return the lines of the terminal, without colours."""
    return [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue()).splitlines()]


def read_terminal(descriptor: int) -> str:
    """Read what a process writes to a pseudo-terminal, until it has ended."""
    pieces = []
    with suppress(OSError):  # how Linux says that the other end is closed
        while piece := os.read(descriptor, 65_536):
            pieces.append(piece)
    os.close(descriptor)
    return b"".join(pieces).decode("utf-8", "replace")
