"""What the HTTP door may ask of the daemon.  It is handed a Desk and never sees the daemon's parts."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Protocol

from aiohttp import web

from spyweb.jobs.health import Health
from spyweb.jobs.view import JobView, NextRun, RunEvent
from spyweb.model import JobId, Run, RunId


class Desk(Protocol):
    def find(self, name_or_id: str) -> JobId | None: ...

    def jobs(self) -> list[JobView]: ...

    def next_runs(self, job: JobId | None, count: int) -> list[NextRun]:
        """The next due times, of one job or of all together, earliest first."""

    def log_file(self, job: JobId) -> Path:
        """Where the job's script logs; the file need not exist."""

    async def health(self) -> Health: ...

    async def runs(self, job: JobId | None, *, limit: int, before: RunId | None) -> list[Run]:
        """Newest first."""

    async def trigger(self, job: JobId) -> RunId | None:
        """Start a run, or let it wait its turn; None where the job's overlap rule drops it.

        Raises Refused when it makes no sense now.
        """

    async def pause(self, job: JobId) -> None: ...

    async def resume(self, job: JobId) -> None: ...

    def run_once(self, job: JobId) -> AsyncGenerator[RunEvent, None]:
        """Run a job by hand: its log lines as they come, then its end.

        Raises Refused, before the first event, when it can't start.  Whoever stops watching closes the
        generator; the run itself goes on.
        """


DESK: web.AppKey[Desk] = web.AppKey("desk")
