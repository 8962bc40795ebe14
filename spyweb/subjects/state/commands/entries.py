"""`spyweb state list`, `get`, `set`, `history`, `watch`, `locks` and others: show entries and change them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import Annotated
from zoneinfo import ZoneInfo

import msgspec
import typer

from spyweb.cli import output
from spyweb.cli.client import with_query
from spyweb.cli.options import MOST_ROWS, project_of
from spyweb.cli.output import Format, moment
from spyweb.cli.project import Project
from spyweb.errors import ExitCode, Refused
from spyweb.model import Value
from spyweb.settings.units import HOUR_MS, MINUTE_MS, SECOND_MS, format_duration, parse_duration
from spyweb.store.encoding import LARGEST
from spyweb.store.interchange.value_json import TypeName, decode_value, to_plain
from spyweb.subjects.state.commands.stored import (
    Compat,
    Key,
    Pattern,
    StateOutput,
    StatePlace,
    StoredState,
    Yes,
    agree,
    as_bytes,
    one_line,
    placed,
    spelt,
)
from spyweb.subjects.state.views import ChangeView, EntryView, LockView, bytes_of, is_text
from spyweb.views.jobs import to_json
from spyweb.words import counted, cut

WIDEST = 50  # characters of a value in a list
NONE = "-"

Prefix = Annotated[str, typer.Argument(metavar="PREFIX", help="Only keys with this beginning.", show_default=False)]


@placed
def list_entries(
    context: typer.Context,
    place: StatePlace,
    prefix: Prefix = "",
    count: Annotated[int | None, typer.Option("-n", metavar="N", min=1, max=MOST_ROWS, help="How many.")] = None,
    form: StateOutput = Format.TABLE,
    compat: Compat = False,
) -> None:
    """List the entries, sorted by key."""
    found = place.state().entries(place.namespace, as_bytes(prefix), count)
    if compat:
        output.show_json({shown_text(entry.key): shown_value(entry.value, entry.type) for entry in found})
        return
    empty, row = f"no entries in {place.namespace}", partial(entry_row, place.project)
    output.show_list(form, found, row, empty=empty, cut=("value", "key"))
    if found and form is not Format.JSON:
        output.say(f"Total: {counted(len(found), 'key')}")


@placed
def show(
    context: typer.Context, place: StatePlace, key: Key, form: StateOutput = Format.TABLE, compat: Compat = False
) -> ExitCode:
    """Show an entry with its type, times and version."""
    entry = place.state().entry(place.namespace, as_bytes(key))
    if entry is None:
        return missing(place, key)
    if compat:
        moments = {"created_at": rfc3339(entry.created_ms), "updated_at": rfc3339(entry.updated_ms)}
        value = shown_value(entry.value, entry.type)
        output.show_json({"key": shown_text(entry.key), "value": value, **moments})
    elif form is Format.JSON:
        output.show_json(entry)
    else:
        output.show_fields(entry_fields(entry, place.project.clock.now_ms(), place.timezone))
    return ExitCode.OK


@placed
def get(context: typer.Context, place: StatePlace, key: Key, form: StateOutput = Format.TABLE) -> ExitCode:
    """Print an entry's value, for other programs.

    A string is printed as it is, anything else as JSON.  Exit code 1 when there is no such key.
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
    """Show the number and size of entries and locks.

    In all namespaces, unless one is chosen.
    """
    found = place.state().stats(place.chosen)
    modified = found.last_modified_ms
    if compat:
        output.show_json(
            {
                "total_keys": found.total_keys,
                "total_size": found.db_size_bytes,
                "last_modified": None if modified is None else rfc3339(modified),
                "backend": found.backend,
            }
        )
    elif form is Format.JSON:
        output.show_json(found)
    else:
        output.show_fields(
            [
                ("Total Keys:", str(found.total_keys)),
                ("Expired Keys:", str(found.expired_keys)),
                ("Active Locks:", str(found.active_locks)),
                ("Size:", f"{found.size_bytes:,} bytes"),
                ("Database Size:", f"{found.db_size_bytes:,} bytes"),
                ("Database:", found.db_path),
                ("Backend:", found.backend),
                ("Last Modified:", NONE if modified is None else moment(modified, place.timezone)),
            ]
        )


@placed
def history(
    context: typer.Context,
    place: StatePlace,
    key: Key,
    count: Annotated[int | None, typer.Option("-n", metavar="N", min=1, max=MOST_ROWS, help="How many.")] = None,
    form: StateOutput = Format.TABLE,
) -> None:
    """List the stored versions of an entry, newest first.

    The setting [state.history] says how many are kept.
    """
    found = place.state().history(place.namespace, as_bytes(key), count)

    def row(entry: EntryView) -> dict[str, str]:
        shown = entry_row(place.project, entry)
        return {"version": str(entry.version), **{name: shown[name] for name in ("value", "type", "updated")}}

    empty = f"no version of {spelt(key)} in {place.namespace}"
    output.show_list(form, found, row, empty=empty, cut=("value",))


def missing(place: StatePlace, key: str) -> ExitCode:
    output.complain(f"there is no key {spelt(key)} in {place.namespace}")
    return ExitCode.FAILED


@placed
def watch(context: typer.Context, place: StatePlace, pattern: Pattern = "*", form: StateOutput = Format.TABLE) -> None:
    """Show changes as they happen, until Ctrl-C.

    In all namespaces, unless one is chosen.  Needs a daemon.
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
    raise Refused(daemon.cut_off("the end of the watch"))


@placed
def set_entry(  # noqa: PLR0913 - each parameter is an option
    context: typer.Context,
    place: StatePlace,
    key: Key,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="JSON, or text that is not JSON.")],
    string: Annotated[bool, typer.Option("--string", help="Store VALUE as text, even if it is JSON.")] = False,
    ttl: Annotated[str, typer.Option(metavar="SECONDS", help="It ends after 90, or 1h30m.", show_default=False)] = "",
    form: StateOutput = Format.TABLE,
) -> None:
    """Store a value under a key, replacing an older one."""
    parsed = as_bytes(value) if string or is_text(place.namespace) else parse_value(value)
    created = place.state().put(place.namespace, as_bytes(key), parsed, parse_ttl(ttl)).created
    tell_of(key, form, f"was {'created' if created else 'replaced'}", created=created)


@placed
def delete(
    context: typer.Context, place: StatePlace, key: Key, yes: Yes = False, form: StateOutput = Format.TABLE
) -> ExitCode:
    """Delete an entry."""
    if not agree(f"Delete {spelt(key)} of {place.namespace}?", yes=yes):
        return ExitCode.FAILED
    deleted = place.state().delete(place.namespace, as_bytes(key)).deleted
    tell_of(key, form, "was deleted" if deleted else "does not exist", deleted=deleted)
    return ExitCode.OK


@placed
def clear(
    context: typer.Context,
    place: StatePlace,
    pattern: Pattern = "*",
    yes: Yes = False,
    form: StateOutput = Format.TABLE,
) -> ExitCode:
    """Delete all entries, or those whose keys match.

    Locks and other namespaces stay as they are.
    """
    state = place.state()
    if not yes:
        count = state.count(place.namespace, as_bytes(pattern)).count
        if count and not agree(f"Delete {counted(count, 'entry', 'entries')} of {place.namespace}?", yes=False):
            return ExitCode.FAILED
    deleted = state.clear(place.namespace, as_bytes(pattern)).deleted
    output.tell(form, f"{counted(deleted, 'entry', 'entries')} deleted", {"deleted": deleted})
    return ExitCode.OK


@placed
def rollback(
    context: typer.Context,
    place: StatePlace,
    key: Key,
    version: Annotated[
        int, typer.Argument(metavar="VERSION", min=1, max=LARGEST, help="As `spyweb state history` shows it.")
    ],
    yes: Yes = False,
    form: StateOutput = Format.TABLE,
) -> ExitCode:
    """Store the value of an earlier version again.

    It becomes a new version without an expiry.
    """
    if not agree(f"Put {spelt(key)} of {place.namespace} back to version {version}?", yes=yes):
        return ExitCode.FAILED
    place.state().rollback(place.namespace, as_bytes(key), version)
    tell_of(key, form, f"has the value of version {version} again", version=version)
    return ExitCode.OK


class LockAction(StrEnum):
    BREAK = "break"


def locks(
    context: typer.Context,
    what: Annotated[LockAction | None, typer.Argument(metavar="break", help="`break NAME` releases a lock.")] = None,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The lock's name.", show_default=False)] = "",
    yes: Yes = False,
    form: StateOutput = Format.TABLE,
) -> ExitCode:
    """List the locks that are held, or break one.

    The run that held a broken lock is not interrupted and may still be working.
    """
    project = project_of(context)
    if what is None:

        def row(lock: LockView) -> dict[str, str]:
            return {
                "name": shown_key(lock.name),
                "holder": shown_key(lock.holder),
                "run": NONE if lock.run is None else str(lock.run),
                "since": project.moment(lock.acquired_ms),
                "lease": output.rounded(lock.expires_ms - project.clock.now_ms()),
            }

        found = StoredState(project.stored()).locks()
        output.show_list(form, found, row, empty="no lock is held", cut=("name", "holder"))
        return ExitCode.OK
    if not name:
        raise Refused("`spyweb state locks break` needs the lock's NAME")
    shown = spelt(name)
    if not agree(f"Break the lock {shown}?", yes=yes):
        return ExitCode.FAILED
    broken = StoredState(project.stored()).break_lock(as_bytes(name)).broken
    line = f"{shown} was released: {shown_key(broken.holder)} held it" if broken else f"{shown} is not held"
    output.tell(form, line, {"name": to_plain(as_bytes(name)), "holder": broken.holder if broken else None})
    return ExitCode.OK


def parse_value(text: str) -> Value:
    """Return the value of a JSON text, or the text itself when it is not JSON."""
    given = as_bytes(text)
    try:
        return decode_value(given)
    except ValueError:
        return given


def parse_ttl(text: str) -> int | None:
    """Read a time to live; None is for ever.  Raises Refused."""
    if not text:
        return None
    try:
        return parse_duration(text) or None
    except ValueError as error:
        raise Refused(f"--ttl: {error}") from error


def tell_of(key: str, form: Format, what: str, **fields: object) -> None:
    output.tell(form, f"{spelt(key)} {what}", {"key": to_plain(as_bytes(key)), **fields})


def shown_text(text: object) -> str:
    """Return a text, with bytes that are not UTF-8 escaped."""
    return text if isinstance(text, str) else bytes_of(text).decode("utf-8", "backslashreplace")


def shown_key(key: object) -> str:
    return one_line(shown_text(key))


def shown_value(value: object, kind: TypeName) -> str:
    """Return a string as it is, everything else as JSON."""
    return shown_text(value) if kind is TypeName.STRING else to_json(value).decode()


def brief(text: str) -> str:
    """Cut a text to one line that fits into a list."""
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


def entry_fields(entry: EntryView, now_ms: int, timezone: str) -> list[tuple[str, str]]:
    return [
        ("Key:", shown_key(entry.key)),
        ("Value:", shown_value(entry.value, entry.type)),
        ("Type:", entry.type),
        ("Created:", moment(entry.created_ms, timezone)),
        ("Updated:", moment(entry.updated_ms, timezone)),
        ("TTL:", ttl(entry.expires_ms, now_ms)),
        ("Version:", str(entry.version)),
    ]


def rfc3339(ms: int) -> str:
    return datetime.fromtimestamp(ms // 1000, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


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
