"""`spyweb state list`, `show`, `get`, `stats`, `history` and `watch`: look at stored entries."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Annotated
from zoneinfo import ZoneInfo

import msgspec
import typer

from spyweb.cli import output
from spyweb.cli.client import with_query
from spyweb.cli.options import MOST_ROWS
from spyweb.cli.output import Format
from spyweb.errors import ExitCode, Refused
from spyweb.store.interchange.value_json import TypeName
from spyweb.subjects.state.commands import render
from spyweb.subjects.state.commands.options import (
    Compat,
    Key,
    Pattern,
    StateOutput,
    StatePlace,
    as_bytes,
    placed,
    spelt,
)
from spyweb.subjects.state.views import ChangeView, bytes_of
from spyweb.views.jobs import to_json
from spyweb.words import counted

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
        output.show_json(render.compat_entries(found))
        return
    empty, row = f"nothing is kept in {place.namespace}", partial(render.entry_row, place.project)
    output.show_list(form, found, render.HEADER, row, empty=empty, cut=("value", "key"))
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
        output.show_json(render.compat_entry(entry))
    elif form is Format.JSON:
        output.show_json(entry)
    else:
        output.show_fields(render.entry_fields(entry, place.project.clock.now_ms(), place.timezone))
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
        output.show_json(render.compat_stats(found))
    elif form is Format.JSON:
        output.show_json(found)
    else:
        output.show_fields(render.stats_fields(found, place.timezone))


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
    empty, row = f"no version of {spelt(key)} is kept in {place.namespace}", partial(render.history_row, place.project)
    output.show_list(form, found, render.HISTORY_HEADER, row, empty=empty, cut=("value",))


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
        output.say(f"{at:%H:%M:%S}.{change.at_ms % 1000:03d} {render.change_line(change)}")
    raise Refused(daemon.cut_off("the watch was stopped"))
