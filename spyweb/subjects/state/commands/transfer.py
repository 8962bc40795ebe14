"""`spyweb state export` and `import`: write entries to a file of JSON Lines, and read them back, all or none."""

from __future__ import annotations

import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from spyweb.cli import output
from spyweb.cli.init import replaced
from spyweb.cli.options import project_of
from spyweb.cli.output import Format
from spyweb.cli.project import Project
from spyweb.errors import ExitCode, Refused
from spyweb.model import JobId, Monitor
from spyweb.settings.sections import USER_DB
from spyweb.store.interchange.foreign import OldProject, OldRecord, copy_tables, read_sloth, read_spyweb
from spyweb.store.interchange.lines import BadLine, LineReader, entry_line
from spyweb.store.model.entries import PortableEntry, agent_namespace
from spyweb.store.model.records import NewRecord
from spyweb.subjects.state.commands.stored import Agent, StateOutput, StatePlace, StoredState, Yes, agree, placed
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
    file: Annotated[str, typer.Argument(metavar="FILE", help="Where to; - is stdout.")],
    form: StateOutput = Format.TABLE,
) -> None:
    """Write entries to a file, one JSON object a line.

    Those of all namespaces, unless one is chosen.
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
    file: Annotated[str, typer.Argument(metavar="FILE", help="What an export wrote; - is stdin.")],
    origin: Annotated[
        ImportFormat | None, typer.Option("--from", help="FILE is the SQLite database of another program.")
    ] = None,
    agent: Agent = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what it would come to.")] = False,
    yes: Yes = False,
    form: StateOutput = Format.TABLE,
) -> ExitCode:
    """Read entries from a file: all of them, or none.

    Entries with the same key are replaced, others stay.
    """
    if agent is not None and origin is not ImportFormat.SLOTH:
        raise Refused("--agent goes with --from sloth: other files say themselves where each entry belongs")
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
    reader = LineReader()
    name = "stdin" if file == PIPE else file
    try:
        with _source(file) as source, output.meter("read", _size(file)) as meter:
            return [portable for line in _counted(source, meter) if (portable := reader.read(line)) is not None]
    except BadLine as error:
        raise Refused(f"{name}:{error.number}: {error.reason}; nothing was imported") from error
    except OSError as error:
        raise Refused(f"{name}: {error.strerror}") from error


def load(state: StoredState, given: list[PortableEntry], *, dry_run: bool, yes: bool) -> Imported | None:
    """Load entries; return None when the person who was asked said no."""
    if dry_run or not yes:
        planned = _load(state, given, dry_run=True)
        if dry_run:
            return planned
        if planned.replaced and not agree(f"Replace {counted(planned.replaced, 'entry', 'entries')}?", yes=False):
            return None
    return _load(state, given, dry_run=False)


def _load(state: StoredState, given: list[PortableEntry], *, dry_run: bool) -> Imported:
    with output.meter("check" if dry_run else "import", len(given)) as meter:
        return state.load(given, dry_run=dry_run, each=lambda _: meter.advance())


@contextmanager
def _target(file: str) -> Iterator[BinaryIO]:
    if file == PIPE:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        with open(file, "wb") if _is_special(file) else replaced(Path(file), PRIVATE) as target:
            yield target
    except OSError as error:
        raise Refused(f"{file}: {error.strerror}") from error


def _is_special(file: str) -> bool:
    """Return whether this is a device or a named pipe, say: it is written to, never replaced."""
    try:
        mode = Path(file).stat().st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


@contextmanager
def _source(file: str) -> Iterator[BinaryIO]:
    if file == PIPE:
        yield sys.stdin.buffer
        return
    with Path(file).open("rb") as source:
        yield source


def _size(file: str) -> int:
    return 0 if file == PIPE else Path(file).stat().st_size


def _counted(lines: Iterable[bytes], meter: output.Meter) -> Iterator[bytes]:
    for line in lines:
        meter.advance(len(line))
        yield line


def _add_records(state: StoredState, old: OldProject, monitors: Mapping[JobId, Monitor | None], count: int) -> int:
    """Add the old records, and return how many were new here: doing it again changes nothing."""
    from spyweb.monitor.keep import hash_of  # every other command does without the ops

    added = 0
    with output.meter("records", count) as meter:
        for job, found in old.records.items():
            monitor = monitors.get(job)
            names = monitor.hash_fields if monitor else ()  # none stands for all
            for part in (found[start : start + AT_ONCE] for start in range(0, len(found), AT_ONCE)):
                added += state.add_records(job, [_as_new(record, hash_of(record.fields, names)) for record in part])
                meter.advance(len(part))
    return added


def _as_new(record: OldRecord, digest: bytes) -> NewRecord:
    return NewRecord(
        hash=digest,
        fields=record.fields,
        matches=record.matches,
        url=record.url,
        found_ns=record.found_ns,
    )
