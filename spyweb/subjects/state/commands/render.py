"""Format stored values for people."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from spyweb.cli.output import moment, rounded
from spyweb.cli.project import Project
from spyweb.settings.units import HOUR_MS, MINUTE_MS, SECOND_MS, format_duration
from spyweb.store.interchange.value_json import TypeName
from spyweb.subjects.state.views import ChangeView, EntryView, LockView, StateStats, bytes_of
from spyweb.views.jobs import to_json
from spyweb.words import cut

WIDEST = 50  # characters of a value in a list
HEADER = ("key", "value", "type", "ttl", "updated")
HISTORY_HEADER = ("version", "value", "type", "updated")
LOCKS_HEADER = ("name", "holder", "run", "since", "lease")
NONE = "-"

Fields = list[tuple[str, str]]
Row = tuple[str, ...]


def shown_text(text: object) -> str:
    """Return a text, with bytes that are not UTF-8 escaped."""
    return text if isinstance(text, str) else bytes_of(text).decode("utf-8", "backslashreplace")


def shown_key(key: object) -> str:
    return one_line(shown_text(key))


def shown_value(value: object, kind: TypeName) -> str:
    """Return a string as it is, everything else as JSON."""
    return shown_text(value) if kind is TypeName.STRING else to_json(value).decode()


def one_line(text: str) -> str:
    return text.replace("\r", "\\r").replace("\n", "\\n").replace("\t", "\\t")


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


def entry_row(project: Project, entry: EntryView) -> Row:
    return (
        shown_key(entry.key),
        brief(shown_value(entry.value, entry.type)),
        entry.type,
        ttl(entry.expires_ms, project.clock.now_ms()),
        project.moment(entry.updated_ms),
    )


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


def history_row(project: Project, entry: EntryView) -> Row:
    value = brief(shown_value(entry.value, entry.type))
    return (str(entry.version), value, entry.type, project.moment(entry.updated_ms))


def lock_row(project: Project, lock: LockView) -> Row:
    return (
        shown_key(lock.name),
        shown_key(lock.holder),
        NONE if lock.run is None else str(lock.run),
        project.moment(lock.acquired_ms),
        rounded(lock.expires_ms - project.clock.now_ms()),
    )


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
