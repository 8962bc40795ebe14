"""The result of a script as people are shown it."""

from __future__ import annotations

import math

import msgspec

from spyweb.lua.wire import Foreign

MAX_DEPTH = 32  # of a result that is shown
RESULT_KEPT = 200  # characters of a result that stay on record


def show_value(value: object, depth: int = 0) -> object:
    """A script's value as JSON can hold it: bytes as text, what only Lua has by its name."""
    if depth > MAX_DEPTH:
        return "..."
    match value:
        case bytes() | bytearray():
            return value.decode("utf-8", "replace")
        case Foreign():
            return f"<{value.name or value.kind.name.lower()}>"
        case dict():
            return {str(show_value(key)): show_value(item, depth + 1) for key, item in value.items()}
        case list() | tuple():
            return [show_value(item, depth + 1) for item in value]
        case float() if not math.isfinite(value):
            return str(value)
        case None | bool() | int() | float() | str():
            return value
        case _:
            return f"<{type(value).__name__}>"


def result_text(value: object) -> str:
    """Return the beginning of what a script returned, as its run's row keeps it: a table as JSON, nothing for nil."""
    if value is None:
        return ""
    shown = show_value(value)
    text = shown if isinstance(shown, str) else msgspec.json.encode(shown).decode()
    return text if len(text) <= RESULT_KEPT else text[: RESULT_KEPT - 1] + "…"
