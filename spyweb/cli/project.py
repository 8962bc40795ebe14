"""A project as its files and its database tell it, for when no daemon answers; and the daemon, when one does."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from msgspec.structs import replace

from spyweb.cli.client import Daemon, find_daemon
from spyweb.clock import Clock, RealClock
from spyweb.errors import Refused
from spyweb.jobs.cursor import Welcome, dismissed, welcome
from spyweb.jobs.discover import Scan, scan
from spyweb.jobs.due import SPREAD_MS, settle, upcoming
from spyweb.jobs.history import history_rules
from spyweb.jobs.outbox_view import MessageView, view_message
from spyweb.jobs.record_view import RecordView, view_record
from spyweb.jobs.view import (
    JobFacts,
    JobView,
    NextRun,
    broken_job,
    find_job,
    next_run,
    no_such_job,
    view_job,
    zone_of,
)
from spyweb.jobs.watches import watches_of
from spyweb.model import Cursor, JobId, JobSpec, Run, RunId
from spyweb.settings import Settings, load_settings
from spyweb.store.access import no_access, refusal, user_name
from spyweb.store.keys import find_key
from spyweb.store.lock import hold_lock
from spyweb.store.protocol import Change, Durability, Message, Record, Store
from spyweb.store.sqlite import open_store

T = TypeVar("T")


class Source(Protocol):
    """Where a command's answer comes from."""

    def jobs(self) -> list[JobView]: ...

    def next_runs(self, job: JobId | None, count: int) -> list[NextRun]: ...

    def runs(self, job: JobId | None, *, limit: int, before: RunId | None) -> list[Run]: ...

    def records(self, job: JobId, *, limit: int, before_ns: int | None) -> list[RecordView]: ...

    def messages(self, job: JobId | None, *, limit: int) -> list[MessageView]: ...

    def retry_messages(self, message: int | None) -> list[int]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the database says of the jobs."""

    cursors: dict[JobId, Cursor]
    latest: dict[JobId, Run]


class Project:
    """The files and the database.  Reading never takes the lock; changing something does."""

    def __init__(self, settings: Settings, clock: RealClock) -> None:
        self.settings = settings
        self.clock = clock

    @property
    def root(self) -> Path:
        return self.settings.root

    def refuse_strangers(self) -> None:
        """Raises NoAccess, with whose it is, when the data directory is somebody else's."""
        error = no_access(self.settings.daemon.data_dir)
        if error:
            raise error

    def find_daemon(self) -> Daemon | None:
        return find_daemon(self.settings.daemon.data_dir)

    def source(self) -> Source:
        return self.find_daemon() or self

    def find(self, name_or_id: str) -> JobId:
        """Raises Refused, with the nearest name, when there is no such job."""
        return find_in(self.views(), name_or_id)

    def views(self) -> list[JobView]:
        """The jobs by their files alone."""
        return _views(self._scan(), {})

    def jobs(self) -> list[JobView]:
        known, scanned = self._known(), self._scan()
        return _views(scanned, {spec.id: self._facts(spec, known) for spec in _specs(scanned)})

    def next_runs(self, job: JobId | None, count: int) -> list[NextRun]:
        known = self._known()
        chosen = [spec for spec in _specs(self._scan()) if job in (None, spec.id)]
        found = [due for spec in chosen for due in self._next_of(spec, known, count)]
        return sorted(found, key=lambda run: (run.due_ms, run.job))[:count]

    def runs(self, job: JobId | None, *, limit: int, before: RunId | None) -> list[Run]:
        return self.read(lambda store: store.runs.list(job, limit=limit, before=before), [])

    def records(self, job: JobId, *, limit: int, before_ns: int | None) -> list[RecordView]:
        found: list[Record] = self.read(lambda store: store.records.list(job, limit=limit, before_ns=before_ns), [])
        return [view_record(record) for record in found]

    def messages(self, job: JobId | None, *, limit: int) -> list[MessageView]:
        found: list[Message] = self.read(lambda store: store.outbox.unsent(job, limit), [])
        return [view_message(message) for message in found]

    def retry_messages(self, message: int | None) -> list[int]:
        """The next daemon sends them as it starts."""
        return self.write(lambda store: store.outbox.retry(message))

    def pause(self, job: JobId) -> None:
        self._change(job, paused=True)

    def resume(self, job: JobId) -> None:
        self._change(job, paused=False)

    def _scan(self) -> Scan:
        return scan(self.root, self.settings)

    def _known(self) -> Known:
        return self.read(_known, Known(cursors={}, latest={}))

    def _facts(self, spec: JobSpec, known: Known) -> JobFacts:
        due = self._next_of(spec, known, 1)
        return JobFacts(
            cursor=known.cursors.get(spec.id),
            next_due_ms=due[0].due_ms if due else None,
            last=known.latest.get(spec.id),
        )

    def _next_of(self, spec: JobSpec, known: Known, count: int) -> list[NextRun]:
        """What would be due from now on if a daemon started now."""
        cursor = known.cursors.get(spec.id)
        if not spec.enabled or (cursor and cursor.paused):
            return []
        now_ms = self.clock.now_ms()
        from_ms = settle(spec, welcome(spec, cursor, now_ms, SPREAD_MS).cursor.due_ms, now_ms).cursor_ms
        zone = zone_of(spec.schedule, self.settings.daemon.timezone)
        return [next_run(spec.id, due_ms, zone) for due_ms in upcoming(spec, from_ms, count)]

    def read(self, ask: Callable[[Store], Awaitable[T]], otherwise: T) -> T:
        """Ask the database; before the first start there is none."""
        path = self.settings.store.path
        if self.settings.daemon.data_dir.exists():
            self.refuse_strangers()
        return asyncio.run(self._ask(ask, read_only=True)) if path.exists() else otherwise

    def write(self, ask: Callable[[Store], Awaitable[T]]) -> T:
        """Ask the database for a change, under the lock.  Raises LockHeld when somebody has it."""
        with hold_lock(self.settings.daemon.data_dir, root=self.root, clock=self.clock):
            return asyncio.run(self._ask(ask, read_only=False))

    def key(self) -> bytes | None:
        """What values are encrypted with; None: they are not.  Raises StoreError or NoAccess."""
        key_file = self.settings.store.key_file
        return find_key(key_file, self.root, os.environ) if key_file else None

    def change_values(self, ask: Callable[[Store], Awaitable[T]]) -> T:
        """As `write`, with what the jobs say of stored values: which past versions are kept, which changes start a
        job once a daemon runs."""
        specs = _specs(self._scan())

        def change(store: Store) -> Awaitable[T]:
            store.events.watch(watches_of(specs))
            store.values.keep_history(history_rules(self.settings.state.history, specs))
            return ask(store)

        return self.write(change)

    async def _ask(self, ask: Callable[[Store], Awaitable[T]], *, read_only: bool) -> T:
        settings = self.settings.store
        store = await open_store(
            settings.path,
            clock=self.clock,
            durability=Durability(settings.durability),
            read_only=read_only,
            key=self.key(),
            history=self.settings.state.history,
        )
        try:
            return await ask(store)
        finally:
            await store.close()

    def _change(self, job: JobId, *, paused: bool) -> None:
        file = self._scan().jobs.get(job)
        if file is None:
            raise Refused(f"{job} does not load: `spyweb check` says why")
        self.write(partial(_set_paused, file.spec, self.clock, paused=paused))


async def _set_paused(spec: JobSpec, clock: Clock, store: Store, *, paused: bool) -> None:
    """The next daemon takes the cursor up as it stands, and records the due times in between as paused."""
    cursor = (await store.runs.cursors()).get(spec.id)
    if cursor is None or cursor.paused is not paused:
        await store.runs.record(_paused(spec, cursor, clock.now_ms(), paused=paused))


def _paused(spec: JobSpec, cursor: Cursor | None, now_ms: int, *, paused: bool) -> Change:
    """A job that no daemon has seen yet gets its first cursor."""
    seen = Welcome(cursor=cursor) if cursor else welcome(spec, None, now_ms, SPREAD_MS)
    changed = replace(dismissed(seen.cursor, now_ms), paused=paused)
    return Change(cursors=[changed], stretches=seen.stretches)


def open_project(root: Path) -> Project:
    """Raises ConfigError when its config.toml is wrong, NoAccess when this user may not even look."""
    if not os.access(root, os.R_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        raise refusal(root, user_name(root.stat().st_uid))
    return Project(load_settings(root, environ=os.environ, flags={}), RealClock())


def find_in(views: list[JobView], name_or_id: str) -> JobId:
    """Raises Refused, with the nearest name, when there is no such job."""
    job = find_job(views, name_or_id)
    if job is None:
        raise Refused(no_such_job(views, name_or_id))
    return job


async def _known(store: Store) -> Known:
    return Known(cursors=await store.runs.cursors(), latest=await store.runs.latest())


def _specs(scanned: Scan) -> list[JobSpec]:
    return [file.spec for file in scanned.jobs.values()]


def _views(scanned: Scan, facts: Mapping[JobId, JobFacts]) -> list[JobView]:
    whole = [view_job(spec, facts.get(spec.id, JobFacts())) for spec in _specs(scanned)]
    broken = [broken_job(job, problems) for job, problems in scanned.broken.items()]
    return sorted([*whole, *broken], key=lambda view: view.id)
