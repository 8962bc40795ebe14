"""Import what SpyWeb keeps beside stored keys: records, with what was seen, and scripts' tables.

Doing it again changes nothing: a record that is here already is left as it is, and so is a table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from spyweb.cli import output
from spyweb.cli.project import Project
from spyweb.cli.state.remote import State
from spyweb.monitor.stages.keep import hash_of
from spyweb.settings.sections import USER_DB
from spyweb.store.interchange.foreign_spyweb import OldProject, OldRecord, copy_tables
from spyweb.store.model.records import NewRecord

AT_ONCE = 500  # records in one transaction


class SpyWebImport(Struct, frozen=True):
    """Imports the records and tables of an old project."""

    project: Project
    state: State
    old: OldProject

    def plan(self) -> dict[str, object]:
        """Return what `carry_out` would import."""
        return self._fields(self._count(), list(self.old.tables), [])

    def carry_out(self, file: Path) -> dict[str, object]:
        """Bring the records, then the tables.  Raises Refused where one of these can't be brought."""
        records = self._add_records()
        copied, kept = copy_tables(file, self.project.settings.daemon.data_dir / USER_DB)
        return self._fields(records, copied, kept)

    def describe(self, fields: Mapping[str, object]) -> Iterator[str]:
        """Yield the result in words, one part each."""
        if count := self._count():
            yield f"records: {fields['records']} of {count}, none of them announced"
        if self.old.unreadable:
            yield f"records that can't be read: {self.old.unreadable}"
        for name, what in (("tables", "tables"), ("kept_tables", "tables that are here already, and stay as they are")):
            names = fields[name]
            if isinstance(names, list) and names:
                yield f"{what}: {', '.join(names)}"

    def _fields(self, records: int, tables: Sequence[str], kept: Sequence[str]) -> dict[str, object]:
        return {
            "records": records,
            "unreadable_records": self.old.unreadable,
            "tables": tables,
            "kept_tables": kept,
        }

    def _count(self) -> int:
        return sum(map(len, self.old.records.values()))

    def _add_records(self) -> int:
        """Add the old records, and return how many were new here."""
        monitors = {spec.id: spec.monitor for spec in self.project.offline.specs}
        added = 0
        with output.progress("records", self._count()) as advance:
            for job, found in self.old.records.items():
                monitor = monitors.get(job)
                names = monitor.hash_fields if monitor else ()  # none stands for all
                for part in (found[start : start + AT_ONCE] for start in range(0, len(found), AT_ONCE)):
                    added += self.state.add_records(job, [as_new(record, names) for record in part])
                    advance(len(part))
        return added


def as_new(record: OldRecord, hash_fields: Sequence[str]) -> NewRecord:
    return NewRecord(
        hash=hash_of(record.fields, hash_fields),
        fields=record.fields,
        matches=record.matches,
        url=record.url,
        found_ns=record.found_ns,
    )
