"""Read the tables that hooks return, field by field, and find the names in them that nobody reads.  Pure.

What is wrong raises a Mismatch that names the field; a name that is not read is a warning, and the cycle goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from spyweb.lua.wire import Ext, Foreign
from spyweb.ops.arguments import Mismatch, type_name
from spyweb.settings.nearest import nearest_name

REQUEST = ("url", "method", "headers", "body", "timeout", "proxy", "max_body_size")
RESPONSE = ("status", "body", "url", "headers")
RESULT = ("ok", "request", "response", "error")

A_RESPONSE = (
    "a response: expected some of " + ", ".join(RESPONSE),
    (*RESPONSE, "proxy", "time_ms", "size"),
)
EXPECTED = {  # by hook: what it returns, and which names of its table mean something
    "before_fetch": ("a request: expected some of " + ", ".join(REQUEST), REQUEST),
    "override_fetch": (
        "a response: expected some of " + ", ".join(RESPONSE) + ", or error",
        (*RESPONSE, "proxy", "time_ms", "size", "error", "kind"),
    ),
    "after_fetch": (
        "a fetch result: expected " + ", ".join(RESULT) + ", or a response",
        (*RESULT, *RESPONSE, "proxy", "time_ms", "size"),
    ),
}
LIKENESS = 0.7  # of a name and the one that is meant: scripts keep names of their own in these tables
MOST, LONGEST = 32, 32  # names of a table that are looked at, and letters in one


def sequence(value: object) -> list[object]:
    """Read an array; of one with holes, the values between them."""
    if isinstance(value, list):
        return value
    if isinstance(value, Foreign) and value.kind is Ext.EMPTY_ARRAY:
        return []
    if isinstance(value, dict) and all(type(key) is int for key in value):
        return [value[key] for key in sorted(cast("dict[int, object]", value))]
    found = "a table with names in it" if isinstance(value, dict) else type_name(value)
    raise Mismatch(f"array expected, got {found}")


def warning_about(hook: str, value: object) -> str:
    """Say which parts of a hook's table are ignored; return an empty text where none is."""
    if hook not in EXPECTED or not isinstance(value, Mapping):
        return ""
    expected, known = EXPECTED[hook]
    response = value.get(b"response") if hook == "after_fetch" else None
    if isinstance(response, Mapping):
        return _warning(value, "what it returned", "", known) or _warning(response, "its 'response'", *A_RESPONSE)
    return _warning(value, "what it returned", expected, known)


def _warning(table: Mapping[object, object], what: str, expected: str, known: Sequence[str]) -> str:
    strange = [key for key in table if not isinstance(key, bytes) or key.decode("utf-8", "replace") not in known]
    for name in strange[:MOST]:
        if isinstance(name, bytes) and len(name) <= LONGEST:
            shown = name.decode("utf-8", "replace")
            meant = nearest_name(shown, known, LIKENESS)
            if meant is not None:
                return f"unknown name {shown!r} in {what}: did you mean {meant!r}?"
    return f"nothing in {what} belongs to {expected}" if expected and len(strange) == len(table) else ""
