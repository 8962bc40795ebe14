"""`spyweb state list`, `show`, `get`, `stats`, `history` and `watch`: look at stored entries."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated
from zoneinfo import ZoneInfo

import msgspec
import typer

from spyweb.cli import output
from spyweb.cli.client import with_query
from spyweb.cli.options import MOST_ROWS
from spyweb.cli.output import Format, moment
from spyweb.cli.project import Project
from spyweb.errors import ExitCode, Refused
from spyweb.settings.units import HOUR_MS, MINUTE_MS, SECOND_MS, format_duration
from spyweb.store.interchange.value_json import TypeName
from spyweb.subjects.state.commands.stored import (
    Compat,
    Key,
    Pattern,
    StateOutput,
    StatePlace,
    as_bytes,
    one_line,
    placed,
    spelt,
)
from spyweb.subjects.state.views import ChangeView, EntryView, StateStats, bytes_of
from spyweb.views.jobs import to_json
from spyweb.words import counted, cut

WIDEST = 50  # characters of a value in a list
NONE = "-"

Fields = list[tuple[str, str]]
Prefix = Annotated[str, typer.Argument(metavar="PREFIX", help="Only keys that begin so.", show_default=False)]


@placed
def list_entries(
    context: typer.Context,
    place: StatePlace,
    prefix: Prefix = "",
    count: Annotated[int | None, typer.Option("-n", metavar="N", min=1, max=MOST_ROWS, help="At most so many.")] = None,
    form: StateOutput = Format.TABLE,
    compat: Compat = False,
) -> None:
    """List the entries, sorted by key."""
    found = place.state().entries(place.namespace, as_bytes(prefix), count)
    if compat:
        output.show_json(compat_entries(found))
        return
    empty, row = f"nothing is kept in {place.namespace}", partial(entry_row, place.project)
    output.show_list(form, found, row, empty=empty, cut=("value", "key"))
    if found and form is not Format.JSON:
        output.say(f"Total: {counted(len(found), 'key')}")


@placed
def show(
    context: typer.Context, place: StatePlace, key: Key, form: StateOutput = Format.TABLE, compat: Compat = False
) -> ExitCode:
    """Show all that is known of an entry."""
    entry = place.state().entry(place.namespace, as_bytes(key))
    if entry is None:
        return missing(place, key)
    if compat:
        output.show_json(compat_entry(entry))
    elif form is Format.JSON:
        output.show_json(entry)
    else:
        output.show_fields(entry_fields(entry, place.project.clock.now_ms(), place.timezone))
    return ExitCode.OK


@placed
def get(context: typer.Context, place: StatePlace, key: Key, form: StateOutput = Format.TABLE) -> ExitCode:
    """Print an entry's value, for other programs.

    A string as it is, anything else as JSON.  Exit code 1 when there is no such key.
    """
    entry = place.state().entry(place.namespace, as_bytes(key))
    if entry is None:
        return missing(place, key)
    if form is Format.JSON:
        output.show_json(entry.value)
    elif entry.type is TypeName.STRING:
        output.show_bytes(bytes_of(entry.value))
    else:
        output.show_json_line(to_json(entry.value))
    return ExitCode.OK


@placed
def stats(context: typer.Context, place: StatePlace, form: StateOutput = Format.TABLE, compat: Compat = False) -> None:
    """Count entries and locks, and measure them.

    Of all namespaces, unless one is chosen.
    """
    found = place.state().stats(place.chosen)
    if compat:
        output.show_json(compat_stats(found))
    elif form is Format.JSON:
        output.show_json(found)
    else:
        output.show_fields(stats_fields(found, place.timezone))


@placed
def history(
    context: typer.Context,
    place: StatePlace,
    key: Key,
    count: Annotated[int | None, typer.Option("-n", metavar="N", min=1, max=MOST_ROWS, help="At most so many.")] = None,
    form: StateOutput = Format.TABLE,
) -> None:
    """List the versions of an entry that are kept.

    Newest first.
    """
    found = place.state().history(place.namespace, as_bytes(key), count)

    def row(entry: EntryView) -> dict[str, str]:
        return {
            "version": str(entry.version),
            "value": brief(shown_value(entry.value, entry.type)),
            "type": entry.type,
            "updated": place.project.moment(entry.updated_ms),
        }

    empty = f"no version of {spelt(key)} is kept in {place.namespace}"
    output.show_list(form, found, row, empty=empty, cut=("value",))


def missing(place: StatePlace, key: str) -> ExitCode:
    output.complain(f"there is no key {spelt(key)} in {place.namespace}")
    return ExitCode.FAILED


@placed
def watch(context: typer.Context, place: StatePlace, pattern: Pattern = "*", form: StateOutput = Format.TABLE) -> None:
    """Show changes as they happen, until Ctrl-C.

    Of all namespaces, unless one is chosen.  Needs a daemon.
    """
    daemon = place.project.need_daemon(", so nothing changes: `spyweb start` starts one")
    timezone = ZoneInfo(place.timezone)

    target = with_query("/api/state/watch", namespace=place.chosen, pattern=as_bytes(pattern))
    lines = daemon.lines(target, timeout=None)
    next(lines, None)  # it has begun
    output.note(f"watching {place.chosen or 'all namespaces'}: Ctrl-C ends it")
    for line in filter(bytes.strip, lines):
        change = msgspec.json.decode(line, type=ChangeView)
        if form is Format.JSON:
            output.show_json_line(to_json(change))
            continue
        at = datetime.fromtimestamp(change.at_ms // 1000, tz=UTC).astimezone(timezone)
        output.say(f"{at:%H:%M:%S}.{change.at_ms % 1000:03d} {change_line(change)}")
    raise Refused(daemon.cut_off("the watch was stopped"))


def shown_text(text: object) -> str:
    """Return a text, with bytes that are not UTF-8 escaped."""
    return text if isinstance(text, str) else bytes_of(text).decode("utf-8", "backslashreplace")


def shown_key(key: object) -> str:
    return one_line(shown_text(key))


def shown_value(value: object, kind: TypeName) -> str:
    """Return a string as it is, everything else as JSON."""
    return shown_text(value) if kind is TypeName.STRING else to_json(value).decode()


def brief(text: str) -> str:
    """Cut a text to one line, no longer than a list has room for."""
    return cut(one_line(text[: WIDEST + 1]), WIDEST)


def ttl(expires_ms: int | None, now_ms: int) -> str:
    """Format the time that is left, rounded up so that a live entry is never shown as expired."""
    if expires_ms is None:
        return NONE
    left_ms = max(1, expires_ms - now_ms)
    grain_ms = SECOND_MS if left_ms <= HOUR_MS else MINUTE_MS
    return format_duration(-(-left_ms // grain_ms) * grain_ms)


def entry_row(project: Project, entry: EntryView) -> dict[str, str]:
    return {
        "key": shown_key(entry.key),
        "value": brief(shown_value(entry.value, entry.type)),
        "type": entry.type,
        "ttl": ttl(entry.expires_ms, project.clock.now_ms()),
        "updated": project.moment(entry.updated_ms),
    }


def entry_fields(entry: EntryView, now_ms: int, timezone: str) -> Fields:
    return [
        ("Key:", shown_key(entry.key)),
        ("Value:", shown_value(entry.value, entry.type)),
        ("Type:", entry.type),
        ("Created:", moment(entry.created_ms, timezone)),
        ("Updated:", moment(entry.updated_ms, timezone)),
        ("TTL:", ttl(entry.expires_ms, now_ms)),
        ("Version:", str(entry.version)),
    ]


def stats_fields(stats: StateStats, timezone: str) -> Fields:
    modified = stats.last_modified_ms
    return [
        ("Total Keys:", str(stats.total_keys)),
        ("Expired Keys:", str(stats.expired_keys)),
        ("Active Locks:", str(stats.active_locks)),
        ("Size:", f"{stats.size_bytes:,} bytes"),
        ("Database Size:", f"{stats.db_size_bytes:,} bytes"),
        ("Database:", stats.db_path),
        ("Backend:", stats.backend),
        ("Last Modified:", NONE if modified is None else moment(modified, timezone)),
    ]


def compat_entries(entries: Sequence[EntryView]) -> dict[str, str]:
    """Return entries as `sloth-runner state list --output json` shows them: the text of each value, by key."""
    return {shown_text(entry.key): shown_value(entry.value, entry.type) for entry in entries}


def compat_entry(entry: EntryView) -> dict[str, str]:
    """Return an entry as `sloth-runner state show --output json` shows it."""
    return {
        "key": shown_text(entry.key),
        "value": shown_value(entry.value, entry.type),
        "created_at": rfc3339(entry.created_ms),
        "updated_at": rfc3339(entry.updated_ms),
    }


def rfc3339(ms: int) -> str:
    return datetime.fromtimestamp(ms // 1000, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def compat_stats(stats: StateStats) -> dict[str, object]:
    """Return figures as `sloth-runner state stats --output json` shows them; `total_size` is that of the database."""
    modified = stats.last_modified_ms
    return {
        "total_keys": stats.total_keys,
        "total_size": stats.db_size_bytes,
        "last_modified": None if modified is None else rfc3339(modified),
        "backend": stats.backend,
    }


def change_line(change: ChangeView) -> str:
    """Format a change as one line: `updated state counter 1 -> 2`."""
    sides: Sequence[object] = (change.old, change.new)
    old, new = (brief(shown_text(side) if isinstance(side, str) else to_json(side).decode()) for side in sides)
    match change.kind:
        case "created":
            what = new
        case "updated":
            what = f"{old} -> {new}"
        case _:
            what = f"was {old}"
    by = f"  by {change.job}" if change.job else ""
    return f"{change.kind} {change.namespace} {shown_key(change.key)}  {what}{by}"
