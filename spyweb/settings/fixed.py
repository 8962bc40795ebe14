"""Settings that are read once: an edit of them takes effect at the next start."""

from __future__ import annotations

from dataclasses import fields

from spyweb.settings.sections import Settings

SECTIONS = ("daemon", "server", "store", "state", "http", "security")
AT_ONCE = frozenset({"daemon.default_interval", "state.history"})


def waiting_for_a_start(before: Settings, now: Settings) -> list[str]:
    """Return the names of those that differ, as they are written in the file."""
    return [
        name
        for section in SECTIONS
        for field in fields(getattr(before, section))
        if getattr(getattr(before, section), field.name) != getattr(getattr(now, section), field.name)
        and (name := f"{section}.{field.name.removesuffix('_ms')}") not in AT_ONCE
    ]
