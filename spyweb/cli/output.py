"""The only module that prints.  Answers go to stdout, remarks and errors to stderr.

On a terminal rich draws tables, and is imported only then; elsewhere they are plain aligned text.  NO_COLOR is
honoured.  Text of scripts and file names never reaches the terminal as a control sequence.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, TypeVar

from spyweb import words
from spyweb.clock import RealClock
from spyweb.errors import ConfigError, ExitCode, Refused, SpywebError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer
    from rich.text import Text

T = TypeVar("T")
Rows = Sequence[Sequence[str]]

GOOD, BAD, CARE, BUSY, FAINT = "32", "31", "33", "36", "2"
COLOURS = {
    "success": GOOD, "ok": GOOD, "info": GOOD, "unchanged": GOOD,
    "failed": BAD, "lost": BAD, "broken": BAD, "failing": BAD, "error": BAD,
    "paused": CARE, "missed": CARE, "stopped": CARE, "warn": CARE, "warning": CARE,
    "running": BUSY, "waiting": BUSY,
    "disabled": FAINT, "skipped": FAINT, "debug": FAINT, "print": FAINT,
}  # fmt: skip
NAMES = {GOOD: "green", BAD: "red", CARE: "yellow", BUSY: "cyan", FAINT: "dim"}  # as rich calls them
LOG_LEVELS = {"print": "info", "warn": "warning"}  # levels of scripts, in the words of the daemon's log
GAP = 2  # spaces between the columns of a table
SHORTEST = 12  # characters that are left of a cell that is cut
ENOUGH = 40  # characters that a column which may be cut gets before a spare column gets room
# Columns of sentences.
PROSE = frozenset({"note", "description", "outcome", "text", "error", "last error", "actual", "expected"})
LONGEST_PROSE = 100  # characters of a cell of these in a pipe; JSON has all of it
_STATE = re.compile(r"[a-z]+(?=$|[:,] )")  # a state at the beginning of a cell; details may follow
_VISIBLE = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"


class _StandardStream(io.FileIO):
    """A standard stream that ends the process when it can't be written.

    So its errors are never reported as those of another file or socket, and typer never handles EPIPE.
    """

    def write(self, data: ReadableBuffer) -> int:
        try:
            return super().write(data)
        except OSError as error:
            nothing = os.open(os.devnull, os.O_WRONLY)  # for the rest: the interpreter would try to write it again
            os.dup2(nothing, self.fileno())
            os.close(nothing)
            if isinstance(error, BrokenPipeError):
                raise SystemExit(ExitCode.UNREAD) from error
            if self.fileno() != sys.stderr.fileno():
                complain(f"can't write the answer: {error.strerror}")
            raise SystemExit(ExitCode.USAGE) from error


def prepare() -> None:
    """Make the streams escape characters that the terminal can't show, and end the process when a write fails."""
    sys.stdout, sys.stderr = _prepared(sys.stdout), _prepared(sys.stderr)


def _prepared(stream: TextIO) -> TextIO:
    binary = io.BufferedWriter(_StandardStream(stream.fileno(), "w", closefd=False))
    is_by_line = bool(stream.line_buffering)
    return io.TextIOWrapper(binary, stream.encoding, "backslashreplace", newline="\n", line_buffering=is_by_line)


def flush() -> None:
    """Write buffered output now: the interpreter would only report an error at exit."""
    sys.stdout.flush()
    sys.stderr.flush()


def log_only_errors() -> None:
    """Log only errors, on stderr: log lines of the daemon's parts do not belong to a command's answer."""
    from spyweb.logs.output import set_up  # structlog is slow to import: only commands that run those parts need it

    set_up(quiet=2, stream=sys.stderr)


def say(text: str) -> None:
    print(clean(text), flush=True)


def note(text: str) -> None:
    """Print a remark about the answer, on stderr."""
    print(clean(text), file=sys.stderr, flush=True)


def complain(text: str) -> None:
    print(f"{paint('spyweb:', BAD, sys.stderr)} {clean(text)}", file=sys.stderr, flush=True)


def report(error: SpywebError) -> None:
    """Print an error, one line for each problem."""
    for problem in error.problems if isinstance(error, ConfigError) else [error]:
        complain(" ".join(str(problem).splitlines()))


def show_json(value: object) -> None:
    import msgspec

    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode(), flush=True)


def tell(form: Format, line: str, value: object) -> None:
    """Print the result of a command: the line for people, or the value as JSON."""
    if form is Format.JSON:
        show_json(value)
    else:
        say(line)


def show_json_line(line: bytes) -> None:
    print(line.decode(), flush=True)


def moment(ms: int, timezone: str) -> str:
    return words.describe_moment(ms // 1000 * 1000, timezone)


def row_moment(ms: int, timezone: str, now_ms: int) -> str:
    """Return a moment for a row of a table: short on a terminal, elsewhere in full."""
    return words.describe_briefly(ms, timezone, now_ms) if sys.stdout.isatty() else moment(ms, timezone)


def rounded(ms: int) -> str:
    """Return a duration as a person reads it at a glance: `1h 30m`."""
    return words.round_duration(max(0, ms), "")


def until(ms: int) -> str:
    return f"in {rounded(ms)}" if ms > 0 else "now"


def show_bytes(data: bytes) -> None:
    """Print a script's text: in a pipe byte for byte, on a terminal with control characters escaped."""
    if sys.stdout.isatty():
        say(data.decode("utf-8", "backslashreplace"))
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(data + b"\n")
    sys.stdout.buffer.flush()


def print_file(path: Path) -> None:
    sys.stdout.flush()
    with path.open("rb") as file:
        shutil.copyfileobj(file, sys.stdout.buffer)
    sys.stdout.buffer.flush()


def confirm(question: str) -> bool:
    """Ask the person at the terminal.  Raises Refused when stdin is not a terminal."""
    if not sys.stdin.isatty():
        raise Refused(f"{question} Input is not a terminal, so nobody can answer: -y means yes")
    print(f"{clean(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def wait_for_enter(text: str) -> None:
    print(f"{clean(text)} ", end="", file=sys.stderr, flush=True)
    sys.stdin.readline()


@contextmanager
def meter(label: str, total: int = 0) -> Iterator[Meter]:
    """Show a progress bar below the output, on a terminal; the total may grow meanwhile."""
    if not sys.stderr.isatty():
        yield Meter()
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True, redirect_stdout=sys.stdout.isatty()) as bars:
        bar = bars.add_task(label, total=total)
        yield Meter(lambda total, done: bars.update(bar, total=total, completed=done), total)


class Meter:
    """Counts finished steps, out of a total."""

    def __init__(self, show: Callable[[int, int], None] = lambda total, done: None, total: int = 0) -> None:
        self._show, self._total, self._done = show, total, 0

    def expect(self, more: int) -> None:
        self._total += more
        self._show(self._total, self._done)

    def advance(self, more: int = 1) -> None:
        self._done += more
        self._show(self._total, self._done)


def show_table(
    header: Sequence[str], rows: Rows, *, empty: str, cut: Sequence[str] = (), spare: Sequence[str] = ()
) -> None:
    """Print a table; where it has no rows, one line on stderr says so.

    On a terminal that is too narrow the cells of the columns `cut` are cut; those of others take several lines.  In a
    pipe only the longest texts of the columns `PROSE` are cut: programs read names and ids there.  A column of `spare`
    is shown only if all others have room; the first of `spare` is left out first.
    """
    if not rows:
        note(empty)
    elif sys.stdout.isatty():
        _draw(header, rows, cut, spare)
    else:
        most = [LONGEST_PROSE if name in PROSE.intersection((*cut, *spare)) else sys.maxsize for name in header]
        cells = (map(words.cut, map(_in_one_line, row), most) for row in rows)
        lines = [tuple(header), *map(tuple, cells)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        for line in lines:
            print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def show_list(
    form: Format,
    found: Sequence[T],
    row: Callable[[T], Mapping[str, str]],
    *,
    empty: str,
    cut: Sequence[str] = (),
    spare: Sequence[str] = (),
) -> None:
    """Print the values found: as JSON, or each in a row of a table as `show_table` does, its cells by their columns."""
    if form is Format.JSON:
        show_json(found)
        return
    rows = [row(each) for each in found]
    header = [*rows[0]] if rows else []
    show_table(header, [[*each.values()] for each in rows], empty=empty, cut=cut, spare=spare)


def show_fields(fields: Sequence[tuple[str, str]]) -> None:
    width = max(len(name) for name, _ in fields)
    for name, value in fields:
        say(f"{name:<{width}}  {value}")


def log_stamp(at_ms: int) -> str:
    """Return the moment of a line of a log: local time on a terminal, elsewhere as in hooks.log."""
    moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    if not sys.stdout.isatty():
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    local = moment.astimezone()
    today = datetime.fromtimestamp(RealClock().now_ms() / 1000, UTC).astimezone().date()
    day = "" if local.date() == today else f"{local:%m-%d} "
    return f"{day}{local:%H:%M:%S}.{local.microsecond // 1000:03d}"


def show_log_line(stamp: str, level: str, text: str) -> None:
    """Show a line of a log: on a terminal as the daemon shows it there, elsewhere as in hooks.log."""
    level = LOG_LEVELS.get(level, clean(level))
    shown = clean(text).rstrip("\n").replace("\n", "\n    ")
    if sys.stdout.isatty():
        label = paint(f"{level:<7}", COLOURS.get(level), sys.stdout)
        print(f"{paint(stamp, FAINT, sys.stdout)} {label} {shown}", flush=True)
    else:
        print(stamp, "WARN" if level == "warning" else level.upper(), shown, flush=True)


def show_verdict(word: str, rest: str) -> None:
    print(f"{paint(word, COLOURS.get(word), sys.stdout)} {clean(rest)}".rstrip(), flush=True)


def show_branch(depth: int, word: str, rest: str) -> None:
    label = f"{paint(word.ljust(9), COLOURS.get(word), sys.stdout)} " if word else ""
    print(f"{'  ' * depth}{label}{clean(rest)}".rstrip(), flush=True)


def show_passing(text: str) -> None:
    """Show a line on a terminal, which the next one replaces; an empty text removes it."""
    if sys.stdout.isatty():
        room = max(shutil.get_terminal_size().columns - 1, SHORTEST)
        line = paint(words.cut(_in_one_line(text), room), BUSY, sys.stdout) if text else ""
        print(f"\r\x1b[K{line}", end="", flush=True)


def clean(text: str) -> str:
    return text.translate(_VISIBLE)


def paint(text: str, colour: str | None, stream: TextIO) -> str:
    if not colour or os.environ.get("NO_COLOR") or not stream.isatty():
        return text
    return f"\x1b[{colour}m{text}\x1b[0m"


def _draw(header: Sequence[str], rows: Rows, cut: Sequence[str], spare: Sequence[str]) -> None:
    from rich.cells import cell_len  # slow to import: only tables on a terminal need it
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    least = {**dict.fromkeys(cut, ENOUGH), **dict.fromkeys(spare, SHORTEST)}  # of the columns that may be cut
    widths = [max(map(cell_len, column)) for column in zip(header, *rows, strict=True)]
    rooms = {at: min(width, least.get(header[at], width)) + GAP for at, width in enumerate(widths)}
    for name in spare:
        if sum(rooms.values()) - GAP <= console.width:
            break
        del rooms[header.index(name)]
    table = Table(box=None, header_style="bold", pad_edge=False)
    shortest = {at: min(widths[at], SHORTEST) for at in rooms if header[at] in least}
    fits = sum(shortest.get(at, widths[at]) + GAP for at in rooms) - GAP <= console.width  # else cells are folded
    for at in rooms:
        table.add_column(header[at], no_wrap=fits and at not in shortest, min_width=shortest.get(at) if fits else None)
    for row in rows:
        table.add_row(*(_cell(row[at], is_cut=header[at] in least) for at in rooms))
    console.print(table)


def _cell(text: str, *, is_cut: bool) -> Text:
    from rich.text import Text

    line = clean(" ".join(text.split()) if is_cut else text)
    cell = Text(line, no_wrap=is_cut, overflow="ellipsis" if is_cut else "fold")
    word = _STATE.match(line)
    if word:
        cell.stylize(NAMES.get(COLOURS.get(word[0], ""), ""), 0, word.end())
    return cell


def _in_one_line(cell: str) -> str:
    return " ".join(clean(cell).split())
