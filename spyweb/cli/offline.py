"""Answer the commands from a project's files and its database, where no daemon runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from spyweb.cli import output
from spyweb.clock import Clock
from spyweb.cooperative import run_at_once
from spyweb.errors import Problem, Refused
from spyweb.model import Cursor, JobId, JobSpec, Pings, Run, RunId, TaskRow
from spyweb.schedules.cursor import Activation, activate, deactivated
from spyweb.schedules.due import SPREAD_MS, decide_due, earliest, expected_ping, upcoming
from spyweb.settings import Settings
from spyweb.specs.discover import Scan, scan
from spyweb.specs.watches import history_rules, watches_of
from spyweb.store.access import no_access
from spyweb.store.encryption import find_key
from spyweb.store.lock import hold_lock
from spyweb.store.marker import Marker
from spyweb.store.model.access import AuditLine
from spyweb.store.model.messages import QueuedMessage
from spyweb.store.model.records import Record
from spyweb.store.model.runs import Change
from spyweb.store.sqlite.damage import refuse_missing, size_of
from spyweb.views.drift import DriftReport
from spyweb.views.jobs import JobView, NextRun, broken_job, next_run, view_job, zone_of
from spyweb.views.outbox import MessageView, view_message
from spyweb.views.records import RecordView, view_record
from spyweb.views.runs import TaskView, view_task
from spyweb.views.workflows import WorkflowDetail, WorkflowView

if TYPE_CHECKING:
    from spyweb.service.access import AccessService
    from spyweb.service.incidents import IncidentService
    from spyweb.store.model.access import Scope
    from spyweb.store.sqlite.store import Store
    from spyweb.views.incidents import IncidentView
    from spyweb.views.keys import KeyView, MadeKey

T = TypeVar("T")

LOCAL, OFFLINE = "local", "no daemon"  # who it was, and how they came in, in the audit trail


class OfflineProject:
    """Reads the files and the database of a project; reading never takes the lock, changing something does.

    It asks the services that a daemon asks; each is imported where it is needed, since that takes time.
    """

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock

    def views(self) -> list[JobView]:
        """Return the jobs as their files alone describe them."""
        return self._views(view_job)

    def jobs(self) -> list[JobView]:
        nothing: tuple[dict[JobId, Cursor], dict[JobId, Run]] = ({}, {})
        cursors, latest = self.read(_cursors_and_latest, nothing)
        return self._views(lambda spec: self._view(spec, cursors.get(spec.id), latest.get(spec.id)))

    def _views(self, view: Callable[[JobSpec], JobView]) -> list[JobView]:
        broken = [broken_job(job, problems) for job, problems in self._scanned.broken.items()]
        return sorted([*map(view, self.specs), *broken], key=lambda view: view.id)

    def warnings(self) -> list[Problem]:
        return sorted(self._scanned.warnings, key=Problem.place)

    @property
    def specs(self) -> list[JobSpec]:
        return [file.spec for file in self._scanned.jobs.values()]

    def next_runs(self, job: JobId | None, count: int) -> list[NextRun]:
        cursors: dict[JobId, Cursor] = self.read(lambda store: store.runs.cursors(), {})
        chosen = [spec for spec in self.specs if job in (None, spec.id)]
        zones = {spec.id: zone_of(spec.schedule, self._settings.daemon.timezone) for spec in chosen}
        due = ((spec.id, self._upcoming(spec, cursors.get(spec.id))) for spec in chosen)
        found = run_at_once(earliest(due, count))
        return [next_run(due_job, due_ms, zones[due_job]) for due_ms, due_job in found]

    def runs(self, job: JobId | None, *, limit: int, before: RunId | None) -> list[Run]:
        return self.read(lambda store: store.runs.list(job, limit=limit, before=before), [])

    def tasks(self, run: RunId) -> list[TaskView]:
        found: Mapping[RunId, Sequence[TaskRow]] = self.read(lambda store: store.tasks.of_runs([run]), {})
        return [view_task(row) for row in found.get(run, ())]

    def workflows(self, limit: int) -> list[WorkflowView]:
        from spyweb.service.workflows import WorkflowService

        return self.read(lambda store: WorkflowService(store).newest(limit), [])

    def workflow(self, which: str) -> WorkflowDetail:
        from spyweb.service.workflows import WorkflowService

        found: WorkflowDetail | None = self.read(lambda store: WorkflowService(store).detail(which), None)
        if found is None:
            raise Refused("nothing has run yet")
        return found

    def drift(self, job: JobId | None) -> DriftReport:
        from spyweb.ops.files.files import Files  # no other command needs the ops
        from spyweb.service.drift import DriftService

        specs = {spec.id: spec for spec in self.specs}

        def check(store: Store) -> Awaitable[DriftReport]:
            service = DriftService(
                store=store,
                files=Files(self._settings.root, self._clock),
                clock=self._clock,
                specs=lambda: specs,
                broken=lambda: self._scanned.broken,
            )
            return service.check(job)

        return self.read(check, DriftReport())

    def records(self, job: JobId, *, limit: int, before_ns: int | None) -> list[RecordView]:
        found: list[Record] = self.read(lambda store: store.records.list(job, limit=limit, before_ns=before_ns), [])
        return [view_record(record) for record in found]

    def messages(self, job: JobId | None, *, limit: int) -> list[MessageView]:
        found: list[QueuedMessage] = self.read(lambda store: store.outbox.unsent(job, limit), [])
        return [view_message(message) for message in found]

    def retry_messages(self, message: int | None) -> list[int]:
        """Mark this message, or all, for the next daemon, which sends them as it starts; return their ids."""
        return self.write(lambda store: store.outbox.retry(message))

    def incidents(
        self, *, is_open: bool | None, limit: int, job: JobId | None = None, since_ms: int | None = None
    ) -> list[IncidentView]:
        return self.read(
            lambda store: self._incidents(store).list(
                is_open=is_open, job=job, before=None, limit=limit, since_ms=since_ms
            ),
            [],
        )

    def incident(self, number: int) -> IncidentView:
        found = self.read(lambda store: self._incidents(store).get(number), None)
        if found is None:
            raise Refused(f"there is no incident {number}")
        return found

    def ack_incident(self, number: int, by: str) -> str:
        self.write(lambda store: self._incidents(store).acknowledge(number, by))
        return by

    def silence(self, job: JobId, for_ms: int | None, by: str) -> None:
        self.write(lambda store: self._incidents(store).silence(job, for_ms, by))

    def keys(self) -> list[KeyView]:
        async def ask(store: Store) -> list[KeyView]:
            return (await self._access(store)).keys()

        return self.read(ask, [])

    def add_key(self, name: str, scopes: Sequence[Scope], jobs: Sequence[str]) -> MadeKey:
        return self._change_keys("POST /api/keys", name, lambda access: access.add(name, scopes, jobs))

    def revoke_key(self, name: str) -> bool:
        return self._change_keys("DELETE /api/keys/{name}", name, lambda access: access.revoke(name))

    def audit_lines(self, *, limit: int) -> list[AuditLine]:
        from spyweb.service.audit import AuditService

        return self.read(lambda store: AuditService(store.audit, self._clock).lines(limit=limit), [])

    def pause(self, job: JobId) -> None:
        self._change(job, paused=True)

    def resume(self, job: JobId) -> None:
        self._change(job, paused=False)

    @cached_property
    def _scanned(self) -> Scan:
        return scan(self._settings.root, self._settings)

    def _view(self, spec: JobSpec, cursor: Cursor | None, last: Run | None) -> JobView:
        warnings = tuple(map(str, self._scanned.jobs[spec.id].warnings))
        next_due_ms = next(self._upcoming(spec, cursor), None)
        return replace(view_job(spec, cursor, last), warnings=warnings, next_due_ms=next_due_ms)

    def _upcoming(self, spec: JobSpec, cursor: Cursor | None) -> Iterator[int]:
        """Yield the due times from now on, as if a daemon started now."""
        if not spec.enabled or (cursor and cursor.paused):
            return iter(())
        if isinstance(spec.schedule, Pings):
            expected_ms = expected_ping(spec.schedule, cursor.due_ms) if cursor else None
            return iter(() if expected_ms is None else (expected_ms,))
        now_ms = self._clock.now_ms()
        due_ms = activate(spec, cursor, now_ms, SPREAD_MS).cursor.due_ms
        return upcoming(spec, decide_due(spec, due_ms, now_ms, kept_since_ms=now_ms).cursor_ms)

    def read(self, ask: Callable[[Store], Awaitable[T]], otherwise: T) -> T:
        """Ask the database; return `otherwise` before the first start, when there is none."""
        path = self._settings.store.path
        data_dir = self._settings.daemon.data_dir
        if data_dir.exists() and (error := no_access(data_dir)):
            raise error
        if not path.exists():
            marker = self.marker()
            refuse_missing(path, marker.folder if marker.found else None)
            return otherwise
        return asyncio.run(self._ask(ask, read_only=True))

    def write(self, ask: Callable[[Store], Awaitable[T]]) -> T:
        """Ask the database for a change, under the lock.  Raises LockHeld when somebody has it."""
        output.log_only_errors()
        path = self._settings.store.path
        with hold_lock(self._settings.daemon.data_dir, root=self._settings.root, clock=self._clock):
            is_new = not size_of(path)
            answer = asyncio.run(self._ask(ask, read_only=False))
        if is_new:
            output.note(f"a new database begins: {path}")
        return answer

    def marker(self) -> Marker:
        return Marker(self._settings.daemon.data_dir, self._settings.store.path, self._clock)

    def key(self) -> bytes | None:
        """Return the key that values are encrypted with, or None.  Raises StoreError or NoAccess."""
        key_file = self._settings.store.key_file
        return find_key(key_file, self._settings.root, os.environ) if key_file else None

    def change_values(self, ask: Callable[[Store], Awaitable[T]]) -> T:
        """Change stored values as `write` does, with the jobs' rules on history and on changes that start a job once a
        daemon runs.
        """

        def change(store: Store) -> Awaitable[T]:
            store.events.watch(watches_of(self.specs))
            store.values.keep_history(history_rules(self._settings.state.history, self.specs))
            return ask(store)

        return self.write(change)

    async def _ask(self, ask: Callable[[Store], Awaitable[T]], *, read_only: bool) -> T:
        from spyweb.store.sqlite.store import open_store  # before the first start there is nothing to open

        settings = self._settings.store
        store = await open_store(
            settings.path,
            clock=self._clock,
            durability=settings.durability,
            read_only=read_only,
            key=self.key(),
            history=self._settings.state.history,
            marker=self.marker(),
        )
        try:
            return await ask(store)
        finally:
            await store.close()

    def _incidents(self, store: Store) -> IncidentService:
        from spyweb.service.incidents import IncidentService

        return IncidentService(store.incidents, self._clock)

    async def _access(self, store: Store) -> AccessService:
        from spyweb.service.access import AccessService

        access = AccessService(store.keys, self._clock)
        await access.load()
        return access

    def _change_keys(self, action: str, name: str, ask: Callable[[AccessService], Awaitable[T]]) -> T:
        """Change a key, and put it on record as a daemon does."""
        from spyweb.store.model.access import NewAuditLine

        async def change(store: Store) -> T:
            changed = await ask(await self._access(store))
            at_ms = self._clock.now_ms()
            line = NewAuditLine(at_ms=at_ms, who=LOCAL, source=OFFLINE, action=action, target=name, status=200)
            await store.audit.add(line)
            return changed

        return self.write(change)

    def _change(self, job: JobId, *, paused: bool) -> None:
        file = self._scanned.jobs.get(job)
        if file is None:
            raise Refused(f"{job} does not load: `spyweb check` says why")
        self.write(partial(_set_paused, file.spec, self._clock, paused=paused))


async def _set_paused(spec: JobSpec, clock: Clock, store: Store, *, paused: bool) -> None:
    """Pause or resume a job on record: the next daemon goes on from there, and records what was due as paused."""
    known: dict[JobId, Cursor | None] = {spec.id: (await store.runs.cursors()).get(spec.id)}
    await store.runs.write_cursors(
        lambda: _paused(spec, known[spec.id], clock.now_ms(), paused=paused), known.__setitem__
    )


def _paused(spec: JobSpec, cursor: Cursor | None, now_ms: int, *, paused: bool) -> Change:
    """Make the change that pauses or resumes a job, if any; one that no daemon has seen yet gets its first cursor."""
    if cursor is not None and cursor.paused is paused:
        return Change()
    seen = Activation(cursor=cursor) if cursor else activate(spec, None, now_ms, SPREAD_MS)
    changed = replace(deactivated(seen.cursor, now_ms), paused=paused, paused_for="")
    return Change(expects={spec.id: cursor}, cursors=[changed], skipped=seen.skipped)


async def _cursors_and_latest(store: Store) -> tuple[dict[JobId, Cursor], dict[JobId, Run]]:
    return await store.runs.cursors(), await store.runs.latest()
