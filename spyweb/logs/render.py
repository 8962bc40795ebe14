"""Render one log event as one line: JSON for a machine, aligned and perhaps coloured for a person."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, MutableMapping
from datetime import UTC, datetime

Event = MutableMapping[str, object]
Renderer = Callable[[Event], str]

COLOURS = {"debug": "2", "info": "32", "warning": "33", "error": "31", "critical": "31;1"}
DIM = "2"

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # a terminal would interpret these
_SHOWN = {code: f"\\x{code:02x}" for code in range(0xA0) if _CONTROL.match(chr(code))}


def stamp(at_ms: int) -> str:
    """Return a moment as `2026-11-20T12:00:00.123Z`."""
    return f"{datetime.fromtimestamp(at_ms // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}Z"


def paint(text: str, code: str | None) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if code and text else text


def printable(text: str) -> str:
    """Escape control characters, and indent further lines, so that none looks like a new line of the log."""
    if "\n" in text:
        text = text.rstrip("\n").replace("\n", "\n    ")
    return text.translate(_SHOWN) if _CONTROL.search(text) else text


def shorten(text: str, most: int) -> str:
    """Keep the beginning of a text, and add how long the whole is."""
    return text if len(text) <= most else f"{text[:most]}\N{HORIZONTAL ELLIPSIS} ({len(text)} characters)"


def as_json(event: Event) -> str:
    """Render as JSON, with `time`, `level` and `event` first, so that people find them too."""
    fields: dict[str, object] = {"time": stamp(_moment(event)), "level": event.pop("level", "info")}
    fields["event"] = event.pop("event", "")
    fields.update(event)
    try:
        return json.dumps(fields, ensure_ascii=False, default=text_of)
    except (TypeError, ValueError):  # a key that is no text, a table inside itself
        return json.dumps({str(name): text_of(value) for name, value in fields.items()}, ensure_ascii=False)


def text_of(value: object) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "replace")
    return str(value)


def as_text(*, colour: bool, dated: bool = False) -> Renderer:
    """Return a renderer for people; with `dated` it also writes the date."""
    form = "%Y-%m-%d %H:%M:%S" if dated else "%H:%M:%S"

    def render(event: Event) -> str:
        moment = datetime.fromtimestamp(_moment(event) / 1000).astimezone()
        level = str(event.pop("level", "info"))
        head = f"{moment:{form}}.{moment.microsecond // 1000:03d}"
        traceback = event.pop("exception", None)
        job = event.pop("job", None)
        parts = [
            paint(head, DIM if colour else None),
            paint(f"{level:<7}", COLOURS.get(level) if colour else None),
            *([paint(f"[{printable(str(job))}]", "36" if colour else None)] if job else []),
            printable(text_of(event.pop("event", ""))),
            paint(_pairs(event), DIM if colour else None),
        ]
        line = " ".join(part for part in parts if part)
        return f"{line}\n    {printable(str(traceback))}" if traceback else line

    return render


def _pairs(fields: Mapping[str, object]) -> str:
    return " ".join(f"{name}={_value(value)}" for name, value in fields.items())


def _value(value: object) -> str:
    text = printable(text_of(value))
    return json.dumps(text, ensure_ascii=False) if not text or set(text) & set(' "=\n') else text


def _moment(event: Event) -> int:
    at_ms = event.pop("at_ms", 0)
    return at_ms if isinstance(at_ms, int) else 0
