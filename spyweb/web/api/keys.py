"""The keys under which handlers find the parts that their app was built with."""

from __future__ import annotations

from typing import Protocol

from aiohttp import web

from spyweb.model import JobId
from spyweb.service.daemon import DaemonService
from spyweb.views.jobs import JobView
from spyweb.views.records import RecordView


class Catalogue(Protocol):
    """The jobs and records of a project, whether a daemon runs it or its own tests do."""

    def find(self, name_or_id: str) -> JobId | None: ...

    def no_such_job(self, name_or_id: str) -> str: ...

    async def all_jobs(self) -> list[JobView]: ...

    async def records(self, job: JobId | None, *, limit: int, before_ns: int | None) -> list[RecordView]: ...


SERVICE = web.AppKey("service", DaemonService)
CATALOGUE: web.AppKey[Catalogue] = web.AppKey("catalogue")  # the service itself, where there is one
LARGEST_BODY = web.AppKey("bytes of the largest body", int)
