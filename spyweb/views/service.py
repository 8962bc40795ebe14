"""What the HTTP door may ask of the daemon.  It is handed a Desk and never sees the daemon's parts."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from pathlib import Path
from typing import Protocol

from aiohttp import web

from spyweb.errors import Problem
from spyweb.model import JobId, Run, RunId, Value
from spyweb.settings import StateSettings
from spyweb.store.protocol import Item, NewRecord
from spyweb.views.health import Health
from spyweb.views.jobs import JobView, NextRun, RunEvent
from spyweb.views.outbox import MessageView
from spyweb.views.records import RecordView
from spyweb.views.state import ChangeView, EntryView, Imported, LockView, Moved, StateStats


class StateDesk(Protocol):
    """Stored values and locks, in any namespace."""

    @property
    def limits(self) -> StateSettings: ...

    def entries(self, namespace: str, prefix: bytes, limit: int | None) -> AsyncIterator[EntryView]:
        """Sorted by key, bytewise."""

    async def entry(self, namespace: str, key: bytes) -> EntryView | None: ...

    async def count(self, namespace: str, pattern: bytes) -> int: ...

    async def put(self, namespace: str, key: bytes, value: Value, ttl_ms: int | None) -> bool:
        """Write over what is there, expiry and all; tells whether the key is new.  Raises Refused beyond the limits."""

    async def delete(self, namespace: str, key: bytes) -> bool:
        """Whether there was anything to delete."""

    async def clear(self, namespace: str, pattern: bytes) -> int: ...

    async def stats(self, namespace: str | None) -> StateStats: ...

    async def history(self, namespace: str, key: bytes, limit: int | None) -> list[EntryView]:
        """Newest first."""

    async def rollback(self, namespace: str, key: bytes, version: int) -> bool:
        """Write the value of that version again, as a new one.  Raises Refused when it is not kept."""

    async def locks(self) -> list[LockView]: ...

    async def break_lock(self, name: bytes) -> LockView | None:
        """Who had it; None when nobody did."""

    def export(self, namespace: str | None) -> AsyncIterator[Item]: ...

    async def load(self, items: Sequence[Item], *, dry_run: bool) -> Imported:
        """All of them or none.  Raises Refused when one is beyond the limits."""

    async def add_records(self, job: JobId, records: Sequence[NewRecord]) -> int:
        """Record what another program has found, and announce none of it; gives how many were new here."""

    async def move(self, old: str, new: str) -> Moved:
        """Namespaces; of jobs with their records.  Raises StoreError, and moves nothing, when a key is in both."""

    def watch(self, namespace: str | None, pattern: bytes) -> AsyncGenerator[ChangeView | None, None]:
        """Each change of such a key after its commit, beginning with the first None; None again now and then, so that
        whoever hands it on notices when nobody is there any more."""


class Catalogue(Protocol):
    """What there is to see of the jobs, running or not."""

    def find(self, name_or_id: str) -> JobId | None: ...

    def no_such_job(self, name_or_id: str) -> str:
        """Say that there is no such job, and which may be meant."""

    def jobs(self) -> list[JobView]: ...

    async def records(self, job: JobId | None, *, limit: int, before_ns: int | None) -> list[RecordView]:
        """Newest first, of one job or of all together."""


class Desk(Catalogue, Protocol):
    @property
    def state(self) -> StateDesk: ...

    def warnings(self) -> list[Problem]:
        """What is doubtful in the project's files."""

    async def next_runs(self, job: JobId | None, count: int) -> list[NextRun]:
        """The next due times, of one job or of all together, earliest first."""

    def log_file(self, job: JobId) -> Path:
        """Where the job's script logs; the file need not exist."""

    async def health(self) -> Health: ...

    async def runs(self, job: JobId | None, *, limit: int, before: RunId | None) -> list[Run]:
        """Newest first."""

    async def messages(self, job: JobId | None, *, limit: int) -> list[MessageView]:
        """Those that wait and those that were given up, newest first."""

    async def retry_messages(self, message: int | None) -> list[int]:
        """Send this one, or all, now; gives their ids."""

    async def trigger(self, job: JobId) -> RunId | None:
        """Start a run, or let it wait its turn; None where the job's overlap rule drops it.

        Raises Refused when it makes no sense now.
        """

    async def pause(self, job: JobId) -> None: ...

    async def resume(self, job: JobId) -> None: ...

    def run_once(self, job: JobId, *, debug: bool = False) -> AsyncGenerator[RunEvent, None]:
        """Run a job by hand: its log lines as they come, then its end.  With `debug` a monitor job keeps nothing.

        Raises Refused, before the first event, when it can't start.  Whoever stops watching closes the
        generator; the run itself goes on.
        """


DESK: web.AppKey[Desk] = web.AppKey("desk")
CATALOGUE: web.AppKey[Catalogue] = web.AppKey("catalogue")  # the desk itself, where there is one
