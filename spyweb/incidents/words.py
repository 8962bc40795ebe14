"""Subjects of incidents, and what is wrong with them, in words.  Pure."""

from __future__ import annotations

# What is said of a subject, by the sign that an incident began with.
WORDS = {
    "late": "is late",
    "silent": "has had no success for too long",
    "empty": "finds nothing",
    "storage": "could not store everything",
    "drift": "has drifted",
    "quarantined": "is in quarantine",
    "held_back": "runs no more",
    "broken": "can't be loaded",
    "down": "takes no messages",
    "address": "can't be used",
    "template": "has a template that fails",
    "behind": "is behind",
    "refusing": "takes nothing",
    "stuck": "does not answer",
    "missing": "has no worker",
}
PARTS = {
    "scheduler": "spyweb's scheduler",
    "store": "spyweb's store",
    "disk": "spyweb's disk",
    "workers": "spyweb's worker pool",
}


def name_of(subject: str) -> str:
    """Return a subject as people call it."""
    kind, _, name = subject.partition(":")
    match kind:
        case "job":
            return name
        case "channel":
            return f"the channel {name}"
        case _:
            return PARTS.get(name, f"spyweb ({name})") if name else subject
