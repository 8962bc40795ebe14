"""Write the daemon's own log: one line per event, on stdout only.

It is JSON for machines and aligned text on a terminal; in the journal each line has its priority.  Log records of
libraries (`logging`) are written the same way.  If the output is closed or the disk is full, lines are lost, but the
caller never gets an exception.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from asyncio import Future
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from datetime import UTC, datetime
from typing import Any, TextIO, TypeVar

import structlog
from structlog.typing import EventDict, WrappedLogger

from spyweb.clock import Clock, RealClock
from spyweb.errors import STORE_REFUSED, StoreCorrupt
from spyweb.limits import LOG_COPY, LOG_LINE
from spyweb.logs.secrets import Secrets, hide_fields

T = TypeVar("T")

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
            paint(" ".join(f"{name}={_value(value)}" for name, value in event.items()), DIM if colour else None),
        ]
        line = " ".join(part for part in parts if part)
        return f"{line}\n    {printable(str(traceback))}" if traceback else line

    return render


def _value(value: object) -> str:
    text = printable(text_of(value))
    return json.dumps(text, ensure_ascii=False) if not text or set(text) & set(' "=\n') else text


def _moment(event: Event) -> int:
    at_ms = event.pop("at_ms", 0)
    return at_ms if isinstance(at_ms, int) else 0


LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
PRIORITIES = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}  # as in syslog
QUIET = (logging.NOTSET, logging.WARNING, logging.ERROR)  # -q, -qq
_RECORD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def set_up(
    *,
    level: str = "info",
    form: str = "auto",
    quiet: int = 0,
    stream: TextIO | None = None,
    clock: Clock | None = None,
    secrets: Iterable[str] = (),
) -> None:
    """Send everything logged from now on to the stream, stdout by default.  May be called again.

    The form is `json`, `text`, or `auto`: text on a terminal, else JSON.
    """
    stream, clock = stream or sys.stdout, clock or RealClock()
    lowest = max(LEVELS.get(level, logging.INFO), QUIET[min(quiet, len(QUIET) - 1)])
    is_terminal = stream.isatty()
    for_people = as_text(colour=wants_colour(stream, os.environ), dated=not is_terminal)
    is_json = form == "json" or (form == "auto" and not is_terminal)
    writer = Writer(stream, as_json if is_json else for_people, Secrets(secrets))

    def add_time(logger: WrappedLogger, name: str, event: EventDict) -> EventDict:
        event.setdefault("at_ms", clock.now_ms())
        return event

    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            add_time,
            structlog.processors.format_exc_info,
            writer.write,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(lowest),
        logger_factory=lambda *_: None,
        cache_logger_on_first_use=False,
    )
    libraries = logging.getLogger()
    libraries.handlers[:] = [LogRoute()]
    libraries.setLevel(max(lowest, logging.WARNING))  # their debug lines are many, and contain stored values
    logging.getLogger("spyweb").setLevel(lowest)
    logging.captureWarnings(True)


def wants_colour(stream: TextIO, environment: Mapping[str, str]) -> bool:
    return stream.isatty() and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


class Writer:
    """Renders an event and writes it: the last processor."""

    def __init__(self, stream: TextIO, render: Renderer, secrets: Secrets) -> None:
        self._stream = stream
        self._render = render
        self._secrets = secrets
        self._is_journal = is_journal(stream, os.environ)

    def write(self, logger: WrappedLogger, name: str, event: MutableMapping[str, object]) -> EventDict:
        fields = hide_fields(event)
        line = self._render({**fields})
        if len(line) > LOG_LINE:
            line = self._render({name: _cut(value) for name, value in fields.items()})
        line = self._secrets.hide_in_text(line)
        if self._is_journal:
            line = with_priority(line, str(event.get("level")))
        try:
            encoding = self._stream.encoding or "utf-8"
            self._stream.write(line.encode(encoding, "backslashreplace").decode(encoding) + "\n")
            self._stream.flush()
        except (OSError, ValueError):  # no reader, a full disk, a closed stream
            pass
        raise structlog.DropEvent  # it is written: the logger has nothing left to do


def _cut(value: object) -> object:
    return value if value is None or isinstance(value, int | float) else shorten(text_of(value), LOG_COPY)


class LogRoute(logging.Handler):
    """Passes on the log records of libraries."""

    def emit(self, record: logging.LogRecord) -> None:
        extra = {name: value for name, value in vars(record).items() if name not in _RECORD_FIELDS}
        logger = structlog.get_logger().bind(**{**extra, "logger": record.name})
        level = min(max(record.levelno // 10 * 10, logging.DEBUG), logging.CRITICAL)  # a level of its own rounds down
        try:
            message = record.getMessage()
        except (TypeError, ValueError):  # the library's arguments do not fit its format
            message = f"{record.msg} {record.args}"
        logger.log(level, message, exc_info=record.exc_info)


# The systemd journal, which stores a line that begins with `<4>` as a warning


def is_journal(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Return whether a stream leads to the journal, whose device and inode systemd names."""
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):  # a stream in memory, or one that is closed
        return False
    return environment.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


def with_priority(text: str, level: str) -> str:
    """Mark each line of a text, since the journal stores each as a separate entry."""
    mark = f"<{PRIORITIES.get(level, PRIORITIES['info'])}>"
    return mark + text.replace("\n", f"\n{mark}")


log = structlog.get_logger()


def tell_refusal(event: str, error: BaseException, **about: object) -> None:
    """Log a refusal, with a reason even if the error has no text."""
    tell = log.debug if isinstance(error, StoreCorrupt) else log.error
    tell(event, reason=str(error) or type(error).__name__, **about)


def note_refused(event: str, answer: Future[Any]) -> None:
    """Log the refusal of a write for which nobody waits."""
    if not answer.cancelled() and (error := answer.exception()):
        tell_refusal(event, error)


async def until_accepted(clock: Clock, again_in_s: float, event: str, work: Callable[[], Awaitable[T]]) -> T:
    """Do some work on the store, repeating it while the store refuses."""
    while True:
        try:
            return await work()
        except STORE_REFUSED as error:
            tell_refusal(event, error, again_in_s=again_in_s)
            await clock.sleep(again_in_s)
