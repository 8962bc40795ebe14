"""`spyweb state export`, `import`, `move` and `rekey`, and `spyweb store move`: transfer or re-encrypt all at once."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from msgspec import structs

from spyweb.cli import output
from spyweb.cli.init import replaced
from spyweb.cli.options import Output, project_of
from spyweb.cli.output import Format
from spyweb.cli.project import Project
from spyweb.errors import ExitCode, Refused
from spyweb.model import JobId, Monitor
from spyweb.settings.load import store_at
from spyweb.settings.sections import USER_DB
from spyweb.specs.parse import job_id
from spyweb.store.interchange.foreign import OldProject, copy_tables, read_sloth, read_spyweb
from spyweb.store.interchange.lines import BadLine, LineReader, entry_line
from spyweb.store.lock import hold_lock
from spyweb.store.model.entries import PortableEntry, agent_namespace, job_namespace
from spyweb.store.opening import key_of, need_postgres
from spyweb.subjects.state.commands.stored import Agent, StateOutput, StatePlace, StoredState, Yes, agree, placed, spelt
from spyweb.subjects.state.views import Imported
from spyweb.words import counted

PIPE = "-"
PRIVATE = 0o600  # values may be secret
AT_ONCE = 500  # records in one transaction


class ImportFormat(StrEnum):
    """The program that wrote the file to import."""

    SLOTH = "sloth"
    SPYWEB = "spyweb"


@placed
def export(
    context: typer.Context,
    place: StatePlace,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The file to write; - is stdout.")],
    form: StateOutput = Format.TABLE,
) -> None:
    """Write entries to a file, one JSON object per line.

    Of all namespaces, unless one is chosen.
    """
    state = place.state()
    count = 0
    with output.meter("export", state.stats(place.chosen).total_keys) as meter, _target(file) as target:

        def write(portable: PortableEntry) -> None:
            nonlocal count
            target.write(entry_line(portable))
            count += 1
            meter.advance()

        state.export(place.chosen, write)
    if file == PIPE:
        output.note(f"{counted(count, 'entry', 'entries')} exported")
    else:
        output.tell(form, f"{counted(count, 'entry', 'entries')} exported to {file}", {"exported": count, "file": file})


def import_file(  # noqa: PLR0913 - each parameter is an option
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A file of `state export`; - is stdin.")],
    origin: Annotated[
        ImportFormat | None, typer.Option("--from", help="FILE is the SQLite database of another program.")
    ] = None,
    agent: Agent = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be imported.")] = False,
    yes: Yes = False,
    form: StateOutput = Format.TABLE,
) -> ExitCode:
    """Read entries from a file: all of them, or none.

    Entries with the same key are replaced, others stay.
    """
    if agent is not None and origin is not ImportFormat.SLOTH:
        raise Refused("--agent goes with --from sloth: other files name the namespace of each entry")
    project = project_of(context)
    if origin is ImportFormat.SPYWEB:
        return bring_spyweb(project, Path(file), form, dry_run=dry_run, yes=yes)
    if origin is ImportFormat.SLOTH:
        there = read_sloth(Path(file), agent_namespace(agent or "local"), project.clock.now_ms())
        given, expired = list(there.items), there.expired
    else:
        given, expired = read_lines(file), 0
    found = load(StoredState(project.stored()), given, dry_run=dry_run, yes=yes)
    if found is None:
        return ExitCode.FAILED
    left_out = found.expired + expired
    words = f"{found.added} added, {found.replaced} replaced" + (f", {left_out} left out: expired" if left_out else "")
    fields = {"added": found.added, "replaced": found.replaced, "expired": left_out, "dry_run": dry_run}
    output.tell(form, f"it would be {words}" if dry_run else words, fields)
    return ExitCode.OK


def move(
    context: typer.Context,
    old: Annotated[str, typer.Argument(metavar="OLD", help="The job's id as it was.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The job's id as it is now.")],
    force: Annotated[bool, typer.Option("--force", help="When both have a key, delete that of NEW.")] = False,
    form: StateOutput = Format.TABLE,
) -> None:
    """Move the keys and records of a renamed job to its new id.

    History and seen items move too.  Moves nothing when both have a key, unless --force is given.
    """
    if not new or new != job_id(new):
        raise Refused(f"'{spelt(new)}' is not a job's id, so no job could read the moved keys: see `spyweb jobs`")
    state = StoredState(project_of(context).stored())
    found = state.move(*(job_namespace(JobId(name)) for name in (old, new)), force=force)
    moved = f"{counted(found.moved, 'entry', 'entries')} and {counted(found.records, 'record')}"
    output.tell(form, f"{moved} moved from {old} to {new}", {"moved": found.moved, "records": found.records})


def rekey(
    context: typer.Context,
    key_file: Annotated[str, typer.Argument(metavar="KEY_FILE", help="The new key; `none` decrypts everything.")],
    yes: Yes = False,
    form: StateOutput = Format.TABLE,
) -> ExitCode:
    """Encrypt stored values with another key.

    Values, past versions and events: all of them, or none.  Only while no daemon runs.
    """
    from spyweb.store.encryption import BYTES, codec_for, find_key  # only needed when no daemon runs
    from spyweb.store.sqlite.store import rotate_key

    project = project_of(context)
    offline = project.offline
    store = project.settings.store
    if not store.is_postgres and not store.path.exists():
        raise Refused(f"{project.root}: there is no database, so nothing is encrypted")
    new = None if key_file == "none" else find_key(key_file, project.root, os.environ)
    if not agree(f"Encrypt everything in {store.url if store.is_postgres else store.path} again?", yes=yes):
        return ExitCode.FAILED
    with hold_lock(project.settings.daemon.data_dir, root=project.root, clock=project.clock):
        if store.is_postgres:
            need_postgres()
            from spyweb.store.postgres.store import reseal, server_of

            before, after = (BYTES if key is None else codec_for(key) for key in (key_of(project.settings), new))
            reseal(server_of(project.settings), before, after)
            is_purged = True
        else:
            is_purged = rotate_key(store.path, old=key_of(project.settings), new=new, marker=offline.marker())
    setting = "" if new is None else key_file
    if not is_purged:
        output.note("parts of older values are still in the file: the next start writes it again, which needs room")
    output.tell(form, f'now set key_file = "{setting}" in [store] of config.toml', {"key_file": setting})
    return ExitCode.OK


def move_store(
    context: typer.Context,
    url: Annotated[str, typer.Argument(metavar="URL", help="Where to: as `[store] url` in config.toml.")],
    yes: Yes = False,
    form: StateOutput = Format.TABLE,
) -> ExitCode:
    """Move everything stored to PostgreSQL, or back to SQLite.

    All, or nothing: what arrived is compared.  Only while no daemon runs.  The old database stays as it is, and no
    daemon opens it any more.  Tables that scripts made with db_exec stay in user.db.
    """
    project = project_of(context)
    settings = project.offline.settings
    target = store_at(url, settings, os.environ)
    is_pair = settings.store.is_postgres or target.is_postgres
    if target.url == settings.store.url or target.is_memory or not is_pair:
        raise Refused("expected another PostgreSQL, or one in place of SQLite, or SQLite in place of one")
    if not settings.store.is_postgres and not settings.store.path.exists():
        raise Refused(f"{project.root}: there is no database, so nothing is there to be moved")
    if not agree(f"Move everything from {settings.store.url} to {target.url}?", yes=yes):
        return ExitCode.FAILED
    need_postgres()
    output.log_only_errors()
    from spyweb.store.postgres.moving import move, open_side

    with hold_lock(settings.daemon.data_dir, root=project.root, clock=project.clock), output.meter("move") as meter:
        key, clock = key_of(settings), project.clock
        old = open_side(settings, key, clock, is_source=True)
        new = open_side(replace(settings, store=target), key, clock, is_source=False)
        moved = move(old, new, meter.expect, meter.advance)
    shown = target.url if target.is_postgres else url
    if form is Format.JSON:
        output.show_json({"url": shown, "tables": moved})
        return ExitCode.OK
    rows = [(each.table, f"{each.rows:,}", each.digest) for each in moved if each.rows]
    output.show_table(("table", "rows", "digest"), rows, empty="there was nothing to be moved")
    apart = "; its password belongs into SPYWEB_STORE_PASSWORD or ~/.pgpass" if shown != url else ""
    output.note(f'now set url = "{shown}" in [store] of config.toml{apart}')
    return ExitCode.OK


def backup(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to make.")],
    form: Output = Format.TABLE,
) -> None:
    """Write everything stored into a new file.

    Also while the daemon runs.  The file gets its name once it is complete and checked.
    """
    from spyweb.store.sqlite.backup import make_backup  # slow to import

    project = project_of(context)
    settings = project.offline.settings
    project.refuse_strangers()
    with output.meter("backup") as meter:
        made = make_backup(file, settings, key_of(settings), project.clock, meter.expect, meter.advance)
    output.tell(form, f"{file} holds what was stored at {made.created}", made)


def restore(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of `spyweb backup`.")],
    force: Annotated[bool, typer.Option("--replace", help="Move a database that is there aside.")] = False,
    form: Output = Format.TABLE,
) -> None:
    """Put everything stored back as a backup has it.

    All of it, or nothing.  Only while no daemon runs.
    """
    from spyweb.store.sqlite import backup  # slow to import

    project = project_of(context)
    settings, data_dir = project.offline.settings, project.settings.daemon.data_dir
    with hold_lock(data_dir, root=project.root, clock=project.clock), output.meter("restore") as meter:
        found, aside = backup.restore(file, settings, key_of(settings), meter.expect, meter.advance, is_forced=force)
    kept = f"; what was there is kept, in files that end with {aside}" if aside else ""
    output.tell(form, f"all is as it was stored at {found.created}{kept}", {"backup": found, "aside": aside})


def vacuum(context: typer.Context, form: Output = Format.TABLE) -> None:
    """Give the free space in the database back to the disk.

    Only while no daemon runs.  Tables that scripts made with db_exec, in user.db, stay as they are.
    """
    from spyweb.store.sqlite import backup  # slow to import

    project = project_of(context)
    settings = project.offline.settings
    with hold_lock(settings.daemon.data_dir, root=project.root, clock=project.clock):
        before, after = backup.vacuum(settings, key_of(settings), project.clock)
    output.tell(form, f"{before:,} bytes before, {after:,} after", {"before_bytes": before, "after_bytes": after})


def bring_spyweb(project: Project, file: Path, form: Format, *, dry_run: bool, yes: bool) -> ExitCode:
    """Import a SpyWeb project: first its keys, which may be declined, then its records and tables."""
    monitors = {spec.id: spec.monitor for spec in project.offline.specs}
    old = read_spyweb(file, project.clock.now_ms())
    state = StoredState(project.stored())
    found = load(state, list(old.items), dry_run=dry_run, yes=yes)
    if found is None:
        return ExitCode.FAILED
    count = sum(map(len, old.records.values()))
    records, tables, kept = count, list(old.tables), list[str]()
    if not dry_run:
        records = _add_records(state, old, monitors, count)
        tables, kept = map(list, copy_tables(file, project.settings.daemon.data_dir / USER_DB))
    words = (
        f"{found.added} added, {found.replaced} replaced",
        f"records: {records} of {count}, none of them announced" if count else "",
        f"records that can't be read: {old.unreadable}" if old.unreadable else "",
        f"tables: {', '.join(tables)}" if tables else "",
        f"tables that are here already, and stay as they are: {', '.join(kept)}" if kept else "",
    )
    fields = {
        "added": found.added,
        "replaced": found.replaced,
        "expired": found.expired,
        "dry_run": dry_run,
        "records": records,
        "unreadable_records": old.unreadable,
        "tables": tables,
        "kept_tables": kept,
    }
    output.tell(form, ("it would be " if dry_run else "") + "; ".join(filter(None, words)), fields)
    return ExitCode.OK


def read_lines(file: str) -> list[PortableEntry]:
    """Read exported entries.  Raises Refused with the line that is no entry."""
    reader, entries = LineReader(), list[PortableEntry]()
    name = "stdin" if file == PIPE else file
    try:
        size = 0 if file == PIPE else Path(file).stat().st_size
        with ExitStack() as opened, output.meter("read", size) as meter:
            source = sys.stdin.buffer if file == PIPE else opened.enter_context(Path(file).open("rb"))
            for line in source:
                meter.advance(len(line))
                if (portable := reader.read(line)) is not None:
                    entries.append(portable)
            return entries
    except BadLine as error:
        raise Refused(f"{name}:{error.number}: {error.reason}; nothing was imported") from error
    except OSError as error:
        raise Refused(f"{name}: {error.strerror}") from error


def load(state: StoredState, given: list[PortableEntry], *, dry_run: bool, yes: bool) -> Imported | None:
    """Load entries; return None when the person who was asked said no."""

    def pass_on(*, dry_run: bool) -> Imported:
        with output.meter("check" if dry_run else "import", len(given)) as meter:
            return state.load(given, dry_run=dry_run, each=lambda _: meter.advance())

    if dry_run or not yes:
        planned = pass_on(dry_run=True)
        if dry_run:
            return planned
        if planned.replaced and not agree(f"Replace {counted(planned.replaced, 'entry', 'entries')}?", yes=False):
            return None
    return pass_on(dry_run=False)


@contextmanager
def _target(file: str) -> Iterator[BinaryIO]:
    if file == PIPE:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        path = Path(file)
        # A device or a named pipe, say, is written to, never replaced.
        is_special = path.exists() and not path.is_file() and not path.is_dir()
        with open(file, "wb") if is_special else replaced(path, PRIVATE) as target:
            yield target
    except OSError as error:
        raise Refused(f"{file}: {error.strerror}") from error


def _add_records(state: StoredState, old: OldProject, monitors: Mapping[JobId, Monitor | None], count: int) -> int:
    """Add the old records, and return how many were new here: doing it again changes nothing."""
    from spyweb.monitor.keep import hash_of  # every other command does without the ops

    added = 0
    with output.meter("records", count) as meter:
        for job, found in old.records.items():
            monitor = monitors.get(job)
            names = monitor.hash_fields if monitor else ()  # none stands for all
            for part in (found[start : start + AT_ONCE] for start in range(0, len(found), AT_ONCE)):
                records = [structs.replace(record, hash=hash_of(record.fields, names)) for record in part]
                added += state.add_records(job, records).added
                meter.advance(len(part))
    return added
