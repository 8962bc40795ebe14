"""`spyweb state set`, `delete`, `clear`, `rollback`, `move`, `locks` and `rekey`: change what is stored."""

from __future__ import annotations

import os
from enum import StrEnum
from functools import partial
from typing import Annotated

import typer

from spyweb.cli import output
from spyweb.cli.options import project_of
from spyweb.cli.output import Format
from spyweb.cli.project import Project
from spyweb.errors import ExitCode, Refused
from spyweb.model import NULL, JobId, Value
from spyweb.settings.units import parse_duration
from spyweb.specs.parse import job_id
from spyweb.store.interchange.value_json import LARGEST, decode_value, to_plain
from spyweb.store.model.entries import SCOPES, job_namespace
from spyweb.subjects.state.commands.look import shown_key
from spyweb.subjects.state.commands.stored import (
    Key,
    Pattern,
    StateOutput,
    StatePlace,
    StoredState,
    Yes,
    agree,
    as_bytes,
    placed,
    spelt,
)
from spyweb.subjects.state.views import LockView
from spyweb.words import counted

NONE = "none"  # no key


@placed
def set_entry(  # noqa: PLR0913 - each parameter is an option
    context: typer.Context,
    place: StatePlace,
    key: Key,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="JSON, or text that is not JSON.")],
    string: Annotated[bool, typer.Option("--string", help="VALUE is text, whatever it looks like.")] = False,
    ttl: Annotated[
        str, typer.Option(metavar="SECONDS", help="How long it lives: 90, or 1h30m.", show_default=False)
    ] = "",
    form: StateOutput = Format.TABLE,
) -> None:
    """Keep a value, in place of what was there."""
    parsed = as_bytes(value) if string or place.keeps_text else parse_value(value)
    if parsed is NULL and not place.namespace.startswith(SCOPES):
        raise Refused(f"{spelt(key)}: JSON's null can only be kept inside a table; --string keeps it as text")
    created = place.state().put(place.namespace, as_bytes(key), parsed, parse_ttl(ttl)).created
    tell_of(key, form, f"is {'new' if created else 'replaced'}", created=created)


@placed
def delete(
    context: typer.Context, place: StatePlace, key: Key, yes: Yes = False, form: StateOutput = Format.TABLE
) -> ExitCode:
    """Delete an entry."""
    if not agree(f"Delete {spelt(key)} of {place.namespace}?", yes=yes):
        return ExitCode.FAILED
    deleted = place.state().delete(place.namespace, as_bytes(key)).deleted
    tell_of(key, form, "is deleted" if deleted else "was not there", deleted=deleted)
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

    Locks stay, and so does what other namespaces keep.
    """
    state = place.state()
    if not yes:
        count = state.count(place.namespace, as_bytes(pattern))
        if count and not agree(f"Delete {counted(count, 'entry', 'entries')} of {place.namespace}?", yes=False):
            return ExitCode.FAILED
    deleted = state.clear(place.namespace, as_bytes(pattern))
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
    """Keep the value of an earlier version again.

    It becomes a new version, without an expiry.
    """
    if not agree(f"Put {spelt(key)} of {place.namespace} back to version {version}?", yes=yes):
        return ExitCode.FAILED
    place.state().rollback(place.namespace, as_bytes(key), version)
    tell_of(key, form, f"is as it was in version {version}", version=version)
    return ExitCode.OK


def move(
    context: typer.Context,
    old: Annotated[str, typer.Argument(metavar="OLD", help="The job's id as it was.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The job's id as it is now.")],
    force: Annotated[bool, typer.Option("--force", help="Where both have a key, delete that of NEW.")] = False,
    form: StateOutput = Format.TABLE,
) -> None:
    """Give a renamed job the keys and records that it had.

    With their history, and with what it has seen.  Moves nothing when both have a key, unless --force is given.
    """
    if not new or new != job_id(new):
        raise Refused(f"'{spelt(new)}' is no job's id, so no job could find what is moved there: see `spyweb jobs`")
    state = StoredState(project_of(context).stored())
    found = state.move(*(job_namespace(JobId(name)) for name in (old, new)), force=force)
    moved = f"{counted(found.moved, 'entry', 'entries')} and {counted(found.records, 'record')}"
    output.tell(form, f"{moved} moved from {old} to {new}", {"moved": found.moved, "records": found.records})


def parse_value(text: str) -> Value:
    """Return the value of a JSON text, or the text itself where it is no JSON."""
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
    """Print what became of a key."""
    output.tell(form, f"{spelt(key)} {what}", {"key": to_plain(as_bytes(key)), **fields})


def rekey(
    context: typer.Context,
    key_file: Annotated[str, typer.Argument(metavar="KEY_FILE", help="The new key; `none` decrypts everything.")],
    yes: Yes = False,
    form: StateOutput = Format.TABLE,
) -> ExitCode:
    """Encrypt what is kept with another key.

    Values, past versions and events: all of them, or none.  Only while no daemon runs.
    """
    from spyweb.store.encryption import find_key  # where a daemon runs, no command needs the store
    from spyweb.store.lock import hold_lock
    from spyweb.store.sqlite.store import rotate_key

    project = project_of(context)
    offline = project.offline
    if project.settings.store.is_memory or not project.settings.store.path.exists():
        raise Refused(f"{project.root}: there is no database, so nothing is encrypted")
    new = None if key_file == NONE else find_key(key_file, project.root, os.environ)
    if not agree(f"Write everything anew in {project.settings.store.path}?", yes=yes):
        return ExitCode.FAILED
    with hold_lock(project.settings.daemon.data_dir, root=project.root, clock=project.clock):
        is_purged = rotate_key(project.settings.store.path, old=offline.key(), new=new, marker=offline.marker())
    setting = "" if new is None else key_file
    if not is_purged:
        output.note("parts of the older values are left in its file: the next start writes it anew, which needs room")
    output.tell(form, f'now set key_file = "{setting}" in [store] of config.toml', {"key_file": setting})
    return ExitCode.OK


class LockAction(StrEnum):
    BREAK = "break"


def locks(
    context: typer.Context,
    what: Annotated[LockAction | None, typer.Argument(metavar="break", help="`break NAME` takes a lock away.")] = None,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The lock's name.", show_default=False)] = "",
    yes: Yes = False,
    form: StateOutput = Format.TABLE,
) -> ExitCode:
    """List the locks that are held, or break one.

    Whoever held a broken lock is not told, and may still be at work.
    """
    project = project_of(context)
    if what is None:
        found, row = StoredState(project.stored()).locks(), partial(_lock_row, project)
        output.show_list(form, found, row, empty="no lock is held", cut=("name", "holder"))
        return ExitCode.OK
    if not name:
        raise Refused("`spyweb state locks break` needs the lock's NAME")
    shown = spelt(name)
    if not agree(f"Break the lock {shown}?", yes=yes):
        return ExitCode.FAILED
    broken = StoredState(project.stored()).break_lock(as_bytes(name))
    line = f"{shown} is free: {shown_key(broken.holder)} held it" if broken else f"nobody held {shown}"
    output.tell(form, line, {"name": to_plain(as_bytes(name)), "holder": broken.holder if broken else None})
    return ExitCode.OK


def _lock_row(project: Project, lock: LockView) -> dict[str, str]:
    return {
        "name": shown_key(lock.name),
        "holder": shown_key(lock.holder),
        "run": "-" if lock.run is None else str(lock.run),
        "since": project.moment(lock.acquired_ms),
        "lease": output.rounded(lock.expires_ms - project.clock.now_ms()),
    }
